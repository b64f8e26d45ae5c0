//! Results that servers release to clients: they add up, and no component of a share is among them.

use std::collections::HashSet;

use mpc_core::{Deal, Held, Protocol, Released, Sharing, TestWorld};
use ring_arith::{CpuEngine, EngineTensor, Shape, Tensor};

use crate::{Addends, Options, Replicated, Rss};

const N: usize = 40;

fn secret(shape: &Shape, salt: u64) -> Tensor {
    Tensor::from_fn(shape.clone(), |i| (i as u64 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

fn held(sharing: &dyn Sharing, secrets: &[Tensor]) -> Vec<Vec<Held>> {
    let shapes: Vec<_> = secrets.iter().map(|secret| secret.shape().clone()).collect();
    let parcels = sharing.deal(secrets.to_vec()).unwrap().into_iter().enumerate();
    parcels.map(|(server, parcel)| sharing.accept(server, parcel, &shapes).unwrap()).collect()
}

/// The results that servers release of the same shares, twice.
fn released(sharing: &'static dyn Sharing) -> (Vec<Vec<Held>>, [Vec<Vec<Released>>; 2]) {
    let secrets = [secret(&shape(&[N]), 3), secret(&shape(&[N]), 3)];
    let held = held(sharing, &secrets);
    let parts = held.clone();
    let program = move |mpc: &mut Rss<CpuEngine>| {
        let shapes = [shape(&[N]), shape(&[N])];
        let parts = parts.get(mpc.me().0).cloned().unwrap_or_default();
        let shares = mpc.accept(&shapes, parts)?;
        let shares: Vec<_> = shares.iter().collect();
        assert_eq!(mpc.sharing().name(), mpc.info().name);
        Ok((mpc.hold(&shares)?, [mpc.release(&shares)?, mpc.release(&shares)?]))
    };
    let outcomes = if sharing.servers() == 3 {
        TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), program)
    } else {
        let make = |session| Rss::dealt(session, CpuEngine::new(1), Options::default());
        TestWorld::new(2).with_dealer().run(make, program)
    };
    let kept: Vec<_> = outcomes.iter().map(|(held, _)| held.clone()).collect();
    if sharing.servers() == 3 {
        assert_eq!(kept, held);
    }
    let each = |at: usize| outcomes.iter().map(|(_, both)| both[at].clone()).collect();
    (kept, [each(0), each(1)])
}

#[test]
fn released_results_tell_themselves_and_no_component() {
    check();
}

pub(crate) fn check() {
    for sharing in [&Replicated as &dyn Sharing, &Addends] {
        let (held, twice) = released(sharing);
        let servers = sharing.servers();
        for answer in &twice {
            for index in 0..2 {
                let parts: Vec<_> =
                    (0..servers).map(|server| answer[server][index].clone()).collect();
                assert_eq!(sharing.reveal(&parts).unwrap(), secret(&shape(&[N]), 3));
                assert!(sharing.reveal(&parts[1..]).is_err());
            }
        }
        // Other words in each release and for each tensor, and none that a server holds.
        for server in 0..servers {
            for at in 0..N {
                let mut words: Vec<u64> = Vec::new();
                for index in 0..2 {
                    words.extend(held[server][index].iter().map(|held| held.words()[at]));
                    words.extend(twice.each_ref().map(|all| all[server][index].words.words()[at]));
                }
                let others: HashSet<_> = words.iter().collect();
                assert_eq!(others.len(), words.len(), "server {server}, word {at}: {words:x?}");
            }
        }
    }
}

#[test]
fn a_changed_component_is_an_error_that_names_its_holders() {
    let (_, [answer, _]) = released(&Replicated);
    for server in 0..3 {
        let mut parts: Vec<_> = answer.iter().map(|each| each[0].clone()).collect();
        let mut words = parts[server].words.words().to_vec();
        words[3] ^= 1;
        parts[server].words = Tensor::new(shape(&[N]), words).unwrap();
        let error = Replicated.reveal(&parts).unwrap_err().to_string();
        let before = (server + 2) % 3;
        assert!(error.contains(&format!("party {before} or party {server}:")), "{error}");
        // A server that changes both its words and its hash is the only suspect.
        parts[server].vouched = Some([0; 32]);
        let error = Replicated.reveal(&parts).unwrap_err().to_string();
        assert!(error.contains(&format!("changed by party {server}:")), "{error}");
        parts[before].vouched = None;
        parts[before].words = Tensor::zeros(shape(&[N]));
        let error = Replicated.reveal(&parts).unwrap_err().to_string();
        assert!(error.contains("changed by more than one"), "{error}");
    }
}
