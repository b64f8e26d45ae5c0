//! Tight inputs: words as large as their width allows, so that a width a bit too narrow anywhere gives a wrong number.

use net::Party;
use ring_arith::{Bilinear, ConvSpec, Engine, FracBits, Shape, Tensor, Window};

use super::{Make, agreed};
use crate::{
    Format, Profile, Protocol, Result, SecretTensor, TestWorld,
    functions::{self as f, Multiply},
};

/// Numbers in a row.
const COLUMNS: usize = 6;

/// Fraction bits.
const FRAC: u32 = 2;

/// A function of rows of six, and the exact value of each row; an error of `units` is allowed.
struct Case<P: Protocol> {
    name: &'static str,
    function: Function<P>,
    exact: fn(&[f64]) -> Vec<f64>,
    units: f64,
}

fn each<P: Protocol>(
    name: &'static str,
    function: fn(&mut P, &SecretTensor<P>) -> Result<SecretTensor<P>>,
    exact: fn(&[f64]) -> Vec<f64>,
    units: f64,
) -> Case<P> {
    Case { name, function, exact, units }
}

fn map(row: &[f64], of: impl Fn(f64) -> f64) -> Vec<f64> {
    row.iter().map(|&x| of(x)).collect()
}

fn largest(row: &[f64]) -> f64 {
    row.iter().copied().fold(f64::MIN, f64::max)
}

/// Functions whose results have a width made of the operand's, whatever that is.
fn linear<P: Protocol>() -> Vec<Case<P>> {
    vec![
        each("itself", |_, x| Ok(x.clone()), <[f64]>::to_vec, 0.0),
        each("sum", |mpc, x| f::add(mpc, x, x), |r| map(r, |x| 2.0 * x), 0.0),
        each(
            "difference",
            |mpc, x| {
                let minus = f::neg(mpc, x)?;
                f::sub(mpc, x, &minus)
            },
            |r| map(r, |x| 2.0 * x),
            0.0,
        ),
        each("a number more", |mpc, x| f::add_scalar(mpc, x, 1.75), |r| map(r, |x| x + 1.75), 0.0),
        each("a third", |mpc, x| f::mul_scalar(mpc, x, 1.0 / 3.0), |r| map(r, |x| x / 3.0), 2.0),
        each("three times", |mpc, x| f::mul_scalar(mpc, x, 3.0), |r| map(r, |x| x * 3.0), 0.0),
        each("finer", |mpc, x| f::rescale(mpc, x, FRAC + 3), <[f64]>::to_vec, 0.0),
        each(
            "coarser",
            |mpc, x| {
                let y = f::rescale(mpc, x, FRAC - 1)?;
                f::rescale(mpc, &y, FRAC)
            },
            <[f64]>::to_vec,
            2.0,
        ),
        each("row's sum", |mpc, x| f::sum(mpc, x, &[1]), |r| vec![r.iter().sum()], 0.0),
        each(
            "row's mean",
            |mpc, x| f::mean(mpc, x, &[1]),
            |r| vec![r.iter().sum::<f64>() / COLUMNS as f64],
            2.0,
        ),
        each(
            "windows' sums",
            |mpc, x| {
                let rows = x.shape().dims()[0];
                let images = f::reshape(mpc, x, &Shape::new([rows, 2, 3])?)?;
                let sums = f::window_sum(mpc, &images, Window::new([2, 3], [1, 1]))?;
                f::reshape(mpc, &sums, &Shape::new([rows, 1])?)
            },
            |r| vec![r.iter().sum()],
            0.0,
        ),
        each("magnitude", f::abs, |r| map(r, f64::abs), 0.0),
        each("positive part", f::relu, |r| map(r, |x| x.max(0.0)), 0.0),
        each(
            "clamped",
            |mpc, x| f::clamp(mpc, x, Some(-1.25), Some(1.5)),
            |r| map(r, |x| x.clamp(-1.25, 1.5)),
            0.0,
        ),
        each("largest", |mpc, x| f::max(mpc, x, 1), |r| vec![largest(r)], 0.0),
        each("smallest", |mpc, x| f::min(mpc, x, 1), |r| vec![-largest(&map(r, |x| -x))], 0.0),
        each(
            "sorted",
            |mpc, x| f::sort(mpc, x, 1),
            |r| {
                let mut r = r.to_vec();
                r.sort_by(f64::total_cmp);
                r
            },
            0.0,
        ),
        each(
            "largest three",
            |mpc, x| Ok(f::top_k(mpc, x, 3, 1)?.0),
            |r| {
                let mut r = r.to_vec();
                r.sort_by(|a, b| b.total_cmp(a));
                r.truncate(3);
                r
            },
            0.0,
        ),
        each(
            "largest in a border",
            |mpc, x| {
                let rows = x.shape().dims()[0];
                let images = f::reshape(mpc, x, &Shape::new([rows, 2, 3])?)?;
                let window = Window::new([2, 3], [2, 3]).padded([1, 2, 1, 1]);
                let pooled = f::max_pool(mpc, &images, window)?;
                f::reshape(mpc, &pooled, &Shape::new([rows, 4])?)
            },
            |r| vec![r[0], r[1].max(r[2]), r[3], r[4].max(r[5])],
            0.0,
        ),
        each(
            "less than the next row's",
            |mpc, x| {
                let minus = f::neg(mpc, x)?;
                f::lt(mpc, x, &minus)
            },
            |r| map(r, |x| f64::from(u8::from(x < -x))),
            0.0,
        ),
        each(
            "chosen",
            |mpc, x| {
                let minus = f::neg(mpc, x)?;
                let bit = f::lt(mpc, &minus, x)?;
                f::select(mpc, &bit, x, &minus)
            },
            |r| map(r, f64::abs),
            0.0,
        ),
    ]
}

