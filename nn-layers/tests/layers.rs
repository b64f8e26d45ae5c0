//! Every layer computes its definition, in floats and in fixed point, and knows its shape.

use crate::common::{self, Random, distance};
use mpc_core::{Operand, Plaintext, Protocol, SecretTensor, TestWorld, TruncationMode};
use net::Party;
use nn_layers::layers::*;
use nn_layers::{Binary, Compiled, Dim, Graph, HostTensor, Op, PlanOptions, Pool, Unary};
use ring_arith::{CpuEngine, EngineTensor, Shape};
use rss_protocols::{Options, Rss};

/// Runs a layer in fixed point; in floats, and the shape it states, must agree.
fn run(layer: &dyn Layer, x: &HostTensor) -> HostTensor {
    let mut graph = Graph::new(x.dims()[0]);
    let dims: Vec<_> = x.dims()[1..].iter().map(|&d| Dim::Fixed(d)).collect();
    let dims = [&[Dim::Batch(1)], &dims[..]].concat();
    let input = match layer.takes_integers() {
        true => graph.integer_input("x", &dims).unwrap(),
        false => graph.input("x", &dims).unwrap(),
    };
    let y = layer.forward(&mut graph, "layer", input).unwrap();
    graph.output("y", y);
    assert_eq!(graph.shape(y), &layer.output_shape(x.shape()).unwrap());
    in_fixed_point(&graph, x)
}

/// Runs a graph in fixed point; in floats must agree.
fn in_fixed_point(graph: &Graph, x: &HostTensor) -> HostTensor {
    let Compiled { plan, weights } = Compiled::new(graph, &PlanOptions::default()).unwrap();
    assert_eq!(plan.fixed_batch(), None, "the batch size is left open");

    let mut mpc = Plaintext::new(CpuEngine::new(1));
    let me = mpc.me();
    let words = plan.encode_weights(&weights).unwrap();
    let shapes: Vec<Shape> = plan.weights().into_iter().map(|w| w.shape).collect();
    let shares = mpc.input(me, &shapes, Some(&words)).unwrap();
    let secret: Vec<Operand<_>> = plan.secret_weights(shares);
    let words = [plan.encode_input(0, x.dims()[0], x).unwrap()];
    let shares = mpc.input(me, &[x.shape().clone()], Some(&words)).unwrap();
    let y = plan.run(&mut mpc, &secret, &plan.secret_inputs(shares), &mut ()).unwrap();
    let words = mpc.open(&y.iter().map(SecretTensor::share).collect::<Vec<_>>()).unwrap();
    let fixed = plan.decode_output(0, &words[0]).unwrap();

    let floats = graph.evaluate(std::slice::from_ref(x)).unwrap().remove(0);
    assert!(
        distance(&floats, &fixed) < 1e-3,
        "fixed point is off by {}",
        distance(&floats, &fixed)
    );
    floats
}

fn close(got: &HostTensor, expected: &HostTensor) {
    let error = distance(got, expected);
    assert!(error < 1e-9, "off by {error}");
}

/// A tensor from its definition, element by element.
fn tensor(dims: &[usize], f: impl Fn(&[usize]) -> f64) -> HostTensor {
    let len = dims.iter().product();
    let mut values = Vec::with_capacity(len);
    for i in 0..len {
        let mut rest = i;
        let mut at = vec![0; dims.len()];
        for axis in (0..dims.len()).rev() {
            at[axis] = rest % dims[axis];
            rest /= dims[axis];
        }
        values.push(f(&at));
    }
    HostTensor::new(dims, values).unwrap()
}

fn at(x: &HostTensor, index: &[usize]) -> f64 {
    let flat = index.iter().zip(x.dims()).fold(0, |flat, (i, d)| flat * d + i);
    x.floats()[flat]
}

