//! The cost of sorting many numbers over replicated sharing, counted by the transport.

use mpc_core::{Protocol, Result, SecretTensor, TestWorld, functions as f};
use net::Party;
use ring_arith::{CpuEngine, FracBits, Shape};
use rss_protocols::Rss;

type Mpc = Rss<CpuEngine>;
type Function = fn(&mut Mpc, &SecretTensor<Mpc>) -> Result<SecretTensor<Mpc>>;

/// Rounds and bytes of all parties together for a function of `n` numbers of 44 bits.
fn cost(n: usize, function: Function) -> (u32, u64) {
    let program = move |counted: bool| {
        let make = |session| Rss::new(session, CpuEngine::new(1));
        let (_, traffic) =
            TestWorld::new(3).with_seed(1).run_metered(make, move |mpc: &mut Mpc| {
                let values: Vec<f64> = (0..n).map(|i| ((i * 7919) % n) as f64 / 16.0).collect();
                let mine = (mpc.me() == Party(0)).then_some(&values[..]);
                let x = f::input(mpc, Party(0), &Shape::new([n])?, mine, FracBits::DEFAULT)?;
                if counted {
                    let _ = function(mpc, &x.with_width(44))?;
                }
                Ok(())
            });
        traffic
    };
    let (with, without) = (program(true), program(false));
    (with.rounds - without.rounds, with.bytes - without.bytes)
}

#[test]
fn sorting_many_numbers_costs_what_is_stated() {
    let wide: Function = |mpc, x| f::argsort(mpc, &x.clone().with_width(63), 0);
    let cases: [(&str, usize, Function, (u32, u64)); 6] = [
        ("sort", 1000, |mpc, x| f::sort(mpc, x, 0), (275, 1_368_368)),
        ("median", 1000, |mpc, x| f::median(mpc, x, 0), (276, 1_170_992)),
        ("argsort", 1000, |mpc, x| f::argsort(mpc, x, 0), (279, 1_553_072)),
        ("argsort of all bits", 1000, wide, (495, 2_905_808)),
        ("sort", 10_000, |mpc, x| f::sort(mpc, x, 0), (618, 26_194_128)),
        ("argsort", 10_000, |mpc, x| f::argsort(mpc, x, 0), (623, 30_736_104)),
    ];
    for (name, n, function, stated) in cases {
        assert_eq!(cost(n, function), stated, "{name} of {n} numbers");
    }
}
