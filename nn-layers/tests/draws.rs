//! Positions that a plan draws on shares: as often as their weights say.

use mpc_core::{Format, Operand, Protocol, Result, SecretTensor, TestWorld};
use net::{Party, Session};
use nn_layers::{Compiled, Dim, Graph, HostTensor, Op, PlanOptions, Sizes};
use ring_arith::{CpuEngine, Engine, EngineTensor};
use rss_protocols::Rss;

/// Scores of the positions.
const SCORES: [f64; 6] = [0.3, -1.0, 2.0, 1.2, -3.0, 0.9];

/// A draw for each of `count` examples, by scores over a temperature.
fn compiled(temperature: f64) -> Compiled {
    let mut g = Graph::new(1);
    let x = g.input("scores", &[Dim::Batch(1), Dim::Fixed(SCORES.len())]).unwrap();
    let scaled = g.add("scaled", Op::Scale(1.0 / temperature), &[x]).unwrap();
    let weights = g.add("weights", Op::Softmax { axis: 1, log: false }, &[scaled]).unwrap();
    let place = g.add("place", Op::Draw, &[weights]).unwrap();
    g.output("place", place);
    Compiled::new(&g, &PlanOptions::default()).unwrap()
}

/// The places that three parties draw, by example.
fn drawn(temperature: f64, count: usize) -> Vec<i64> {
    let program = move |session: Session| -> Result<_> {
        let mut mpc = Rss::new(session, CpuEngine::new(1))?;
        let plan = compiled(temperature).plan;
        let scores = HostTensor::new([count, SCORES.len()], SCORES.repeat(count)).unwrap();
        let words = plan.encode_input(0, Sizes { batch: count, past: 0 }, &scores).unwrap();
        let words = mpc.engine().upload(words)?;
        let shape = words.shape().clone();
        let mine = (mpc.me() == Party(0)).then_some(std::slice::from_ref(&words));
        let x = SecretTensor::new(
            mpc.input(Party(0), &[shape], mine)?.remove(0),
            Format { frac: plan.frac(), width: 44 },
        );
        let places = plan.run(&mut mpc, &[], &[Operand::Secret(x)], &mut ()).unwrap();
        let words = mpc.open(&[places[0].share()])?.remove(0);
        let words = mpc.engine().download(&words)?;
        Ok(words.words().iter().map(|&word| word as i64).collect::<Vec<_>>())
    };
    // A fixed seed: by chance a right sampler fails too.
    let mut outcomes =
        TestWorld::new(3).with_seed(5).try_sessions(program).into_iter().map(Result::unwrap);
    let first = outcomes.next().unwrap();
    assert!(outcomes.all(|other| other == first));
    first
}

/// The distance of the counts of draws from their probabilities, as a test by chi-square counts it.
fn chi_square(places: &[i64], temperature: f64) -> f64 {
    let weights = SCORES.map(|score| (score / temperature).exp());
    let total: f64 = weights.iter().sum();
    let squares = weights.iter().enumerate().map(|(place, weight)| {
        let expected = weight / total * places.len() as f64;
        let count = places.iter().filter(|&&drawn| drawn == place as i64).count() as f64;
        (count - expected).powi(2) / expected
    });
    squares.sum()
}

#[test]
fn draws_have_the_frequencies_of_a_softmax() {
    for temperature in [1.0, 2.5] {
        let places = drawn(temperature, 20_000);
        // Of 5 degrees of freedom: by chance once in 10^5.
        let off = chi_square(&places, temperature);
        assert!(off < 31.0, "{off}");
        // The test tells 20,000 draws from those of a temperature a fifth lower.
        assert!(chi_square(&places, 0.8 * temperature) > 31.0);
    }
}

#[test]
fn a_cold_draw_is_the_largest_as_in_floats() {
    assert_eq!(drawn(0.01, 50), [2; 50]);
    let Compiled { plan, weights } = compiled(1.0);
    let scores = HostTensor::new([1, SCORES.len()], SCORES.to_vec()).unwrap();
    assert_eq!(plan.evaluate(&weights, &[scores]).unwrap()[0].floats()[..], [2.0]);
}
