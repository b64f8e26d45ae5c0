//! The plaintext reference passes the suite that every protocol must pass.

use mpc_core::{Plaintext, Rounding};
use ring_arith::CpuEngine;

mpc_core::conformance! {
    floor: 1, |_session| Ok(Plaintext::new(CpuEngine::new(1)).modular());
    drawn: 1, |_session| {
        let rounding = Rounding::Drawn { seed: 5 };
        Ok(Plaintext::with_rounding(CpuEngine::new(1), rounding).modular())
    };
}
