//! Bilinear maps, truncation and the fused linear layer.

use ring_arith::{Bilinear, ConvSpec, View, Window};

use super::{Make, agreed, data, expect, model::Plain, open, share};
use crate::{
    Compare, Compared, Finish, MOST_DROPPED, Produced, Product, Protocol, TestWorld, Then,
    TruncationMode,
};

/// A map and its operands' dimensions.
type Case = (Bilinear, Vec<usize>, Vec<usize>);

/// Every kind of bilinear map, with borders, strides, groups and batches.
fn cases() -> Vec<Case> {
    let window = Window::new([3, 2], [2, 1]).padded([1, 0, 1, 1]);
    let conv = ConvSpec::new(window);
    let grouped = ConvSpec { groups: 2, ..ConvSpec::new(Window::new([2, 2], [1, 1])) };
    let dilated = ConvSpec::new(Window { dilation: [2, 2], ..Window::new([2, 2], [1, 1]) });
    let mm = |transpose_lhs, transpose_rhs| Bilinear::MatMul { transpose_lhs, transpose_rhs };
    let case = |op, x: &[usize], y: &[usize]| (op, x.to_vec(), y.to_vec());
    vec![
        case(Bilinear::Mul, &[], &[]),
        case(Bilinear::Mul, &[130], &[130]),
        case(Bilinear::Mul, &[3, 1, 7], &[3, 1, 7]),
        case(mm(false, false), &[5, 7], &[7, 4]),
        case(mm(true, false), &[7, 5], &[7, 4]),
        case(mm(false, true), &[2, 5, 7], &[4, 7]),
        case(mm(true, true), &[3, 7, 5], &[3, 4, 7]),
        case(mm(false, false), &[1, 9], &[2, 9, 1]),
        case(Bilinear::Conv(conv), &[2, 3, 7, 6], &[4, 3, 3, 2]),
        case(Bilinear::Conv(grouped), &[1, 4, 5, 5], &[6, 2, 2, 2]),
        case(Bilinear::Conv(dilated), &[1, 2, 5, 5], &[3, 2, 2, 2]),
        // Large enough for a protocol to cut them.
        case(Bilinear::Conv(conv), &[1, 2, 79, 16], &[8, 2, 3, 2]),
        case(Bilinear::Conv(ConvSpec { groups: 2, ..dilated }), &[1, 4, 40, 20], &[8, 2, 2, 2]),
        case(Bilinear::ConvInputGrad { spec: conv, input: [7, 6] }, &[2, 4, 4, 6], &[4, 3, 3, 2]),
        case(
            Bilinear::ConvInputGrad { spec: grouped, input: [5, 5] },
            &[1, 6, 4, 4],
            &[6, 2, 2, 2],
        ),
        case(Bilinear::ConvWeightGrad(conv), &[2, 3, 7, 6], &[2, 4, 4, 6]),
        case(Bilinear::ConvWeightGrad(grouped), &[1, 4, 5, 5], &[1, 6, 4, 4]),
    ]
}

/// Products of shares without truncation, alone and in one batch.
pub fn raw_products<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let cases: Vec<(Bilinear, Plain, Plain)> = cases()
        .into_iter()
        .map(|(op, x, y)| (op, Plain::any(&mut draw, &x), Plain::any(&mut draw, &y)))
        .collect();
    let mut want: Vec<_> = cases.iter().map(|(op, x, y)| Plain::bilinear(op, x, y)).collect();
    want.extend(want.clone());
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut pairs = Vec::new();
        for (_, x, y) in &cases {
            pairs.push(share(mpc, &[x.clone(), y.clone()])?);
        }
        let job = |i: usize| raw(&cases[i].0, &pairs[i][0], &pairs[i][1]);
        let jobs: Vec<_> = (0..cases.len()).map(job).collect();
        let mut results = mpc.products(&jobs)?;
        for job in jobs {
            results.push(mpc.product(job)?);
        }
        open(mpc, &shares(&results))
    });
    expect(world, "product", &got, &want);
}

