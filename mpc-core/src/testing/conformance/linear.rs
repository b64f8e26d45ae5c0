//! Inputs, openings and everything that is local.

use std::sync::Arc;

use net::Party;
use ring_arith::{Bilinear, ConvSpec, View, Window};

use super::{Make, agreed, data, download, expect, model::Plain, open, shapes, share, upload};
use crate::{Linear, Protocol, ShareTensor, TestWorld};

/// Every party's inputs reach all; constants too; opening to one party shows it to that one only.
pub fn inputs_and_openings<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let tensors: Vec<_> = shapes().iter().map(|s| Plain::any(&mut draw, s)).collect();
    let want = tensors.clone();
    let parties = world.parties();
    let outcomes = world.run(make, move |mpc| {
        let mut all = Vec::new();
        let shapes: Vec<_> = tensors.iter().map(Plain::shape).collect();
        for owner in (0..parties).map(Party) {
            let words = tensors.iter().map(|t| upload(mpc, t)).collect::<Result<Vec<_>, _>>()?;
            let mine = (mpc.me() == owner).then_some(&words[..]);
            let shares = mpc.input(owner, &shapes, mine)?;
            assert!(shares.iter().zip(&tensors).all(|(s, t)| s.shape().dims() == t.dims));
            all.extend(open(mpc, &shares.iter().collect::<Vec<_>>())?);
        }
        let constant = mpc.constant(&upload(mpc, &tensors[6])?)?;
        all.extend(open(mpc, &[&constant])?);
        let secret = share(mpc, &tensors[4..6])?;
        let mut to_one = Vec::new();
        for to in (0..parties).map(Party) {
            let seen = mpc.open_to(to, &[&secret[0], &secret[1]])?;
            assert_eq!(seen.is_some(), mpc.me() == to, "only {to} is shown anything");
            for words in seen.into_iter().flatten() {
                to_one.push(download(mpc, &words)?);
            }
        }
        Ok((all, to_one))
    });
    for (all, to_one) in outcomes {
        let mut expected: Vec<_> = (0..parties).flat_map(|_| want.clone()).collect();
        expected.push(want[6].clone());
        expect(world, "open", &all, &expected);
        expect(world, "open to one", &to_one, &want[4..6]);
    }
}

/// Every linear map of every shape.
pub fn linear_maps<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let tensors: Vec<_> = shapes().iter().map(|s| Plain::any(&mut draw, s)).collect();
    let image = Plain::any(&mut draw, &[2, 3, 7, 6]);
    let weight = Plain::any(&mut draw, &[4, 3, 3, 2]);
    let matrix = Plain::any(&mut draw, &[6, 5]);
    let window = Window::new([3, 2], [2, 1]).padded([1, 0, 1, 1]);
    let conv = Bilinear::Conv(ConvSpec::new(window));
    let matmul = Bilinear::MATMUL;
    let right = Bilinear::MatMul { transpose_lhs: true, transpose_rhs: true };
    let shape = |dims: &[usize]| Plain::from_fn(dims, |_| 0).shape();
    let views = [
        View::Reshape(shape(&[6, 42])),
        View::Permute(vec![2, 0, 3, 1]),
        View::Slice { axis: 2, start: 1, end: 7, step: 2 },
        View::Slice { axis: 0, start: 1, end: 2, step: 1 },
        View::Gather { axis: 1, indices: Arc::from([2, 0, 2, 1]) },
        View::Pad { before: vec![0, 1, 2, 0], after: vec![1, 0, 0, 3], value: 77 },
        View::Broadcast(shape(&[2, 2, 3, 7, 6])),
        View::Windows(window),
        View::Windows(Window { dilation: [2, 1], ..window }),
    ];
    let mut want = Vec::new();
    for t in &tensors {
        want.push(t.map(u64::wrapping_neg));
        want.push(t.map(|w| w.wrapping_mul(0xdead_beef_1234_5677)));
        want.push(t.map(|w| w.wrapping_add(1 << 63)));
        want.push(t.zip(t, u64::wrapping_add));
        want.push(t.zip(t, u64::wrapping_mul));
    }
    want.extend(views.iter().map(|v| image.view(v)));
    want.extend([image.sum(&[1]), image.sum(&[3, 0]), image.sum(&[0, 1, 2, 3])]);
    want.push(image.window_sum(&window));
    want.push(Plain::bilinear(&conv, &image, &weight));
    want.push(Plain::bilinear(&conv, &image, &weight));
    want.push(Plain::bilinear(&matmul, &image, &matrix));
    want.push(Plain::bilinear(&right, &matrix, &image));
    let got = agreed(world, make, move |mpc: &mut P| {
        let secrets = share(mpc, &tensors)?;
        let mut maps = Vec::new();
        for (t, x) in tensors.iter().zip(&secrets) {
            let public = upload(mpc, t)?;
            maps.push(mpc.linear(&Linear::Negate, x)?);
            maps.push(mpc.linear(&Linear::Scale(0xdead_beef_1234_5677), x)?);
            maps.push(mpc.linear(&Linear::Shift(1 << 63), x)?);
            maps.push(mpc.linear(&Linear::AddPublic(&public), x)?);
            maps.push(mpc.linear(&Linear::TimesPublic(&Bilinear::Mul, &public), x)?);
        }
        let [x, w] = &share(mpc, &[image.clone(), weight.clone()])?[..] else {
            unreachable!("two tensors were shared")
        };
        for view in &views {
            maps.push(mpc.linear(&Linear::View(view), x)?);
        }
        for axes in [&[1][..], &[3, 0], &[0, 1, 2, 3]] {
            maps.push(mpc.linear(&Linear::Sum(axes), x)?);
        }
        maps.push(mpc.linear(&Linear::WindowSum(&window), x)?);
        let (pw, px, pm) = (upload(mpc, &weight)?, upload(mpc, &image)?, upload(mpc, &matrix)?);
        maps.push(mpc.linear(&Linear::TimesPublic(&conv, &pw), x)?);
        maps.push(mpc.linear(&Linear::PublicTimes(&conv, &px), w)?);
        maps.push(mpc.linear(&Linear::TimesPublic(&matmul, &pm), x)?);
        maps.push(mpc.linear(&Linear::PublicTimes(&right, &pm), x)?);
        open(mpc, &maps.iter().collect::<Vec<_>>())
    });
    expect(world, "linear map", &got, &want);
}

