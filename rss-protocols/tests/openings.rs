//! Openings in which a message is changed on its way.

use mpc_core::{Error, Protocol, Result};
use net::{Fault, Party, Session, Strike, Tamper};
use ring_arith::{CpuEngine, EngineTensor, Tensor};
use rss_protocols::Rss;

/// What each party makes of an opening in which one message is changed.
fn open_with(sender: Party, to: Party, all: bool) -> Vec<Result<()>> {
    let sessions = net::in_process::sessions_from_seed(3, 1);
    net::launch::run_all(sessions, |session| {
        let me = session.transport.me();
        let strike = Strike::new(Fault::Flip(70)).in_step("open").to(to);
        let strikes = if me == sender { vec![strike] } else { Vec::new() };
        let transport = Box::new(Tamper::new(session.transport, strikes));
        let mut mpc = Rss::new(Session { transport, ..session }, CpuEngine::new(1)).unwrap();
        let value = [Tensor::of([3], &[1, 2, 3]).unwrap()];
        let values = (me == Party(0)).then_some(&value[..]);
        let x = mpc.input(Party(0), &[value[0].shape().clone()], values)?.remove(0);
        mpc.step("open");
        if all { mpc.open(&[&x]).map(drop) } else { mpc.open_to(to, &[&x]).map(drop) }
    })
}

#[test]
fn a_component_or_hash_changed_on_its_way_to_be_opened_is_an_error() {
    for to in [Party(0), Party(1), Party(2)] {
        let previous = to.after(2, 3);
        for sender in [previous, to.after(1, 3)] {
            for all in [true, false] {
                let outcome = open_with(sender, to, all).remove(to.0).unwrap_err();
                let Error::Net(net::Error::Violation { peer, reason, .. }) = &outcome else {
                    panic!("{outcome}");
                };
                assert_eq!(*peer, previous);
                assert!(reason.contains(&to.after(1, 3).to_string()), "{reason}");
            }
        }
    }
}
