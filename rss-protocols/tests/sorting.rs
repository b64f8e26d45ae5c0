//! The cost of sorting many numbers over replicated sharing, counted by the transport.

use mpc_core::{Format, Protocol, Result, SecretTensor, TestWorld, functions as f};
use net::{Metered, Party, Report, Session};
use ring_arith::{CpuEngine, FracBits, Shape, Tensor};
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

/// Rounds and bytes of all parties together of a program over shared integers below `2^bits`, whose inputs do not count.
fn cost_of_rows(
    rows: [usize; 2],
    bits: u32,
    run: impl Fn(&mut Mpc, &[SecretTensor<Mpc>; 2]) -> Result<()> + Send + Sync + 'static,
) -> (u32, u64) {
    let program = move |mut session: Session| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::new(session, CpuEngine::new(1))?;
        let shapes = [Shape::new([rows[0]])?, Shape::new([rows[1]])?];
        let mine = shapes.clone().map(|shape| {
            let len = shape.len();
            Tensor::from_fn(shape, |i| (i * 7919 % len.next_power_of_two()) as u64)
        });
        let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
        let inputs = mpc.input(Party(0), &shapes, mine)?;
        // All parties at one depth.
        mpc.open(&[&inputs[0]])?;
        let [x, y] =
            [0, 1].map(|i| SecretTensor::new(inputs[i].clone(), Format::integer(bits + 1)));
        meter.reset();
        run(&mut mpc, &[x, y])?;
        Ok(meter.stats())
    };
    let stats: Vec<_> = TestWorld::new(3).try_sessions(program);
    let report = Report::of(&stats.into_iter().map(|stats| stats.unwrap()).collect::<Vec<_>>());
    (report.rounds, report.bytes)
}

#[test]
fn sorting_by_bits_and_joins_cost_what_is_stated() {
    let sort = |mpc: &mut Mpc, [x, _]: &[SecretTensor<Mpc>; 2]| f::sort(mpc, x, 0).map(drop);
    // Seven digits of 13 bits.
    assert_eq!(cost_of_rows([4096, 1], 12, sort), (52, 4_837_120));
    let joined = |mpc: &mut Mpc, [x, y]: &[SecretTensor<Mpc>; 2]| {
        let left = f::Table { keys: x, columns: &[x] };
        let right = f::Table { keys: y, columns: &[y, y] };
        f::join(mpc, &left, &right, f::JoinKind::Inner, None).map(drop)
    };
    assert_eq!(cost_of_rows([2048, 2048], 40, joined), (153, 16_187_552));
}