fn raw<'a, S, B>(op: &Bilinear, lhs: &'a S, rhs: &'a S) -> Product<'a, S, B> {
    Product::new(op.clone(), lhs, rhs, Finish::Raw)
}

/// The results of products.
pub(super) fn shares<S, B>(results: &[Produced<S, B>]) -> Vec<&S> {
    results.iter().map(|result| &result.share).collect()
}

/// Summands, shifted and broadcast, before truncation and ReLU.
pub fn product_summands<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let x = Plain::signed(&mut draw, &[6, 11], 24);
    let y = Plain::signed(&mut draw, &[11, 9], 24);
    let residual = Plain::signed(&mut draw, &[6, 9], 36);
    let bias = Plain::signed(&mut draw, &[1, 9], 36);
    let z = Plain::bilinear(&Bilinear::MATMUL, &x, &y);
    let shifted = |t: &Plain, by: u32| {
        let wide = t.view(&View::Broadcast(z.shape()));
        z.zip(&wide, |a, b| a.wrapping_add(b << by))
    };
    let both = shifted(&residual, 8).zip(&shifted(&bias, 20), u64::wrapping_add);
    let both = both.zip(&z, u64::wrapping_sub);
    let sums = [shifted(&residual, 0), shifted(&residual, 20), shifted(&bias, 20), both];
    let got = agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &[x.clone(), y.clone(), residual.clone(), bias.clone()])?;
        let mut results = Vec::new();
        let truncate = Finish::Truncate { bits: 20, mode: TruncationMode::Default };
        for finish in [Finish::Raw, truncate, relu(20)] {
            let job = |summands| Product {
                summands,
                ..Product::new(Bilinear::MATMUL, &s[0], &s[1], finish)
            };
            let (residual, bias) = (&s[2], &s[3]);
            let jobs = [
                vec![(residual, 0)],
                vec![(residual, 20)],
                vec![(bias, 20)],
                vec![(residual, 8), (bias, 20)],
            ];
            results.extend(mpc.products(&jobs.map(job))?);
        }
        open(mpc, &shares(&results))
    });
    expect(world, "product with summands", &got[..4], &sums);
    for (i, sum) in sums.iter().enumerate() {
        near(world, "summands, truncated", &got[4 + i], sum, 20, TruncationMode::Default);
        near_relu(world, &got[8 + i], sum, 20);
    }
}

/// Checks that `y` is `z / 2^bits` as the mode promises.
#[track_caller]
pub(super) fn near(
    world: &TestWorld,
    what: &str,
    y: &Plain,
    z: &Plain,
    bits: u32,
    mode: TruncationMode,
) {
    assert_eq!(y.dims, z.dims, "{what}: shape; {}", world.replay());
    for (i, (&y, &z)) in y.words.iter().zip(&z.words).enumerate() {
        let (y, z) = (y as i64, z as i64);
        let floor = z >> bits;
        let error = (i128::from(y) << bits) - i128::from(z);
        let unit = 1i128 << bits;
        let good = match mode {
            TruncationMode::Exact => y == floor,
            TruncationMode::Default | TruncationMode::Dither => error.abs() < unit,
            TruncationMode::Early => 2 * error.abs() <= 3 * unit,
            TruncationMode::Aby3Local => error.abs() < 2 * unit,
        };
        let replay = world.replay();
        assert!(good, "{what}, {mode:?}: {z} / 2^{bits} at {i} became {y}; {replay}");
    }
}

/// Checks that `y` is `max(0, z / 2^bits)` within 1.5 units.
#[track_caller]
fn near_relu(world: &TestWorld, y: &Plain, z: &Plain, bits: u32) {
    assert!(y.words.iter().all(|&w| (w as i64) >= 0), "ReLU is negative; {}", world.replay());
    let positive = z.map(|w| (w as i64).max(0) as u64);
    near(world, "truncated ReLU", y, &positive, bits, TruncationMode::Early);
}