/// Products, for operands whose product fits.
fn products<P: Protocol>() -> Vec<Case<P>> {
    /// Rows of six times the same rows.
    fn inner<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
        let rows = x.shape().dims()[0];
        let shape = Shape::new([rows, 1, COLUMNS])?;
        let left = f::reshape(mpc, x, &shape)?;
        let right = f::reshape(mpc, x, &Shape::new([rows, COLUMNS, 1])?)?;
        let product = f::matmul(mpc, &left, &right)?;
        f::reshape(mpc, &product, &Shape::new([rows, 1])?)
    }
    vec![
        each("square", f::square, |r| map(r, |x| x * x), 1.0),
        each(
            "square and itself, positive part",
            |mpc, x| {
                let minus = f::neg(mpc, x)?;
                let job = Multiply::new(Bilinear::Mul, &minus, x).plus(&minus).relu();
                Ok(f::multiply(mpc, &[job])?.remove(0))
            },
            |r| map(r, |x| (-x * x - x).max(0.0)),
            1.5,
        ),
        each(
            "products of integers and as large a summand",
            |mpc, x| {
                let integers = SecretTensor::new(x.share().clone(), Format::integer(x.width()));
                let summand = f::mul_scalar(mpc, x, 2f64.powi(x.width() as i32 - 1))?;
                let summand = summand.with_width(2 * x.width() - 1);
                let job = Multiply::new(Bilinear::Mul, x, &integers).plus(&summand);
                Ok(f::multiply(mpc, &[job])?.remove(0))
            },
            |_| Vec::new(),
            0.0,
        ),
        each("inner product", inner, |r| vec![r.iter().map(|x| x * x).sum()], 1.0),
        each(
            "convolution",
            |mpc, x| {
                let rows = x.shape().dims()[0];
                let images = f::reshape(mpc, x, &Shape::new([rows, 1, 2, 3])?)?;
                let kernel = f::slice(mpc, &images, 0, 0, 1, 1)?;
                let op = Bilinear::Conv(ConvSpec::new(Window::new([2, 3], [1, 1])));
                let product = f::bilinear(mpc, op, &images, &kernel)?;
                f::reshape(mpc, &product, &Shape::new([rows, 1])?)
            },
            |_| Vec::new(),
            1.0,
        ),
    ]
}

