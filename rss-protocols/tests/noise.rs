//! Gaussian noise on shares: distribution, whose noise it is, cost; and what truncation makes of words beyond its range.

use mpc_core::{
    Normal, Protocol, SecretTensor, SplitMix64, TestWorld, TruncationMode,
    functions::{discrete_laplace, discrete_normal, gaussian, gaussian_variance},
    testing::goodness::chi_square,
};
use net::{Metered, Party, Session, Stats};
use ring_arith::{CpuEngine, Shape, Tensor};
use rss_protocols::Rss;

const DRAWS: usize = 1_000_000;
const FRAC: u32 = 40;

fn party(session: Session) -> mpc_core::Result<Rss<CpuEngine>> {
    Rss::new(session, CpuEngine::new(1))
}

/// What the parties' noise is together.
fn opened(deviation: f64, count: usize) -> Vec<i64> {
    let words = TestWorld::new(3).with_seed(7).run(party, move |mpc| {
        let noise = gaussian(mpc, &[Shape::new([count])?], deviation, FRAC)?;
        Ok(mpc.open(&[noise[0].share()])?[0].words().to_vec())
    });
    words[0].iter().map(|&word| word as i64).collect()
}

/// The part of the standard normal distribution below `z`, by its series.
fn below(z: f64) -> f64 {
    let z = z.clamp(-6.0, 6.0);
    let (mut term, mut sum) = (z, z);
    for n in 1..200 {
        term *= z * z / f64::from(2 * n + 1);
        sum += term;
    }
    0.5 + sum * (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The Kolmogorov-Smirnov statistic times the root of the number of draws; 1.95 is exceeded once in a thousand.
fn kolmogorov_smirnov(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let far = |(i, z): (usize, &f64)| {
        let [before, after] = [i as f64 / n, (i + 1) as f64 / n];
        (below(*z) - before).abs().max((below(*z) - after).abs())
    };
    values.iter().enumerate().map(far).fold(0.0, f64::max) * n.sqrt()
}

#[test]
fn a_million_draws_on_shares_are_gaussian_with_one_and_a_half_times_the_variance() {
    let deviation = 1.25;
    let unit = deviation * gaussian_variance(3).sqrt() * f64::from(FRAC).exp2();
    let standard: Vec<_> = opened(deviation, DRAWS).iter().map(|&w| w as f64 / unit).collect();
    let statistic = kolmogorov_smirnov(standard.clone());
    assert!(statistic < 1.95, "the statistic is {statistic}");
    // Noise of two parties alone has 0.82 of the deviation, and fails.
    let two = standard.iter().map(|z| z * (2.0f64 / 3.0).sqrt()).collect();
    assert!(kolmogorov_smirnov(two) > 20.0);
}

/// A right sampler fails once in a million times, and one of a scale that is wrong by a fiftieth always.
#[test]
fn a_million_integers_on_shares_are_those_of_their_distributions() {
    type Draw =
        fn(&mut Rss<CpuEngine>, &Shape, f64) -> mpc_core::Result<SecretTensor<Rss<CpuEngine>>>;
    type Weight = fn(i64, f64) -> f64;
    let laplace: Weight = |n, scale| (-(n as f64).abs() / scale).exp();
    let normal: Weight = |n, s| (-((n * n) as f64) / (2.0 * s * s)).exp();
    let kinds: [(Draw, f64, Weight); 3] = [
        (discrete_laplace, 3.5, laplace),
        (discrete_normal, 3.0, normal),
        // A sum of two.
        (discrete_normal, 20.0, normal),
    ];
    for (draw, scale, weight) in kinds {
        let words = TestWorld::new(3).with_seed(9).run(party, move |mpc| {
            let drawn = draw(mpc, &Shape::new([DRAWS])?, scale)?;
            Ok(mpc.open(&[drawn.share()])?[0].words().to_vec())
        });
        let values: Vec<_> = words[0].iter().map(|&word| word as i64).collect();
        let [statistic, limit] = chi_square(&values, 400, |n| weight(n, scale));
        assert!(statistic < limit, "{scale}: {statistic}, and the limit is {limit}");
        let [statistic, limit] = chi_square(&values, 400, |n| weight(n, scale * 1.02));
        assert!(statistic > limit, "{scale}: a wrong scale gives {statistic}");
    }
}

#[test]
fn the_sum_is_that_of_what_each_party_draws_alone() {
    let draws = TestWorld::new(3).with_seed(7).run(party, |mpc| {
        let own = 0.5f64.sqrt() * f64::from(FRAC).exp2();
        let mut normal = Normal::new(&mpc.private_stream()?, own)?;
        Ok((0..100).map(|_| normal.draw() as i64).collect::<Vec<_>>())
    });
    for (i, sum) in opened(1.0, 100).into_iter().enumerate() {
        let parts = [0, 1, 2].map(|party| draws[party][i]);
        assert_eq!(sum, parts.iter().sum(), "of {parts:?}");
        assert!(parts[0] != parts[1] && parts[1] != parts[2] && parts[2] != parts[0]);
    }
}

#[test]
fn noise_costs_an_input_by_each_party() {
    const N: usize = 24_576;
    let program = |mut session: Session| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        gaussian(&mut party(session)?, &[Shape::new([N])?], 1.0, FRAC)?;
        Ok(meter.stats())
    };
    let stats = TestWorld::new(3).try_sessions(program).into_iter();
    let stats: Vec<Stats> = stats.map(|stats| stats.unwrap()).collect();
    for party in &stats {
        assert_eq!(party.bytes_sent(), 8 * N as u64);
    }
    assert_eq!(net::Report::of(&stats).rounds, 3);
}

#[test]
fn truncation_of_any_word_stays_within_the_words_that_are_left() {
    const N: usize = 4096;
    for bits in [1, 20, 43] {
        let results = TestWorld::new(3).run(party, move |mpc| {
            let mut draw = SplitMix64::new(3);
            let ends = [1 << 63, (1 << 63) - 1, 1 << 62, 3 << 62, u64::MAX];
            let words = (0..N).map(|i| ends.get(i).copied().unwrap_or_else(|| draw.next_u64()));
            let words = [Tensor::vector(words.collect())];
            let mine = (mpc.me() == Party(0)).then_some(&words[..]);
            let x = mpc.input(Party(0), &[Shape::new([N])?], mine)?.remove(0);
            let y = mpc.truncate(&[(&x, bits)], TruncationMode::Default)?.remove(0);
            Ok(mpc.open(&[&y])?[0].words().to_vec())
        });
        let largest = results[0].iter().map(|&w| (w as i64).unsigned_abs()).max();
        let bound = 3 << (62 - bits);
        assert!(largest.is_some_and(|w| w <= bound + 1), "{largest:?} beyond {bound} at {bits}");
    }
}