#[test]
fn linear_is_a_product_with_a_bias_whether_weights_are_secret_or_public() {
    let mut r = Random(1);
    let (x, w, b) = (r.tensor(&[3, 5, 4], 1.0), r.tensor(&[6, 4], 1.0), r.tensor(&[6], 1.0));
    let expected = tensor(&[3, 5, 6], |i| {
        let sum: f64 = (0..4).map(|k| at(&x, &[i[0], i[1], k]) * at(&w, &[i[2], k])).sum();
        sum + at(&b, &[i[2]])
    });
    close(&run(&Linear::new(w.clone(), b.clone()), &x), &expected);
    close(&run(&Linear::new(Weight::Public(w), Weight::Public(b)), &x), &expected);
}

#[test]
fn convolutions_follow_stride_padding_dilation_and_groups() {
    let mut r = Random(2);
    let x = r.tensor(&[2, 4, 9, 8], 1.0);
    let layer = Conv2d {
        stride: [2, 1],
        padding: [1, 2, 0, 1],
        dilation: [1, 2],
        groups: 2,
        ..Conv2d::new(r.tensor(&[6, 2, 3, 2], 1.0), Some(r.tensor(&[6], 1.0).into()))
    };
    let (w, b) = (layer.weight.value(), layer.bias.as_ref().unwrap().value());
    let expected = tensor(&[2, 6, 4, 9], |i| {
        let mut sum = at(b, &[i[1]]);
        for (c, u, v) in (0..12).map(|t| (t / 6, t / 2 % 3, t % 2)) {
            let (h, w_) = ((2 * i[2] + u).wrapping_sub(1), (i[3] + 2 * v).wrapping_sub(2));
            if h < 9 && w_ < 8 {
                sum += at(w, &[i[1], c, u, v]) * at(&x, &[i[0], i[1] / 3 * 2 + c, h, w_]);
            }
        }
        sum
    });
    close(&run(&layer, &x), &expected);
}

#[test]
fn a_convolution_in_one_dimension_is_one_of_height_one() {
    let mut r = Random(3);
    let x = r.tensor(&[2, 4, 11], 1.0);
    let layer = Conv1d {
        stride: 2,
        padding: [2, 1],
        dilation: 2,
        groups: 2,
        ..Conv1d::new(r.tensor(&[2, 2, 3], 1.0), Some(r.tensor(&[2], 1.0).into()))
    };
    let (w, b) = (layer.weight.value(), layer.bias.as_ref().unwrap().value());
    let expected = tensor(&[2, 2, 5], |i| {
        let mut sum = at(b, &[i[1]]);
        for (c, k) in (0..6).map(|t| (t / 3, t % 3)) {
            let p = (2 * i[2] + 2 * k).wrapping_sub(2);
            if p < 11 {
                sum += at(w, &[i[1], c, k]) * at(&x, &[i[0], 2 * i[1] + c, p]);
            }
        }
        sum
    });
    close(&run(&layer, &x), &expected);
}

#[test]
fn pools_take_means_and_maxima() {
    let mut r = Random(4);
    let x = r.tensor(&[2, 3, 6, 7], 2.0);
    let pool = Pool::new([2, 3], [2, 2]);
    let window = |i: &[usize]| -> Vec<f64> {
        let at = |t: usize| at(&x, &[i[0], i[1], 2 * i[2] + t / 3, 2 * i[3] + t % 3]);
        (0..6).map(at).collect()
    };
    let mean = tensor(&[2, 3, 3, 3], |i| window(i).iter().sum::<f64>() / 6.0);
    close(&run(&AvgPool { pool, count_border: true }, &x), &mean);
    let largest = tensor(&[2, 3, 3, 3], |i| window(i).into_iter().fold(f64::MIN, f64::max));
    close(&run(&MaxPool(pool), &x), &largest);
    let whole = |n, c| (0..42).map(move |t| [n, c, t / 7, t % 7]);
    let mean = tensor(&[2, 3], |i| whole(i[0], i[1]).map(|j| at(&x, &j)).sum::<f64>() / 42.0);
    close(&run(&GlobalAvgPool, &x), &mean);
}