/// Words at the ends of each width, in rows that are all of one sign, of both, and near 0.
fn rows(width: u32) -> Vec<Vec<f64>> {
    // The largest number that f64 separates from one that is too large.
    let end = (1u64 << (width - 1)) - (1 << width.saturating_sub(53));
    let end = end as f64 / f64::from(1 << FRAC);
    let unit = 1.0 / f64::from(1 << FRAC);
    vec![
        vec![end; COLUMNS],
        vec![-end; COLUMNS],
        vec![end, -end, end, -end, -end, end],
        vec![-end, 0.0, unit, -unit, 0.0, end],
    ]
}

/// Every function that derives a width from its operands', on words at the ends of those widths. Results are right,
/// lie within their stated width, and a comparison at that width is right too.
pub fn tight_widths<P: Protocol>(world: &TestWorld, make: impl Make<P> + Clone) {
    for width in [2, 9, 20, 58] {
        run(world, make.clone(), width, linear());
        if width <= 20 {
            run(world, make.clone(), width, products());
        }
    }
    quotients(world, make.clone());
    bounds(world, make);
}

/// Functions that search the highest bit of their operand, and those whose results have a fixed width, where they are
/// largest. Results are right and lie within their stated width.
pub fn widest_results<P: Protocol>(world: &TestWorld, make: impl Make<P> + Clone) {
    widest(world, make, Profile::Bytes);
}

/// As [`widest_results`], by the forms for slow links.
pub fn widest_results_for_slow_links<P: Protocol>(world: &TestWorld, make: impl Make<P> + Clone) {
    widest(world, make, Profile::SlowLinks);
}

fn widest<P: Protocol>(world: &TestWorld, make: impl Make<P> + Clone, profile: Profile) {
    normalised(world, make.clone(), profile);
    results(world, make, profile);
}

/// A function of a tensor.
type Function<P> = fn(&mut P, &SecretTensor<P>) -> Result<SecretTensor<P>>;