const COEFFICIENTS: [u64; 2] = [0x1234_5678_9abc_def1, 0xfedc_ba98_7654_3210];

/// Sums, differences, combinations and concatenation of shares.
pub fn sums_and_concatenation<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let pairs: Vec<_> = shapes()
        .iter()
        .flat_map(|s| [Plain::any(&mut draw, s), Plain::signed(&mut draw, s, 62)])
        .collect();
    let parts: Vec<_> = [2, 1, 4].iter().map(|&n| Plain::any(&mut draw, &[3, n, 5])).collect();
    let rows: Vec<_> = [1, 3].iter().map(|&n| Plain::any(&mut draw, &[n, 6])).collect();
    let mut want = Vec::new();
    for pair in pairs.chunks_exact(2) {
        want.push(pair[0].zip(&pair[1], u64::wrapping_add));
        want.push(pair[0].zip(&pair[1], u64::wrapping_sub));
        want.push(pair[0].zip(&pair[1], |a, b| {
            let terms = a.wrapping_mul(COEFFICIENTS[0]).wrapping_sub(b);
            terms.wrapping_add(a).wrapping_add(COEFFICIENTS[1])
        }));
        want.push(pair[0].zip(&pair[1], |a, b| {
            let terms = (0..9u64).map(|i| [a, b][i as usize % 2].wrapping_mul(i + 3));
            terms.fold(0, u64::wrapping_add)
        }));
        want.push(pair[0].map(|a| a.wrapping_add(7)));
    }
    want.push(Plain::concat(&parts.iter().collect::<Vec<_>>(), 1));
    want.push(Plain::concat(&rows.iter().collect::<Vec<_>>(), 0));
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut results = Vec::new();
        for pair in pairs.chunks_exact(2) {
            let xy = share(mpc, pair)?;
            results.push(mpc.add(&xy[0], &xy[1])?);
            results.push(mpc.sub(&xy[0], &xy[1])?);
            let terms = [(COEFFICIENTS[0], &xy[0]), (u64::MAX, &xy[1]), (1, &xy[0])];
            results.push(mpc.combine(&terms, COEFFICIENTS[1])?);
            let many: Vec<_> = (0..9).map(|i| (i + 3, &xy[i as usize % 2])).collect();
            results.push(mpc.combine(&many, 0)?);
            results.push(mpc.combine(&[(1, &xy[0])], 7)?);
        }
        let parts = share(mpc, &parts)?;
        results.push(mpc.concat(&parts.iter().collect::<Vec<_>>(), 1)?);
        let rows = share(mpc, &rows)?;
        results.push(mpc.concat(&rows.iter().collect::<Vec<_>>(), 0)?);
        open(mpc, &results.iter().collect::<Vec<_>>())
    });
    expect(world, "sum, difference, concatenation", &got, &want);
}
