//! Losses, steps of Adam and gradients with corners by their definitions.

use crate::common::training::{
    BATCH, RATE, TOLERANCE, Training, assert_close, options, perceptron, shared,
};
use crate::common::{Random, dense, distance};
use mpc_core::{Protocol, TestWorld};
use nn_layers::train::{Adam, Classes, Loss, Metric, Optimiser, Second, Step};
use nn_layers::{Binary, Dim, Graph, HostTensor, Op, Unary, ValueId};
use ring_arith::CpuEngine;
use rss_protocols::Rss;

/// Adds a network to a graph.
type Build = fn(&mut Graph, &mut Random, ValueId) -> ValueId;

/// Losses with the axes of the network's result after the batch.
fn losses() -> Vec<(Loss, Vec<usize>)> {
    let plain = Classes::default;
    let weights = vec![0.5, 2.0, 1.25];
    let classes = [
        (plain(), vec![3]),
        (Classes { smoothing: 0.1, ..plain() }, vec![3]),
        (Classes { weights: weights.clone(), ..plain() }, vec![3]),
        (Classes { weights: weights.clone(), smoothing: 0.25, ..plain() }, vec![3]),
        (Classes { ignore: true, axis: 2, ..plain() }, vec![2, 3]),
        (Classes { axis: 1, ..plain() }, vec![3, 2, 2]),
        (Classes { ignore: true, smoothing: 0.1, weights: weights.clone(), ..plain() }, vec![3, 2]),
        (Classes { soft: true, ..plain() }, vec![3]),
        (Classes { soft: true, smoothing: 0.1, weights, ..plain() }, vec![3, 2]),
    ];
    let mut all: Vec<_> = classes.map(|(c, dims)| (Loss::CrossEntropy(c), dims)).into();
    all.push((Loss::LogLikelihood(plain()), vec![3]));
    all.push((Loss::LogLikelihood(Classes { ignore: true, ..plain() }), vec![3, 2]));
    for loss in [
        Loss::BinaryCrossEntropy { positive: vec![] },
        Loss::BinaryCrossEntropy { positive: vec![3.0] },
        Loss::BinaryCrossEntropy { positive: vec![0.5, 2.0, 1.0] },
        Loss::ProbabilityCrossEntropy,
        Loss::MeanSquare,
        Loss::Absolute,
        Loss::Huber(0.5),
        Loss::SmoothAbsolute(0.5),
    ] {
        all.push((loss, vec![3]));
    }
    all
}

/// The mean loss of a batch by its definition, from the last layer's result before a sigmoid.
fn defined(loss: &Loss, z: &HostTensor, labels: &HostTensor) -> f64 {
    let (dims, z, y) = (z.dims().to_vec(), z.floats(), labels.floats());
    let count = z.len() as f64;
    let pairs = || z.iter().zip(y.iter());
    let softplus = |z: f64| z.max(0.0) + (-z.abs()).exp().ln_1p();
    let huber = |d: f64, c: f64| if d.abs() < c { d * d / 2.0 } else { c * (d.abs() - c / 2.0) };
    match loss {
        Loss::CrossEntropy(own) | Loss::LogLikelihood(own) => {
            let classes = dims[own.axis];
            let inner: usize = dims[own.axis + 1..].iter().product();
            let weight = |k: usize| own.weights.get(k).copied().unwrap_or(1.0);
            let (mut sum, mut mass) = (0.0, 0.0);
            for place in 0..z.len() / classes {
                let at = |k: usize| place / inner * classes * inner + k * inner + place % inner;
                let total: f64 = (0..classes).map(|k| z[at(k)].exp()).sum();
                let log = |k: usize| match loss {
                    Loss::LogLikelihood(_) => z[at(k)],
                    _ => z[at(k)] - total.ln(),
                };
                let there: f64 = (0..classes).map(|k| y[at(k)]).sum();
                if own.ignore && there == 0.0 {
                    continue;
                }
                for k in 0..classes {
                    let share = own.smoothing / classes as f64;
                    let part = (1.0 - own.smoothing) * y[at(k)] + share;
                    sum -= weight(k) * part * log(k);
                    mass += weight(k) * y[at(k)];
                }
            }
            if own.soft { sum / (count / classes as f64) } else { sum / mass }
        }
        Loss::BinaryCrossEntropy { positive } => {
            let terms = pairs().enumerate().map(|(i, (z, y))| {
                let w = match positive.len() {
                    0 => 1.0,
                    n => positive[i % n],
                };
                (1.0 - y) * z + (1.0 + (w - 1.0) * y) * softplus(-z)
            });
            terms.sum::<f64>() / count
        }
        Loss::ProbabilityCrossEntropy => {
            pairs().map(|(z, y)| softplus(*z) - z * y).sum::<f64>() / count
        }
        Loss::MeanSquare => pairs().map(|(z, y)| (z - y) * (z - y)).sum::<f64>() / count,
        Loss::Absolute => pairs().map(|(z, y)| (z - y).abs()).sum::<f64>() / count,
        Loss::Huber(c) => pairs().map(|(z, y)| huber(z - y, *c)).sum::<f64>() / count,
        Loss::SmoothAbsolute(c) => pairs().map(|(z, y)| huber(z - y, *c) / c).sum::<f64>() / count,
        other => panic!("{other:?} has no definition here"),
    }
}

