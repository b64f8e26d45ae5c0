//! The protocol of the example, which stands outside this crate as a researcher's would, passes the
//! conformance suite, and the privacy check notices that it hides nothing.

#[path = "../examples/own_protocol.rs"]
#[allow(dead_code)]
mod own_protocol;

use net::Party;
use own_protocol::{InTheOpen, privacy};

mpc_core::conformance! {
    in_the_open: 4, InTheOpen::new;
}

#[test]
fn computing_in_the_open_fails_the_privacy_check() {
    assert!(privacy().is_err_and(|leak| leak.party != Party(0)));
}
