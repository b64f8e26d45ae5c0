//! The protocol computes as every protocol must.

use mpc_core::{Result, TestWorld};
use net::Session;
use ring_arith::CpuEngine;

use crate::Dealt;

fn make(session: Session) -> Result<Dealt<CpuEngine>> {
    Dealt::new(session, CpuEngine::new(1))
}

mpc_core::conformance! {
    two: TestWorld::new(2).with_dealer(), make;
    three: TestWorld::new(3).with_dealer(), make;
    five: TestWorld::new(5).with_dealer(), make;
}
