//! Clients share secrets with two or three servers, and servers agree on keys.

use mpc_core::{Deal, Held, Sharing, TestWorld, sharing::Component};
use ring_arith::{CpuEngine, EngineTensor, Shape, Tensor};
use rss_protocols::{Addends, Options, Replicated, Rss};

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

/// Whether a component of this server is another one's as well, whose number is lower.
fn counted_before(sharing: &dyn Sharing, at: Component) -> bool {
    sharing.twins().iter().any(|pair| pair.contains(&at) && pair.iter().any(|other| *other < at))
}

#[test]
fn servers_hold_components_that_add_up_to_the_secret_and_twins_are_equal() {
    let secrets = [&[3, 5][..], &[], &[0, 4], &[1000]].map(|dims| secret(&shape(dims), 7));
    for sharing in [&Replicated as &dyn Sharing, &Addends] {
        let held = held(sharing, &secrets);
        assert_eq!(held.len(), sharing.servers());
        for (index, secret) in secrets.iter().enumerate() {
            let mut sum = vec![0u64; secret.len()];
            for (server, held) in held.iter().enumerate() {
                assert_eq!(held[index].len(), sharing.components());
                for (component, words) in held[index].iter().enumerate() {
                    if counted_before(sharing, (server, component)) {
                        continue;
                    }
                    let words = words.words();
                    sum.iter_mut().zip(words).for_each(|(sum, x)| *sum = sum.wrapping_add(*x));
                }
            }
            assert_eq!(sum, secret.words());
            for [(a, x), (b, y)] in sharing.twins() {
                assert_eq!(held[*a][index][*x], held[*b][index][*y]);
            }
        }
    }
}

#[test]
fn what_travels_is_two_words_for_three_servers_and_one_for_two() {
    let secrets = [secret(&shape(&[N]), 1)];
    for (sharing, keys, words) in
        [(&Replicated as &dyn Sharing, [2, 1, 1].as_slice(), 2), (&Addends, &[1, 0], 1)]
    {
        let parcels = sharing.deal(secrets.to_vec()).unwrap();
        let found: Vec<_> = parcels.iter().map(|parcel| parcel.keys.len()).collect();
        assert_eq!(found, keys);
        assert_eq!(parcels.iter().map(|parcel| parcel.words.len()).sum::<usize>(), words);
        for (server, parcel) in parcels.iter().enumerate() {
            let contents = sharing.contents(server);
            assert_eq!(contents.keys, parcel.keys.len());
            assert_eq!(contents.words, !parcel.words.is_empty());
        }
    }
}

#[test]
fn every_dealing_and_every_tensor_has_its_own_randomness() {
    let secrets = [secret(&shape(&[N]), 1), secret(&shape(&[N]), 1)];
    for sharing in [&Replicated as &dyn Sharing, &Addends] {
        let (one, two) = (held(sharing, &secrets), held(sharing, &secrets));
        for server in 0..sharing.servers() {
            assert_ne!(one[server][0][0], one[server][1][0]);
            assert_ne!(one[server][0][0], two[server][0][0]);
        }
    }
}

#[test]
fn a_parcel_that_does_not_fit_its_shapes_or_the_memory_is_refused() {
    let (four, five) = (shape(&[4]), shape(&[5]));
    for sharing in [&Replicated as &dyn Sharing, &Addends] {
        let parcel =
            |server: usize| sharing.deal(vec![secret(&four, 1)]).unwrap().swap_remove(server);
        assert!(sharing.accept(1, parcel(1), std::slice::from_ref(&five)).is_err());
        assert!(sharing.accept(0, parcel(1), std::slice::from_ref(&four)).is_err());
        assert!(sharing.accept(1, parcel(1), &[four.clone(), four.clone()]).is_err());
        let huge = [shape(&[1 << 44])];
        let error = sharing.accept(0, parcel(0), &huge).map(drop).unwrap_err().to_string();
        assert!(error.contains("no memory for 17592186044416 words"), "{error}");
    }
}

#[test]
fn agreeing_takes_32_bytes_to_each_of_three_servers_once_and_seeds_are_common() {
    let program = |session: net::Session| {
        let metered = net::Metered::new(session.transport);
        let meter = metered.meter();
        let transport = Box::new(metered);
        let mut mpc = Rss::new(net::Session { transport, ..session }, CpuEngine::new(1))?;
        mpc.agree()?;
        let agreed = meter.stats().bytes_sent();
        mpc.agree()?;
        let seeds = [mpc.seed()?, mpc.seed()?];
        assert_eq!([agreed, meter.stats().bytes_sent()], [64, 64]);
        Ok(seeds)
    };
    let seeds = TestWorld::new(3).try_sessions(program);
    let seeds: Vec<_> = seeds.into_iter().map(Result::unwrap).collect();
    assert!(seeds.iter().all(|seed| seed == &seeds[0]) && seeds[0][0] != seeds[0][1]);
    let make = |session| Rss::dealt(session, CpuEngine::new(1), Options::default());
    let dealt = TestWorld::new(2).with_dealer().run(make, |mpc| Ok([mpc.seed()?, mpc.seed()?]));
    assert!(dealt.iter().all(|seed| seed == &dealt[0]) && dealt[0][0] != dealt[0][1]);
}