/// A function by name, and its exact value.
type Named<P> = (&'static str, Function<P>, fn(f64) -> f64);

/// The functions that search the highest bit of their operand, on the largest words of a width.
fn normalised<P: Protocol>(world: &TestWorld, make: impl Make<P>, profile: Profile) {
    const WIDTHS: [u32; 3] = [12, 30, 41];
    fn signed<P: Protocol>() -> [Named<P>; 1] {
        [("reciprocal", f::reciprocal, |x| 1.0 / x)]
    }
    fn positive<P: Protocol>() -> [Named<P>; 4] {
        [
            ("reciprocal_positive", f::reciprocal_positive, |x| 1.0 / x),
            ("sqrt", f::sqrt, f64::sqrt),
            ("inv_sqrt", f::inv_sqrt, |x| 1.0 / x.sqrt()),
            ("log", f::log, f64::ln),
        ]
    }
    let unit = 2f64.powi(-20);
    let ends = move |width: u32| {
        let end = |bits: u32| ((1u64 << bits) - 1) as f64 * unit;
        let [full, half] = [end(width - 1), end(width - 2)];
        [full, -full, half, -half]
    };
    let got = agreed(world, make, move |mpc: &mut P| {
        mpc.set_profile(profile);
        let mut all = Vec::new();
        for width in WIDTHS {
            let mut share = |values: &[f64]| -> Result<_> {
                let mine = (mpc.me() == Party(0)).then_some(values);
                let shape = Shape::new([values.len()])?;
                Ok(f::input(mpc, Party(0), &shape, mine, FracBits::DEFAULT)?.with_width(width))
            };
            let [a, b, c, d] = ends(width);
            let (both, above) = (share(&[a, b, c, d])?, share(&[a, c])?);
            let jobs = signed().map(|job| (job, &both)).into_iter();
            for ((_, function, _), x) in jobs.chain(positive().map(|job| (job, &above))) {
                let y = function(mpc, x)?;
                all.push(f::reveal(mpc, &y)?);
            }
        }
        Ok(all)
    });
    let exact = |width| {
        let [a, b, c, d] = ends(width);
        let jobs = signed::<P>().map(|job| (job, vec![a, b, c, d])).into_iter();
        jobs.chain(positive::<P>().map(|job| (job, vec![a, c]))).collect::<Vec<_>>()
    };
    for (((name, _, exact), xs), ys) in WIDTHS.into_iter().flat_map(exact).zip(got) {
        for (x, y) in xs.into_iter().zip(ys) {
            let (want, replay) = (exact(x), world.replay());
            let near = 2f64.powi(-17) * want.abs() + 4.0 * unit;
            assert!((y - want).abs() < near, "{name} of {x} is {y}, not {want}; {replay}");
        }
    }
}

/// The largest results of functions: they lie within their stated width, and a comparison at that width is
/// right.
fn results<P: Protocol>(world: &TestWorld, make: impl Make<P>, profile: Profile) {
    fn functions<P: Protocol>() -> Vec<(&'static str, Function<P>)> {
        vec![
            ("exp", f::exp),
            ("exp_nonpositive", |mpc, x| {
                let size = f::abs(mpc, x)?;
                let below = f::neg(mpc, &size)?;
                f::exp_nonpositive(mpc, &below)
            }),
            ("sigmoid", f::sigmoid),
            ("tanh", f::tanh),
            ("silu", f::silu),
            ("gelu", f::gelu),
            ("erf", f::erf),
            ("sin", f::sin),
            ("cos", f::cos),
            ("reciprocal", f::reciprocal),
            ("log of a square", |mpc, x| {
                let square = f::square(mpc, x)?;
                f::log(mpc, &square)
            }),
            ("softmax", |mpc, x| f::softmax(mpc, x, 0)),
            ("log_softmax", |mpc, x| f::log_softmax(mpc, x, 0)),
            ("var", |mpc, x| f::var(mpc, x, &[0])),
            ("norm", |mpc, x| f::norm(mpc, x, &[0])),
            ("normalize", |mpc, x| f::normalize(mpc, x, 0, 1e-5)),
        ]
    }
    const VALUES: [f64; 9] = [1000.0, -1000.0, 30.0, 11.2, 1.0, 0.000_002, -0.000_002, -1.0, -29.5];
    let got = agreed(world, make, move |mpc: &mut P| {
        mpc.set_profile(profile);
        let mine = (mpc.me() == Party(0)).then_some(&VALUES[..]);
        let x = f::input(mpc, Party(0), &Shape::new([9])?, mine, FracBits::DEFAULT)?;
        let mut all = Vec::new();
        for (name, function) in functions() {
            let y = function(mpc, &x)?;
            let positive = f::relu(mpc, &y)?;
            all.push((name, f::reveal_all(mpc, &[&y, &positive])?, y.width(), y.frac()));
        }
        Ok(all)
    });
    for (name, opened, width, frac) in got {
        let limit = 2f64.powi(width as i32 - 1 - frac as i32);
        for (y, positive) in opened[0].iter().zip(&opened[1]) {
            let replay = world.replay();
            assert!(
                y.abs() < limit,
                "{name} gives {y}, which has more than width {width}; {replay}"
            );
            assert_eq!(*positive, y.max(0.0), "the positive part of {name}; {replay}");
        }
    }
}

fn run<P: Protocol>(world: &TestWorld, make: impl Make<P>, width: u32, cases: Vec<Case<P>>) {
    let rows = rows(width);
    let input = rows.concat();
    let checks: Vec<_> = cases.iter().map(|case| (case.name, case.exact, case.units)).collect();
    let count = rows.len();
    let results = agreed(world, make, move |mpc: &mut P| {
        let mine = (mpc.me() == Party(0)).then_some(&input[..]);
        let shape = Shape::new([count, COLUMNS])?;
        let x = f::input(mpc, Party(0), &shape, mine, FracBits::new(FRAC)?)?.with_width(width);
        let mut results = Vec::with_capacity(cases.len());
        for case in &cases {
            let y = (case.function)(mpc, &x)?;
            let positive = f::relu(mpc, &y)?;
            let opened = f::reveal_all(mpc, &[&y, &positive])?;
            results.push((opened, y.width(), y.frac()));
        }
        Ok(results)
    });
    let unit = 1.0 / f64::from(1 << FRAC);
    for ((name, exact, units), (opened, said, frac)) in checks.into_iter().zip(results) {
        let replay = world.replay();
        let limit = 2f64.powi(said as i32 - 1 - frac as i32);
        let wanted: Vec<_> = rows.iter().flat_map(|row| exact(row)).collect();
        for (i, (y, positive)) in opened[0].iter().zip(&opened[1]).enumerate() {
            assert!(
                y.abs() < limit,
                "{name} at width {width}: {y} has more than width {said}; {replay}"
            );
            assert_eq!(
                *positive,
                y.max(0.0),
                "{name} at width {width}: its positive part; {replay}"
            );
            let relative = if units > 0.0 { 2f64.powi(-19) } else { 2f64.powi(-50) };
            let near = units * unit + relative * y.abs();
            if let Some(want) = wanted.get(i) {
                assert!(
                    (y - want).abs() <= near,
                    "{name} at width {width}: {y}, not {want}; {replay}"
                );
            }
        }
    }
}

/// Quotients of the largest numerators, whose width is known.
fn quotients<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let numerators = [4_194_303.75, -4_194_303.75, 3_500_000.0, 2_097_152.5];
    let divisors = [2.5, 1000.0, -3.0, 1_000_000.0];
    let got = agreed(world, make, move |mpc: &mut P| {
        let shape = Shape::new([4])?;
        let mut share = |values: &[f64]| {
            let mine = (mpc.me() == Party(0)).then_some(values);
            f::input(mpc, Party(0), &shape, mine, FracBits::DEFAULT)
        };
        let (x, y) = (share(&numerators)?, share(&divisors)?);
        let narrow = x.clone().with_width(43);
        let quotients = [f::div(mpc, &x, &y)?, f::div(mpc, &narrow, &y)?];
        f::reveal_all(mpc, &[&quotients[0], &quotients[1]])
    });
    for quotients in got {
        for ((x, y), q) in numerators.iter().zip(divisors).zip(quotients) {
            let unit = 2f64.powi(-20);
            let bound = 2f64.powi(-17) * (x / y).abs() + unit * (1.0 + 2.0 / y.abs());
            assert!((q - x / y).abs() < bound, "{x} / {y} is {q}; {}", world.replay());
        }
    }
}

/// Numbers at a bound that the caller states.
fn bounds<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    const BOUNDS: [f64; 6] = [1.0, 3.0, 4.0, 3.999_999, 1000.0, 0.5];
    let got = agreed(world, make, |mpc: &mut P| {
        let mut results = Vec::new();
        for bound in BOUNDS {
            let values = [bound, -bound];
            let words = values.map(|x| (x * 1_048_576.0).round() as i64 as u64);
            let words = Tensor::vector(words.to_vec());
            let words = mpc.engine().upload(words)?;
            let x = SecretTensor::new(mpc.constant(&words)?, Format { frac: 20, width: 63 })
                .with_bound(bound);
            let signs = f::is_negative(mpc, &x)?;
            results.push((f::reveal(mpc, &signs)?, x.width()));
        }
        Ok(results)
    });
    for ((signs, width), bound) in got.into_iter().zip(BOUNDS) {
        assert_eq!(signs, [0.0, 1.0], "{bound} at width {width}; {}", world.replay());
    }
}