#[test]
fn every_loss_and_its_slope_are_those_of_its_definition() {
    for (loss, shape) in losses() {
        let name = format!("{loss:?}");
        let mut metrics = vec![Metric::Loss];
        if matches!(&loss, Loss::CrossEntropy(own) if !own.soft) {
            metrics.push(Metric::Right);
        }
        let options = options().with_loss(loss.clone()).with_metrics(metrics);
        let training = Training::new(&[5], &options, |g, r, x| {
            let y = dense(g, r, x, "fc", shape.iter().product());
            let dims = shape.iter().map(|&d| Dim::Fixed(d));
            let shaped = Op::Reshape([Dim::Batch(1)].into_iter().chain(dims).collect());
            let y = g.add("shaped", shaped, &[y]).unwrap();
            match loss {
                Loss::ProbabilityCrossEntropy => {
                    g.add("sigmoid", Op::Unary(Unary::Sigmoid), &[y]).unwrap()
                }
                _ => y,
            }
        });
        let (expected, got) = (training.in_the_clear(), training.in_fixed_point());
        assert_close(&name, &got, &expected, TOLERANCE);
        // One step from the start, by differences.
        let plan = &training.plan;
        assert!(!plan.guarded(Step::new(0, RATE)).is_empty());
        let [x, labels] = &training.batches[0];
        let mean = |state: &[HostTensor]| {
            let (w, b) = (state[0].floats(), state[1].floats());
            let out = b.len();
            let y = (0..BATCH * out).map(|i| {
                let row = &x.floats()[i / out * 5..][..5];
                (0..5).map(|k| row[k] * w[i % out * 5 + k]).sum::<f64>() + b[i % out]
            });
            let z = HostTensor::new([&[BATCH], &shape[..]].concat(), y.collect()).unwrap();
            defined(&loss, &z, labels)
        };
        let seen = expected.metrics[0][0] / BATCH as f64;
        let want = mean(&training.start);
        assert!((seen - want).abs() < 2e-5, "{name}: a loss of {seen}, not {want}");
        let mut after = training.start.clone();
        plan.step_in_the_clear(&mut after, &training.batches[0], Step::new(0, RATE)).unwrap();
        for place in 0..5 {
            let moved = |by: f64| {
                let mut state = training.start.clone();
                let mut values = state[0].floats().into_owned();
                values[place] += by;
                state[0] = HostTensor::new(state[0].dims(), values).unwrap();
                mean(&state)
            };
            let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            let step = after[0].floats()[place] - training.start[0].floats()[place];
            assert!((step + RATE * slope).abs() < 1e-7, "{name}: {step}, not {}", -RATE * slope);
        }
    }
}

#[test]
fn branches_signs_and_extremes_are_trained_in_fixed_point_as_in_floats() {
    let build: Build = |g, r, x| {
        let y = dense(g, r, x, "fc1", 8);
        let limit = g.public("limit", HostTensor::scalar(0.1));
        let larger = g.add("larger", Op::Binary(Binary::Greater), &[y, limit]).unwrap();
        let half = g.add("half", Op::Scale(0.5), &[y]).unwrap();
        let y = g.add("where", Op::Where, &[larger, y, half]).unwrap();
        let sign = g.add("sign", Op::Unary(Unary::Sign), &[y]).unwrap();
        let size = g.add("size", Op::Binary(Binary::Mul), &[sign, y]).unwrap();
        let op = Op::Reduce { kind: nn_layers::Reduce::Max, axes: vec![1], keep: true };
        let most = g.add("most", op, &[size]).unwrap();
        let y = g.add("less", Op::Binary(Binary::Sub), &[y, most]).unwrap();
        dense(g, r, y, "fc2", 3)
    };
    let training = Training::new(&[5], &options(), build);
    let expected = training.in_the_clear();
    assert_close("branches", &training.in_fixed_point(), &expected, TOLERANCE);
    assert_close("branches", &training.on_shares(), &expected, TOLERANCE);
}

