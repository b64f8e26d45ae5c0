//! Comparison with zero, largest elements, and calls that must be refused.

use ring_arith::Bilinear;

use super::{Make, agreed, data, expect, model::Plain, open, open_bits, share, share_bits};
use crate::{
    Compare, Compared, Finish, Largest, MOST_DROPPED, Product, Protocol, Term, TestWorld, Then,
    TruncationMode,
};

const WIDTHS: [u32; 7] = [2, 3, 20, 32, 44, 63, 64];

/// Every follow-up of a comparison, at every width, one by one and in one batch.
pub fn comparisons<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let samples: Vec<_> = WIDTHS
        .iter()
        .map(|&width| {
            let value = Plain::signed(&mut draw, &[3, 37], width - 1);
            (width, [value, Plain::any(&mut draw, &[3, 37]), Plain::any(&mut draw, &[3, 37])])
        })
        .collect();
    let where_ = |v: &Plain, x: &Plain, negative: bool| {
        v.zip(x, |v, x| if (v >> 63 == 1) == negative { x } else { 0 })
    };
    let (mut bits, mut words) = (Vec::new(), Vec::new());
    for (_, [v, x, y]) in &samples {
        let sign = v.map(|v| v >> 63);
        bits.extend([sign.clone(), sign.clone()]);
        words.push(sign.clone());
        words.extend([where_(v, v, false), where_(v, x, true), where_(v, y, true)]);
        words.extend([sign, where_(v, x, true), where_(v, y, true), where_(v, v, false)]);
    }
    bits.extend(bits.clone());
    words.extend(words.clone());
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut shares = Vec::new();
        for (_, tensors) in &samples {
            shares.push(share(mpc, tensors)?);
        }
        let (mut bits, mut words) = (Vec::new(), Vec::new());
        let mut sort = |answers: Vec<Compared<_, _>>| {
            for mut answer in answers {
                bits.extend(answer.bit.take());
                words.extend(answer.into_words());
            }
        };
        let lists: Vec<_> = shares.iter().map(|s| ([&s[0]], [&s[1], &s[2]])).collect();
        let mut jobs = Vec::new();
        for (i, (relu, pair)) in lists.iter().enumerate() {
            let (value, width) = (&shares[i][0], samples[i].0);
            let all = Then { bit: true, word: true, negative: pair, not_negative: relu };
            let thens =
                [Then::bit(), Then::word(), Then::not_negative(relu), Then::negative(pair), all];
            jobs.extend(thens.map(|then| Compare { value, width, then }));
        }
        sort(mpc.compare(&jobs)?);
        for job in jobs {
            sort(mpc.compare(&[job])?);
        }
        let bits = open_bits(mpc, &bits.iter().collect::<Vec<_>>())?;
        Ok((bits, open(mpc, &words.iter().collect::<Vec<_>>())?))
    });
    expect(world, "sign bit", &got.0, &bits);
    expect(world, "after a comparison", &got.1, &words);
}

/// Largest elements, their lowest positions and their gradients, of every small number, with equals.
pub fn maxima<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let small = [1, 2, 3, 4, 5, 7, 8, 9, 10, 27].map(|k| [k, 3, 4]);
    // Large enough for a protocol to cut them.
    let large = [[2, 3, 701], [5, 1, 1027]];
    let small = small.into_iter().flat_map(|dims| [(dims, 62), (dims, 30), (dims, 2)]);
    let samples: Vec<_> = small
        .chain(large.map(|dims| (dims, 9)))
        .map(|(dims, bits)| (Plain::signed(&mut draw, &dims, bits), bits + 2))
        .collect();
    let best = |x: &Plain| {
        let each = x.dims[1..].iter().product();
        let best = (0..each).map(|place| {
            let (mut at, mut top) = (0, x.words[place] as i64);
            for (i, &w) in x.words[place..].iter().step_by(each).enumerate() {
                if w as i64 > top {
                    (at, top) = (i, w as i64);
                }
            }
            (top as u64, at as u64)
        });
        let (top, at): (Vec<_>, Vec<_>) = best.unzip();
        [top, at].map(|words| Plain { dims: vec![1, x.dims[1], x.dims[2]], words })
    };
    let want: Vec<_> = samples
        .iter()
        .flat_map(|(x, _)| {
            let [top, at] = best(x);
            let each = top.words.len();
            let place = |i: usize| if at.words[i % each] == (i / each) as u64 { 77 } else { 0 };
            [top.clone(), top.clone(), at.clone(), top, Plain::from_fn(&x.dims, place)]
        })
        .collect();
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut results = Vec::new();
        for (x, width) in &samples {
            let one = Plain::from_fn(&[1, x.dims[1], x.dims[2]], |_| 77);
            let x = share(mpc, std::slice::from_ref(x))?.remove(0);
            let only = mpc.max_first(&x, *width, Largest::default())?;
            assert!(only.position.is_none(), "no position was asked for");
            assert!(only.choices.is_empty(), "no choices were asked for");
            let want = Largest { position: true, ..Largest::default() };
            let placed = mpc.max_first(&x, *width, want)?;
            let want = Largest { choices: true, ..Largest::default() };
            let found = mpc.max_first(&x, *width, want)?;
            let word = share(mpc, &[one])?.remove(0);
            let gradient = mpc.max_first_gradient(&word, &found.choices)?;
            let position = placed.position.expect("a position was asked for");
            results.extend([only.largest, placed.largest, position, found.largest, gradient]);
        }
        open(mpc, &results.iter().collect::<Vec<_>>())
    });
    expect(world, "largest element", &got, &want);
}