pub(super) const MODES: [TruncationMode; 4] =
    [TruncationMode::Default, TruncationMode::Early, TruncationMode::Exact, TruncationMode::Dither];

/// The mode, or where the protocol has none such the exact one, whose results every mode allows.
pub(super) fn offered<P: Protocol>(mpc: &P, mode: TruncationMode) -> TruncationMode {
    if mpc.info().modes.contains(&mode) { mode } else { TruncationMode::Exact }
}

/// Products with truncation in every mode, several drops, small and near the limit.
pub fn truncated_products<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let drops = [1, 13, 20, 33, 40, 41, 44, 56, MOST_DROPPED];
    // 2^30 * 2^31: close to the limit of 2^62.
    let x = Plain::signed(&mut draw, &[300], 30);
    let y = Plain::signed(&mut draw, &[300], 31);
    let a = Plain::signed(&mut draw, &[3, 17, 40], 22);
    let b = Plain::signed(&mut draw, &[40, 5], 24);
    let want =
        [Plain::bilinear(&Bilinear::Mul, &x, &y), Plain::bilinear(&Bilinear::MATMUL, &a, &b)];
    let got = agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &[x.clone(), y.clone(), a.clone(), b.clone()])?;
        let mut results = Vec::new();
        for mode in MODES.map(|mode| offered(mpc, mode)) {
            for bits in drops {
                let finish = Finish::Truncate { bits, mode };
                let mul = Product { finish, ..raw(&Bilinear::Mul, &s[0], &s[1]) };
                let matmul = Product { finish, ..raw(&Bilinear::MATMUL, &s[2], &s[3]) };
                results.extend(mpc.products(&[mul, matmul])?);
            }
        }
        open(mpc, &shares(&results))
    });
    let mut got = got.chunks_exact(2);
    for mode in MODES {
        for bits in drops {
            let pair = got.next().expect("one pair for each mode and drop");
            for (y, z) in pair.iter().zip(&want) {
                near(world, "truncated product", y, z, bits, mode);
            }
        }
    }
}

/// Truncation alone: bounds, exactness on multiples, no bias; the local mode on small words.
pub fn truncations<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    const N: usize = 20_000;
    let mut draw = data(world);
    let mut wide = Plain::signed(&mut draw, &[500], 61);
    // As large as a word may be in every mode.
    let largest = (1u64 << 62) - (1 << 21);
    (0..64).for_each(|i| wide.words[i] = if i % 2 == 0 { largest } else { largest.wrapping_neg() });
    let small = Plain::signed(&mut draw, &[70], 30);
    let multiples = Plain::signed(&mut draw, &[129], 35).map(|w| w << 20);
    // 2.3125 units.
    let constant = Plain::from_fn(&[N], |_| (2 << 20) + (5 << 16));
    let inputs = [wide, small, multiples, constant];
    let want = inputs.clone();
    let got = agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &inputs)?;
        let jobs: Vec<_> = s.iter().map(|x| (x, 20)).collect();
        let mut results = Vec::new();
        for mode in MODES.map(|mode| offered(mpc, mode)) {
            results.extend(mpc.truncate(&jobs, mode)?);
        }
        let local = offered(mpc, TruncationMode::Aby3Local);
        results.extend(mpc.truncate(&[(&s[1], 20), (&s[0], 1)], local)?);
        open(mpc, &results.iter().collect::<Vec<_>>())
    });
    for (mode, got) in MODES.iter().zip(got.chunks(4)) {
        for (y, z) in got.iter().zip(&want) {
            near(world, "truncation", y, z, 20, *mode);
        }
        if *mode != TruncationMode::Early {
            let exact = want[2].map(|w| ((w as i64) >> 20) as u64);
            expect(world, "truncation of multiples", &got[2..3], &[exact]);
        }
        if matches!(mode, TruncationMode::Default | TruncationMode::Dither) {
            not_far_from_mean(world, &got[3], 2.3125);
        }
    }
    let aby3 = &got[4 * MODES.len()];
    near(world, "local truncation", aby3, &want[1], 20, TruncationMode::Aby3Local);
}