#[test]
fn momentum_and_decay_go_with_limits_of_the_gradient_and_with_guards() {
    let optimiser = Optimiser::Sgd { momentum: 0.9, nesterov: true, decay: 0.01 };
    let ignoring = Classes { ignore: true, ..Classes::default() };
    for rate in [RATE, RATE / 256.0] {
        let options = options()
            .with_optimiser(optimiser)
            .with_largest_rate(rate)
            .with_clip(0.25)
            .with_loss(Loss::CrossEntropy(ignoring.clone()))
            .with_metrics([Metric::Loss, Metric::Right]);
        let training = Training::new(&[5], &options, perceptron).at(rate);
        assert_close("limited", &training.in_fixed_point(), &training.in_the_clear(), TOLERANCE);
        // The metrics are single numbers, which a guard watches as any.
        let [state, batch] = [training.words().swap_remove(0), training.words().swap_remove(1)];
        let plan = training.plan.clone();
        let names = plan.guarded(Step::new(0, rate));
        let left = TestWorld::new(3).run(
            |session| Rss::new(session, CpuEngine::new(1)),
            move |mpc| {
                let mut state = plan.secret_state(shared(mpc, &state)?).unwrap();
                let batch = plan.step_plan().secret_inputs(shared(mpc, &batch)?);
                let step = Step::new(0, rate);
                let (_, left) =
                    plan.step_guarded(mpc, &mut state, &batch, step, 7, &mut ()).unwrap();
                mpc.open(&[left.share()])
            },
        );
        let wrong = names.iter().zip(left[0][0].words()).filter(|(_, word)| **word != 0);
        let wrong: Vec<_> = wrong.map(|(name, _)| name).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

#[test]
fn the_guard_notices_gradients_whose_squares_leave_their_range() {
    let adam = Adam { betas: [0.906_25, 0.999], ..Adam::default() };
    let clipped = options().with_optimiser(Optimiser::Adam(adam)).with_clip(1.0);
    let of = |adam| options().with_optimiser(Optimiser::Adam(adam));
    let by_row = of(Adam { second: Second::Row, ..adam });
    // The range is that of sums of squares: of 64 gradients 13 times that of 5, and clipped ones have 28 fraction bits.
    for (name, width, quiet, options) in [
        ("weight", 5, 10.0, of(adam)),
        ("row", 5, 16.0, by_row.clone()),
        ("wide row", 64, 4.0, by_row),
        ("clip", 5, 5.1, clipped),
    ] {
        let rate = RATE / 16.0;
        let options = options.with_loss(Loss::MeanSquare).with_largest_rate(rate);
        let training = Training::new(&[width], &options, |g, r, x| dense(g, r, x, "fc", 3));
        let (training, step) = (training.at(rate), Step::new(0, rate));
        let plan = &training.plan;
        // The first input is 0, and so are the gradients of its weights: their roots are no reason for an alarm.
        let row = [vec![0.0], vec![1.0; width - 1]].concat();
        let x = HostTensor::new([BATCH, width], row.repeat(BATCH)).unwrap();
        // The mean square's gradient by each weight is 2 / 3 of the difference.
        let sizes: Vec<f64> = (0..42).map(|thirds| (f64::from(thirds) / 3.0).exp2()).collect();
        let batch = |size: f64| {
            let labels = HostTensor::new([BATCH, 3], vec![1.5 * size; BATCH * 3]).unwrap();
            [x.clone(), labels]
        };
        let words = sizes.iter().map(|&size| plan.encode_batch(&batch(size)).unwrap());
        let (words, start) =
            (words.collect::<Vec<_>>(), plan.encode_state(&training.start).unwrap());
        let own = plan.clone();
        let opened = TestWorld::new(3).run(
            |session| Rss::new(session, CpuEngine::new(1)),
            move |mpc| {
                let mut all = vec![];
                for words in &words {
                    let mut state = own.secret_state(shared(mpc, &start)?).unwrap();
                    let batch = own.step_plan().secret_inputs(shared(mpc, words)?);
                    let made = own.step_guarded(mpc, &mut state, &batch, step, 7, &mut ());
                    let (_, left) = made.unwrap();
                    let mut shares = state.shares();
                    shares.push(left.share());
                    all.push(mpc.open(&shares)?);
                }
                Ok(all)
            },
        );
        let mut wrong = 0;
        for (&size, words) in sizes.iter().zip(&opened[0]) {
            let called = words.last().unwrap().words().iter().any(|&word| word != 0);
            let got = plan.decode_state(&words[..words.len() - 1]).unwrap();
            let mut want = training.start.clone();
            plan.step_in_the_clear(&mut want, &batch(size), step).unwrap();
            let off = (0..2).map(|i| distance(&got[i], &want[i])).fold(0.0, f64::max);
            let right = off < rate / 16.0;
            wrong += usize::from(!right);
            assert!(right || called, "{name}: a gradient of {size} is off by {off}, unseen");
            assert!(size > quiet || right && !called, "{name}: a gradient of {size} is called out");
        }
        assert!(wrong > 1, "{name}: {wrong} steps are wrong");
    }
}

#[test]
fn adam_in_floats_moves_weights_by_the_published_formula_however_small_gradients_are() {
    let adam = Adam::default();
    for adam in [
        adam,
        Adam { betas: [0.8, 0.99], decoupled: true, decay: 0.01, ..adam },
        Adam { betas: [0.9, 0.9], amsgrad: true, decay: 0.01, ..adam },
        Adam { betas: [0.95, 0.9], decay: 0.01, ..adam },
        Adam { betas: [0.99, 0.999], every: 2, ..adam },
        Adam { betas: [0.0, 0.999], ..adam },
    ] {
        let options = options().with_optimiser(Optimiser::Adam(adam)).with_loss(Loss::MeanSquare);
        let training = Training::new(&[5], &options, |g, r, x| dense(g, r, x, "fc", 3));
        let plan = &training.plan;
        let mut state = training.start.clone();
        let specs = plan.state();
        let weight = specs.iter().position(|spec| spec.name == "fc.weight").unwrap();
        let (mut first, mut second, mut largest) = (vec![0.0; 15], vec![0.0; 15], vec![0.0; 15]);
        let mut roots = [0.0; 15];
        let mut want = state[weight].floats().into_owned();
        for number in 0..12 {
            // Inputs of 1e-8 and less make gradients below the last digit of fixed point.
            let [x, labels] = &training.batches[number as usize % training.batches.len()];
            let x = x.map(|v| v * 1e-8);
            let (w, b) = (want.clone(), state[1 - weight].floats().into_owned());
            let grad = |at: usize| {
                let (o, k) = (at / 5, at % 5);
                let each = (0..BATCH).map(|row| {
                    let x = &x.floats()[row * 5..row * 5 + 5];
                    let y: f64 = (0..5).map(|j| x[j] * w[o * 5 + j]).sum::<f64>() + b[o];
                    2.0 / 3.0 * (y - labels.floats()[row * 3 + o]) * x[k]
                });
                each.sum::<f64>() / BATCH as f64
            };
            let power = |beta: f64, n: u32| 1.0 - beta.powi(n as i32 + 1);
            for at in 0..15 {
                let decayed = if adam.decoupled { 0.0 } else { adam.decay * w[at] };
                let g = grad(at) + decayed;
                first[at] = adam.betas[0] * first[at] + (1.0 - adam.betas[0]) * g;
                second[at] = adam.betas[1] * second[at] + (1.0 - adam.betas[1]) * g * g;
                largest[at] = f64::max(largest[at], second[at]);
                if number == 0 || (number + 1) % adam.every == 0 {
                    let v: f64 = if adam.amsgrad { largest[at] } else { second[at] };
                    roots[at] = 1.0 / ((v / power(adam.betas[1], number)).sqrt() + adam.epsilon);
                }
                let kept = if adam.decoupled { 1.0 - 0.01 * adam.decay } else { 1.0 };
                let step = 0.01 * first[at] / power(adam.betas[0], number) * roots[at];
                want[at] = kept * w[at] - step;
            }
            let batch = [x, labels.clone()];
            plan.step_in_the_clear(&mut state, &batch, Step::new(number, 0.01)).unwrap();
            let want = HostTensor::new([3, 5], want.clone()).unwrap();
            let error = distance(&state[weight], &want);
            assert!(error < 1e-9, "{adam:?}: step {number} is off by {error}");
        }
    }
}