/// Operands that do not fit are refused, before anything is sent.
pub fn refusals<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let five = Plain::from_fn(&[5], |i| i as u64);
    let six = Plain::from_fn(&[6], |i| i as u64);
    let want = [five.clone(), six.clone()];
    let got = agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &[five.clone(), six.clone()])?;
        let bit = share_bits(mpc, &five, 1)?;
        let wide = share_bits(mpc, &five, 2)?;
        let (x, y) = (&s[0], &s[1]);
        let product = |op| Product::new(op, x, y, Finish::Raw);
        let mask = |mask| Finish::TruncateMask { bits: 20, mode: TruncationMode::Default, mask };
        let masked = |op, operand, bits| Product::new(op, operand, operand, mask(bits));
        let none = Product { terms: Vec::new(), ..product(Bilinear::Mul) };
        let five_and_six = Product {
            terms: [x, y].map(|x| Term { op: Bilinear::Mul, lhs: x, rhs: x }).into(),
            ..product(Bilinear::Mul)
        };
        let compare = |width, then| Compare { value: x, width, then };
        let others = [y];
        let truncation = |mpc: &mut P, bits| mpc.truncate(&[(x, bits)], TruncationMode::Default);
        let refused = [
            ("sum of two shapes", mpc.add(x, y).is_err()),
            ("difference of two shapes", mpc.sub(x, y).is_err()),
            ("bits of two widths", mpc.xor(&bit, &wide).is_err()),
            ("a plane that is not there", mpc.pick_planes(&bit, &[Some(1)]).is_err()),
            ("product of two shapes", mpc.products(&[product(Bilinear::Mul)]).is_err()),
            ("product of no terms", mpc.product(none).is_err()),
            ("terms of two shapes", mpc.product(five_and_six).is_err()),
            ("mask of two bits", mpc.product(masked(Bilinear::Mul, x, &wide)).is_err()),
            ("mask of another shape", mpc.product(masked(Bilinear::Mul, y, &bit)).is_err()),
            (
                "choices of no tournament",
                mpc.max_first_gradient(x, std::slice::from_ref(&bit)).is_err(),
            ),
            ("matrix product of vectors", mpc.products(&[product(Bilinear::MATMUL)]).is_err()),
            ("conjunction of two widths", mpc.and(&[(&bit, &wide)]).is_err()),
            ("selection by two bits", mpc.select(&[(&wide, &[x])]).is_err()),
            ("selection of another shape", mpc.select(&[(&bit, &[y])]).is_err()),
            ("comparison at width 0", mpc.compare(&[compare(0, Then::bit())]).is_err()),
            ("comparison at width 65", mpc.compare(&[compare(65, Then::bit())]).is_err()),
            (
                "comparison that selects another shape",
                mpc.compare(&[compare(64, Then::negative(&others))]).is_err(),
            ),
            ("dropping no bits", truncation(mpc, 0).is_err()),
            ("dropping too many bits", truncation(mpc, MOST_DROPPED + 1).is_err()),
            ("no bits", mpc.to_bits(&[(x, 0)]).is_err()),
            ("65 bits", mpc.to_bits(&[(x, 65)]).is_err()),
        ];
        for (what, refused) in refused {
            assert!(refused, "{what} must be refused");
        }
        // A refused call costs nothing: the session continues.
        open(mpc, &[x, y])
    });
    expect(world, "after refusals", &got, &want);
}