#[test]
fn adaptive_pooling_covers_the_input_as_in_pytorch() {
    let mut r = Random(5);
    let x = r.tensor(&[1, 2, 7, 6], 1.0);
    for [oh, ow] in [[3, 4], [7, 3], [1, 1], [5, 6], [9, 2]] {
        let expected = tensor(&[1, 2, oh, ow], |i| {
            let rows = i[2] * 7 / oh..((i[2] + 1) * 7).div_ceil(oh);
            let cols = i[3] * 6 / ow..((i[3] + 1) * 6).div_ceil(ow);
            let count = (rows.len() * cols.len()) as f64;
            let row = |h| cols.clone().map(move |w| [i[0], i[1], h, w]);
            rows.flat_map(row).map(|j| at(&x, &j)).sum::<f64>() / count
        });
        close(&run(&AdaptiveAvgPool([oh, ow]), &x), &expected);
    }
}

#[test]
fn normalisations_use_the_statistics_of_training_or_of_the_row() {
    let mut r = Random(6);
    let x = r.tensor(&[2, 4, 3, 3], 1.0);
    let part = |r: &mut Random, around: f64| r.tensor(&[4], 0.5).map(|v| v + around);
    let [scale, shift, mean] = [1.0, 0.0, 0.3].map(|around| part(&mut r, around));
    let variance = part(&mut r, 1.0);
    let expected = tensor(&[2, 4, 3, 3], |i| {
        let c = |t: &HostTensor| at(t, &[i[1]]);
        (at(&x, i) - c(&mean)) / (c(&variance) + 0.01).sqrt() * c(&scale) + c(&shift)
    });
    let [scale, shift, mean, variance] = [scale, shift, mean, variance].map(Weight::from);
    close(
        &run(&BatchNorm { scale, shift, mean, variance, epsilon: 0.01, momentum: 0.1 }, &x),
        &expected,
    );

    // Rows of 8 and of 12: only a power of four divides for nothing. The small ones vary by 2^-5.
    for (width, size, epsilon) in [(8, 1.0, 1e-5), (12, 1.0, 1e-5), (12, 1.0 / 32.0, 1e-12)] {
        let x = r.tensor(&[3, 5, width], size);
        let (scale, shift) = (r.tensor(&[width], 1.0), r.tensor(&[width], 1.0));
        let expected = tensor(&[3, 5, width], |i| {
            let row: Vec<f64> = (0..width).map(|k| at(&x, &[i[0], i[1], k])).collect();
            let mean = row.iter().sum::<f64>() / width as f64;
            let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
            let y = (row[i[2]] - mean) / (variance + epsilon).sqrt();
            y * at(&scale, &[i[2]]) + at(&shift, &[i[2]])
        });
        let layer = LayerNorm { scale: scale.into(), shift: shift.into(), epsilon };
        close(&run(&layer, &x), &expected);
    }
}

#[test]
fn embeddings_pick_rows_at_secret_positions() {
    let table = Random(7).tensor(&[6, 4], 1.0);
    let x = HostTensor::integers([2, 3], vec![5, 0, 3, 3, 1, 2]).unwrap();
    let expected = tensor(&[2, 3, 4], |i| at(&table, &[at(&x, &i[..2]) as usize, i[2]]));
    close(&run(&Embedding { table: table.into() }, &x), &expected);
}