/// The plaintext reference may always round down, which is within its promise. Random rounding must
/// not be biased upwards, nor downwards unless it is always the floor.
fn not_far_from_mean(world: &TestWorld, y: &Plain, mean: f64) {
    let first = y.words[0];
    if y.words.iter().all(|&w| w == first) {
        return;
    }
    let n = y.words.len() as f64;
    let got = y.words.iter().map(|&w| w as i64 as f64).sum::<f64>() / n;
    let deviation = 5.0 * 0.5 / n.sqrt();
    let replay = world.replay();
    assert!((got - mean).abs() < deviation, "mean {got} instead of {mean}; {replay}");
}

/// The linear layer with its ReLU in one.
pub fn fused_relu<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let x = Plain::signed(&mut draw, &[257], 30);
    let y = Plain::signed(&mut draw, &[257], 31);
    let image = Plain::signed(&mut draw, &[2, 3, 7, 6], 20);
    let kernel = Plain::signed(&mut draw, &[4, 3, 3, 2], 24);
    let conv = Bilinear::Conv(ConvSpec::new(Window::new([3, 2], [2, 1])));
    let want = [Plain::bilinear(&Bilinear::Mul, &x, &y), Plain::bilinear(&conv, &image, &kernel)];
    let drops = [1, 20, 40, 56, MOST_DROPPED];
    let got = agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &[x.clone(), y.clone(), image.clone(), kernel.clone()])?;
        let mut results = Vec::new();
        for bits in drops {
            let finish = relu(bits);
            let mul = Product { finish, ..raw(&Bilinear::Mul, &s[0], &s[1]) };
            let conv = Product { finish, ..raw(&conv, &s[2], &s[3]) };
            results.extend(mpc.products(&[mul, conv])?);
        }
        open(mpc, &shares(&results))
    });
    for (bits, got) in drops.iter().zip(got.chunks(2)) {
        for (y, z) in got.iter().zip(&want) {
            near_relu(world, y, z, *bits);
        }
    }
}

fn relu<B>(bits: u32) -> Finish<'static, B> {
    Finish::TruncateRelu { bits, mode: TruncationMode::Early, keep: false }
}

/// Tensors large enough to be cut into parts, of a prime length.
pub fn large_tensors<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    const N: usize = 100_003;
    let mut draw = data(world);
    let x = Plain::signed(&mut draw, &[N], 30);
    let y = Plain::signed(&mut draw, &[N], 31);
    let rows = Plain::signed(&mut draw, &[401, 19], 25);
    let square = Plain::signed(&mut draw, &[19, 211], 25);
    let products = [
        Plain::bilinear(&Bilinear::Mul, &x, &y),
        Plain::bilinear(&Bilinear::MATMUL, &rows, &square),
    ];
    let relu = x.map(|w| (w as i64).max(0) as u64);
    let sign = y.map(|w| w >> 63);
    let got = agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &[x.clone(), y.clone(), rows.clone(), square.clone()])?;
        let finish = Finish::Truncate { bits: 20, mode: TruncationMode::Default };
        let products = mpc.products(&[
            Product { finish, ..raw(&Bilinear::Mul, &s[0], &s[1]) },
            Product { finish, ..raw(&Bilinear::MATMUL, &s[2], &s[3]) },
        ])?;
        let relu = [&s[0]];
        let jobs = [
            Compare { value: &s[0], width: 31, then: Then::not_negative(&relu) },
            Compare { value: &s[1], width: 64, then: Then::word() },
        ];
        let mut results: Vec<_> = products.into_iter().map(|product| product.share).collect();
        results.extend(mpc.compare(&jobs)?.into_iter().flat_map(Compared::into_words));
        open(mpc, &results.iter().collect::<Vec<_>>())
    });
    for (y, z) in got.iter().zip(&products) {
        near(world, "large product", y, z, 20, TruncationMode::Default);
    }
    expect(world, "large comparison", &got[2..], &[relu, sign]);
}
