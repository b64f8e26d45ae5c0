//! Results that servers release to clients: they add up, and no component of a share is among them.

use std::collections::HashSet;

use mpc_core::{
    Deal, Held, Protocol, Released, ServerProtocol, Sharing, TestWorld, sharing::expand,
};
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

/// The results that servers release of the same shares, twice in each of two jobs.
fn released(sharing: &'static dyn Sharing) -> (Vec<Vec<Held>>, [Vec<Vec<Released>>; 4]) {
    let secrets = [secret(&shape(&[N]), 3), secret(&shape(&[N]), 3)];
    let held = held(sharing, &secrets);
    let parts = held.clone();
    let program = move |mpc: &mut Rss<CpuEngine>| {
        let shapes = [shape(&[N]), shape(&[N])];
        let parts = parts.get(mpc.me().0).cloned().unwrap_or_default();
        let shares = mpc.accept(&shapes, parts)?;
        let shares: Vec<_> = shares.iter().collect();
        assert_eq!(mpc.sharing().name(), mpc.info().name);
        let [mut first, mut second] = [(); 2].map(|()| Vec::new());
        for results in [&mut first, &mut second] {
            mpc.begin_job(&[6; 32])?;
            *results = vec![mpc.release(&shares)?, mpc.release(&shares)?];
        }
        Ok((mpc.hold(&shares)?, [first, second].concat()))
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
    (kept, [0, 1, 2, 3].map(each))
}

#[test]
fn released_results_tell_themselves_and_no_component() {
    check();
}

pub(crate) fn check() {
    for sharing in [&Replicated as &dyn Sharing, &Addends] {
        let (held, all) = released(sharing);
        let servers = sharing.servers();
        for answer in &all {
            for index in 0..2 {
                let parts: Vec<_> =
                    (0..servers).map(|server| answer[server][index].clone()).collect();
                assert_eq!(sharing.reveal(&parts).unwrap(), secret(&shape(&[N]), 3));
                assert!(sharing.reveal(&parts[1..]).is_err());
            }
        }
        // Other words and other masks in each job, in each release and for each tensor, and no word that a server holds.
        for server in 0..servers {
            for at in 0..N {
                let (mut words, mut masks): (Vec<u64>, Vec<u64>) = (Vec::new(), vec![0]);
                for index in 0..2 {
                    let held: Vec<_> =
                        held[server][index].iter().map(|held| held.words()[at]).collect();
                    let released = all.each_ref().map(|one| one[server][index].words.words()[at]);
                    masks.extend(released.map(|word| word.wrapping_sub(held[0])));
                    words.extend(held.into_iter().chain(released));
                }
                for all in [words, masks] {
                    let others: HashSet<_> = all.iter().collect();
                    assert_eq!(others.len(), all.len(), "server {server}, word {at}: {all:x?}");
                }
            }
        }
    }
}

#[test]
fn a_component_that_is_a_stream_is_made_again_from_its_key() {
    for sharing in [&Replicated as &dyn Sharing, &Addends] {
        let (shapes, mut streams) = ([shape(&[N]), shape(&[2, 3])], 0);
        let secrets = shapes.iter().map(|shape| secret(shape, 3)).collect();
        for (server, parcel) in sharing.deal(secrets).unwrap().into_iter().enumerate() {
            let keys = parcel.keys.clone();
            let held = sharing.accept(server, parcel, &shapes).unwrap();
            for (at, key) in sharing.streams(server).into_iter().enumerate() {
                let Some(key) = key else { continue };
                let stream = expand(&keys[key], &shapes).unwrap();
                assert!(held.iter().map(|held| &held[at]).eq(&stream), "server {server}, {at}");
                streams += 1;
            }
        }
        // All but the words of one component.
        assert_eq!(streams, if sharing.servers() == 3 { 4 } else { 1 });
    }
}

#[test]
fn a_changed_component_is_an_error_that_names_its_holders() {
    let (_, [answer, ..]) = released(&Replicated);
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