#[test]
fn attention_gathers_by_similarity_and_respects_its_mask() {
    let mut r = Random(8);
    let (time, width, heads) = (5, 6, 2);
    let x = r.tensor(&[2, time, width], 1.0);
    let mut part = || Linear::new(r.tensor(&[width, width], 1.0), r.tensor(&[width], 0.5));
    let (query, key, value, output) = (part(), part(), part(), part());
    let mask = tensor(&[time, time], |i| if i[1] > i[0] { -64.0 } else { 0.0 });
    let apply = |layer: &Linear, x: &HostTensor| {
        let (w, b) = (layer.weight.value(), layer.bias.as_ref().unwrap().value());
        tensor(x.dims(), |i| {
            let row = (0..width).map(|k| at(x, &[i[0], i[1], k]) * at(w, &[i[2], k]));
            row.sum::<f64>() + at(b, &[i[2]])
        })
    };
    let (q, k, v) = (apply(&query, &x), apply(&key, &x), apply(&value, &x));
    let gathered = tensor(&[2, time, width], |i| {
        let first = i[2] / 3 * 3;
        let score = |t: usize| {
            let products =
                (0..3).map(|d| at(&q, &[i[0], i[1], first + d]) * at(&k, &[i[0], t, first + d]));
            (products.sum::<f64>() / 3f64.sqrt() + at(&mask, &[i[1], t])).exp()
        };
        let total: f64 = (0..time).map(score).sum();
        (0..time).map(|t| score(t) / total * at(&v, &[i[0], t, i[2]])).sum()
    });
    let expected = apply(&output, &gathered);
    let layer = MultiHeadAttention { query, key, value, output, heads, mask: Some(mask) };
    close(&run(&layer, &x), &expected);
}

#[test]
fn layers_are_put_together() {
    let mut r = Random(9);
    let x = r.tensor(&[2, 3, 4, 4], 1.0);
    let conv = |r: &mut Random| Conv2d {
        padding: [1; 4],
        ..Conv2d::new(r.tensor(&[3, 3, 3, 3], 0.3), None)
    };
    let body = Sequential::new().then("conv", conv(&mut r)).then("relu", Unary::Relu);
    let plain = run(&body, &x);
    let expected = tensor(x.dims(), |i| at(&plain, i) + at(&x, i));
    close(&run(&Residual { body: Box::new(body), shortcut: None }, &x), &expected);

    let net = Sequential::new()
        .then("block", Residual { body: Box::new(conv(&mut r)), shortcut: None })
        .then("dropout", Dropout)
        .then("flatten", Flatten)
        .then("fc", Linear::new(r.tensor(&[5, 48], 0.3), r.tensor(&[5], 0.3)))
        .then("softmax", Softmax { axis: 1 });
    let y = run(&net, &x);
    for row in y.floats().chunks(5) {
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
    let shape = net.output_shape(&Shape::new([7, 3, 4, 4]).unwrap()).unwrap();
    assert_eq!(shape.dims(), [7, 5]);
}

#[test]
fn a_shortcut_of_values_in_another_format_is_added_before_the_truncation() {
    let mut r = Random(31);
    let mut graph = Graph::new(2);
    let x = common::image(&mut graph, 4, 8);
    // A mean moves the point: its result has more fraction bits than the image.
    let mean = Op::AvgPool { pool: Pool::new([2; 2], [2; 2]), count_border: true };
    let pooled = graph.add("mean", mean, &[x]).unwrap();
    let window = Pool::new([3; 2], [1; 2]).padded([1; 4]);
    let y = common::conv(&mut graph, &mut r, pooled, "conv", 6, window);
    let s = common::conv(&mut graph, &mut r, x, "shortcut", 6, Pool::new([1; 2], [2; 2]));
    for operands in [[y, s], [s, y]] {
        let mut graph = graph.clone();
        let sum = graph.add("sum", Op::Binary(Binary::Add), &operands).unwrap();
        let sum = common::relu(&mut graph, sum);
        graph.output("y", sum);
        in_fixed_point(&graph, &r.tensor(&[2, 4, 8, 8], 1.0));
    }
}

/// Inner products of 300 rows on shares in a mode, and their floors.
fn inner_products(mode: TruncationMode) -> [Vec<i64>; 2] {
    let mut graph = Graph::new(300);
    let dims = [Dim::Batch(1), Dim::Fixed(3)];
    let xs = ["x", "y"].map(|name| graph.input(name, &dims).unwrap());
    let dot = graph.add("dot", Op::Dot(vec![1]), &xs).unwrap();
    graph.output("dot", dot);
    let plan = Compiled::new(&graph, &PlanOptions::default()).unwrap().plan;
    let mut r = Random(3);
    let words = [0, 1].map(|i| plan.encode_input(i, 300, &r.tensor(&[300, 3], 1.0)).unwrap());
    let rows = words.each_ref().map(|words| words.words().chunks(3).map(<[u64]>::to_vec));
    let [xs, ys] = rows.map(Iterator::collect::<Vec<_>>);
    let product = |(x, y): (&u64, &u64)| *x as i64 * *y as i64;
    let sums = xs.iter().zip(&ys).map(|(x, y)| x.iter().zip(y).map(product).sum::<i64>() >> 20);
    let floors = sums.collect();
    let run = move |mpc: &mut Rss<CpuEngine>| {
        let shapes = words.each_ref().map(|words| words.shape().clone());
        let mine = mpc.me() == Party(0);
        let shares = mpc.input(Party(0), &shapes, mine.then_some(&words[..]))?;
        let made = plan.run(mpc, &[], &plan.secret_inputs(shares), &mut ()).unwrap();
        Ok(mpc.open(&[made[0].share()])?[0].words().iter().map(|&word| word as i64).collect())
    };
    let options = Options::default().truncation(mode);
    let party = move |session| Rss::with_options(session, CpuEngine::new(1), options);
    [TestWorld::new(3).run(party, run).remove(0), floors]
}

#[test]
fn inner_products_are_rounded_as_the_protocol_was_told() {
    let [made, floors] = inner_products(TruncationMode::Exact);
    assert_eq!(made, floors);
    for mode in [TruncationMode::Default, TruncationMode::Dither] {
        let [made, floors] = inner_products(mode);
        assert_ne!(made, floors, "{mode:?}");
        assert!(made.iter().zip(&floors).all(|(a, b)| (0..=1).contains(&(a - b))), "{mode:?}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let mut r = Random(10);
    let shape = |dims: &[usize]| Shape::new(dims).unwrap();
    let mut part = || Linear::new(r.tensor(&[4, 4], 1.0), r.tensor(&[4], 1.0));
    let (query, key, value, output) = (part(), part(), part(), part());
    let attention = MultiHeadAttention { query, key, value, output, heads: 3, mask: None };
    let square = HostTensor::new([4, 4], vec![0.0; 16]).unwrap();
    let row = HostTensor::new([4], vec![0.0; 4]).unwrap();
    let norm = LayerNorm { scale: row.clone().into(), shift: row.clone().into(), epsilon: 0.0 };
    let cases: [(&dyn Layer, &[usize], &str); 6] = [
        (&Linear::new(square.clone(), row.clone()), &[2, 3], "[2, 3]"),
        (&Conv2d::new(square.clone(), None), &[1, 4, 8, 8], "[O, C / groups, h, w]"),
        (&Conv1d::new(square, None), &[1, 4, 8], "[O, C / groups, k]"),
        (&attention, &[1, 2, 4], "3 heads"),
        (&norm, &[2, 3], "are not the last axes"),
        (&AdaptiveAvgPool([0, 1]), &[1, 1, 2, 2], "cannot be pooled"),
    ];
    for (layer, dims, said) in cases {
        let error = layer.output_shape(&shape(dims)).unwrap_err().to_string();
        assert!(error.contains("`layer`") && error.contains(said), "{error}");
    }
}

#[test]
fn a_window_that_reaches_beyond_all_channels_takes_no_longer() {
    // Adding up places that are not there would take hours.
    for size in [1, 2, 5, 1 << 40] {
        let mut graph = Graph::new(2);
        let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3), Dim::Fixed(2)]).unwrap();
        let op = Op::Lrn { size, alpha: size as f64, beta: 0.75, bias: 1.0 };
        let y = graph.add("y", op, &[x]).unwrap();
        graph.output("y", y);
        in_fixed_point(&graph, &tensor(&[2, 3, 2], |at| (at[0] + at[1]) as f64 / 4.0 - 0.5));
    }
}
