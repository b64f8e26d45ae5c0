//! The planner keeps the function of a network and makes it cheaper.

use crate::common::{Random, conv, dense, distance, flatten, image, norm, relu};
use nn_layers::{
    Binary, Centre, Compiled, Dim, Graph, HostTensor, Op, Plan, PlanOptions, Pool, Reduce, Unary,
    ValueId,
};
use ring_arith::CpuEngine;

fn compile(g: &Graph) -> Compiled {
    Compiled::new(g, &PlanOptions::default()).unwrap()
}

/// The kinds of a plan's steps, read from its written form.
fn kinds(plan: &Plan) -> Vec<String> {
    let text = serde_json::to_value(plan).unwrap();
    let nodes = text["nodes"].as_array().unwrap().iter();
    let kind = |n: &serde_json::Value| match &n["op"] {
        serde_json::Value::String(s) => s.clone(),
        serde_json::Value::Object(o) => {
            let (kind, body) = o.iter().next().unwrap();
            match kind.as_str() {
                "linear" => format!("linear {}", body["finish"].as_str().unwrap()),
                _ => kind.clone(),
            }
        }
        other => panic!("{other}"),
    };
    nodes.map(kind).filter(|k| k != "input" && k != "constant").collect()
}

fn same_function(g: &Graph, inputs: &[HostTensor]) -> Compiled {
    let compiled = compile(g);
    let expected = g.evaluate(inputs).unwrap();
    let got = compiled.plan.evaluate(&compiled.weights, inputs).unwrap();
    for (a, b) in expected.iter().zip(&got) {
        let error = distance(a, b);
        assert!(error < 1e-9, "the plan's result is off by {error}");
    }
    compiled
}

#[test]
fn average_pooling_after_a_convolution_disappears_into_it() {
    let mut r = Random(1);
    let mut g = Graph::new(2);
    let x = image(&mut g, 1, 28);
    let pool = Op::AvgPool { pool: Pool::new([2; 2], [2; 2]), count_border: true };
    let y = conv(&mut g, &mut r, x, "conv1", 20, Pool::new([5; 2], [1; 2]));
    let y = g.add("pool1", pool.clone(), &[y]).unwrap();
    let y = relu(&mut g, y);
    let y = conv(&mut g, &mut r, y, "conv2", 50, Pool::new([5; 2], [1; 2]));
    let y = g.add("pool2", pool, &[y]).unwrap();
    let y = relu(&mut g, y);
    let y = flatten(&mut g, y);
    let y = dense(&mut g, &mut r, y, "fc1", 500);
    let y = relu(&mut g, y);
    let y = dense(&mut g, &mut r, y, "fc2", 10);
    g.output("logits", y);
    let compiled = same_function(&g, &[r.tensor(&[2, 1, 28, 28], 1.0)]);
    let expected = ["linear relu", "linear relu", "reshape", "linear relu", "linear truncate"];
    assert_eq!(kinds(&compiled.plan), expected);
    assert_eq!(compiled.plan.fixed_batch(), None);
    assert_eq!(compiled.plan.output_shapes(7).unwrap()[0].dims(), [7, 10]);
}

#[test]
fn a_residual_block_with_a_pointwise_shortcut_is_three_linear_layers() {
    let mut r = Random(2);
    let mut g = Graph::new(1);
    let x = image(&mut g, 8, 9);
    let mut y = x;
    for (name, o, window) in [
        ("a", 4, Pool::new([1; 2], [1; 2])),
        ("b", 4, Pool::new([3; 2], [2; 2]).padded([1; 4])),
        ("c", 16, Pool::new([1; 2], [1; 2])),
    ] {
        y = conv(&mut g, &mut r, y, name, o, window);
        y = norm(&mut g, &mut r, y, name);
        if name != "c" {
            y = relu(&mut g, y);
        }
    }
    let s = conv(&mut g, &mut r, x, "down", 16, Pool::new([1; 2], [2; 2]));
    let s = norm(&mut g, &mut r, s, "down");
    let y = g.add("sum", Op::Binary(Binary::Add), &[y, s]).unwrap();
    let y = relu(&mut g, y);
    g.output("y", y);
    let compiled = same_function(&g, &[r.tensor(&[1, 8, 9, 9], 1.0)]);
    let linear = kinds(&compiled.plan).into_iter().filter(|k| k.starts_with("linear"));
    assert_eq!(linear.collect::<Vec<_>>(), ["linear relu"; 3]);
}

#[test]
fn a_residual_block_with_wide_kernels_shares_one_truncation() {
    let mut r = Random(3);
    let mut g = Graph::new(1);
    let x = image(&mut g, 4, 8);
    let y = conv(&mut g, &mut r, x, "a", 4, Pool::new([3; 2], [1; 2]).padded([1; 4]));
    let s = conv(&mut g, &mut r, x, "s", 4, Pool::new([1; 2], [1; 2]));
    let y = g.add("sum", Op::Binary(Binary::Add), &[y, s]).unwrap();
    let y = relu(&mut g, y);
    let z = g.add("again", Op::Binary(Binary::Add), &[y, x]).unwrap();
    let z = relu(&mut g, z);
    g.output("z", z);
    let compiled = same_function(&g, &[r.tensor(&[1, 4, 8, 8], 1.0)]);
    assert_eq!(kinds(&compiled.plan), ["linear relu", "binary", "unary"]);
}

#[test]
fn factors_of_pooling_between_layers_join_weights_and_the_point() {
    let mut r = Random(4);
    let mut g = Graph::new(1);
    let x = image(&mut g, 3, 32);
    let y = conv(&mut g, &mut r, x, "conv1", 8, Pool::new([11; 2], [4; 2]).padded([9; 4]));
    let y = relu(&mut g, y);
    let pool = |k, s| Op::AvgPool { pool: Pool::new([k; 2], [s; 2]), count_border: true };
    let y = g.add("pool1", pool(3, 2), &[y]).unwrap();
    let y = conv(&mut g, &mut r, y, "conv2", 8, Pool::new([5; 2], [1; 2]).padded([1; 4]));
    let y = relu(&mut g, y);
    let y = g.add("pool2", pool(2, 1), &[y]).unwrap();
    let y = conv(&mut g, &mut r, y, "conv3", 8, Pool::new([3; 2], [1; 2]).padded([1; 4]));
    let y = relu(&mut g, y);
    let y = flatten(&mut g, y);
    let y = dense(&mut g, &mut r, y, "fc", 10);
    g.output("y", y);
    let compiled = same_function(&g, &[r.tensor(&[1, 3, 32, 32], 1.0)]);
    let kinds = kinds(&compiled.plan);
    assert!(kinds.iter().all(|k| !k.contains("avg")), "{kinds:?}");
    let json = serde_json::to_string(&compiled.plan).unwrap();
    // 1/9 became 8/9 in the weights and 1/8 in the point; 1/4 needs no weight.
    assert!(json.contains(r#""scale":0.125"#) && json.contains(r#""scale":0.25"#), "{json}");
    // On a 1x1 image only the middle of a 3x3 kernel counts: conv3 is a plain product.
    let conv3 = compiled.plan.weights().into_iter().find(|w| w.name == "conv3.weight").unwrap();
    assert_eq!(conv3.shape.dims(), [8, 8]);
}

#[test]
fn max_pooling_goes_before_relu() {
    let mut r = Random(5);
    let mut g = Graph::new(1);
    let x = image(&mut g, 3, 16);
    let y = conv(&mut g, &mut r, x, "conv", 4, Pool::new([3; 2], [1; 2]).padded([1; 4]));
    let y = relu(&mut g, y);
    let y = g.add("pool", Op::MaxPool(Pool::new([3; 2], [2; 2]).padded([1; 4])), &[y]).unwrap();
    g.output("y", y);
    let compiled = same_function(&g, &[r.tensor(&[1, 3, 16, 16], 1.0)]);
    assert_eq!(kinds(&compiled.plan), ["linear truncate", "max_pool", "unary"]);
}

#[test]
fn a_written_plan_is_read_back_the_same() {
    let mut r = Random(6);
    let mut g = Graph::new(1);
    let x = image(&mut g, 3, 8);
    let y = conv(&mut g, &mut r, x, "conv", 4, Pool::new([3; 2], [1; 2]));
    let y = relu(&mut g, y);
    g.output("y", y);
    let plan = compile(&g).plan;
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn a_plan_from_outside_that_does_not_hold_together_is_refused() {
    let mut r = Random(7);
    let mut g = Graph::new(1);
    let x = image(&mut g, 3, 8);
    let y = conv(&mut g, &mut r, x, "conv", 4, Pool::new([3; 2], [1; 2]));
    g.output("y", y);
    let text = serde_json::to_string(&compile(&g).plan).unwrap();
    for (from, to) in [
        (r#""version":1"#, r#""version":9"#),
        (r#""frac":20"#, r#""frac":60"#),
        (r#""size":[3,3]"#, r#""size":[0,3]"#),
        (r#""size":[3,3]"#, r#""size":[18446744073709551615,3]"#),
        (r#""stride":[1,1]"#, r#""stride":[0,1]"#),
        (r#""groups":1"#, r#""groups":0"#),
        (r#"{"fixed":8}"#, r#"{"fixed":4611686018427387904}"#),
        (r#""dims":[4,3,3,3]"#, r#""dims":[4,3,3,99999999999]"#),
        (r#""outputs":[["y",3]]"#, r#""outputs":[["y",99]]"#),
        (r#""inputs":[0,1,2]"#, r#""inputs":[0,1,77]"#),
        (r#""inputs":[0,1,2]"#, r#""inputs":[3,1,2]"#),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from} is not in {text}");
        let error = serde_json::from_str::<Plan>(&changed).expect_err(to);
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn inputs_and_weights_that_do_not_fit_are_named() {
    let mut r = Random(8);
    let mut g = Graph::new(1);
    let x = image(&mut g, 3, 8);
    let y = conv(&mut g, &mut r, x, "conv", 4, Pool::new([3; 2], [1; 2]));
    g.output("y", y);
    let compiled = compile(&g);
    let wrong = r.tensor(&[1, 3, 9, 8], 1.0);
    let error = compiled.plan.evaluate(&compiled.weights, &[wrong]).unwrap_err().to_string();
    assert_eq!(error, "input `image`: has shape [1, 3, 9, 8], the model takes [batch, 3, 8, 8]");
    let nan = r.tensor(&[1, 3, 8, 8], 1.0).map(|_| f64::NAN);
    let error = compiled.plan.encode_input(0, 1, &nan).unwrap_err().to_string();
    assert!(error.starts_with("input `image`: element 0 is NaN"), "{error}");
    let mut weights = compiled.weights.clone();
    weights[0] = weights[0].map(|_| f64::INFINITY);
    let error = compiled.plan.encode_weights(&weights).unwrap_err().to_string();
    assert!(error.starts_with("weight `conv.weight`: element 0 is inf"), "{error}");
}

#[test]
fn a_broadcast_constant_is_seen_through_but_a_weight_is_never_public() {
    let mut g = Graph::new(1);
    let row = HostTensor::new([1, 2], vec![0.5, -1.0]).unwrap();
    let (public, secret) = (g.public("mask", row.clone()), g.weight("weight", row.clone()));
    let spread = |g: &mut Graph, id| {
        g.add("spread", Op::Broadcast(vec![Dim::Fixed(3), Dim::Fixed(2)]), &[id]).unwrap()
    };
    let (wide_public, wide_secret) = (spread(&mut g, public), spread(&mut g, secret));
    for id in [public, wide_public] {
        assert_eq!(g.public_behind(id), Some(&row));
    }
    for id in [secret, wide_secret] {
        assert_eq!(g.public_behind(id), None);
    }
    for (id, is_secret) in [(wide_public, false), (wide_secret, true)] {
        let whole = g.written_out(id).unwrap();
        let value = g.constant_value(whole).unwrap();
        assert_eq!((value.dims(), value.floats()[4], value.floats()[5]), (&[3, 2][..], 0.5, -1.0));
        assert_eq!(g.is_secret(whole), is_secret);
    }
}

#[test]
fn a_product_with_public_integers_is_not_truncated() {
    let mut r = Random(9);
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let ones = HostTensor::integers([3, 2], vec![1, 0, 1, 1, 0, 1]).unwrap();
    let ones = g.public("ones", ones);
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = g.add("sums", op, &[x, ones]).unwrap();
    g.output("y", y);
    let compiled = same_function(&g, &[r.tensor(&[1, 3], 1.0)]);
    assert_eq!(kinds(&compiled.plan), ["mat_mul"]);
}

/// The kinds of operations that are left of a graph.
fn operations(graph: &Graph) -> Vec<&'static str> {
    compile(graph).plan.operations().map(|operation| operation.kind).collect()
}

#[test]
fn functions_that_are_written_out_as_exponentials_are_found_again() {
    type Form = fn(&mut Graph, ValueId) -> ValueId;
    fn exp(g: &mut Graph, x: ValueId) -> ValueId {
        g.add("exp", Op::Unary(Unary::Exp), &[x]).unwrap()
    }
    fn neg(g: &mut Graph, x: ValueId) -> ValueId {
        g.add("neg", Op::Unary(Unary::Neg), &[x]).unwrap()
    }
    fn op(g: &mut Graph, f: Binary, x: ValueId, y: ValueId) -> ValueId {
        g.add("op", Op::Binary(f), &[x, y]).unwrap()
    }
    fn number(g: &mut Graph, value: f64) -> ValueId {
        g.public("number", HostTensor::scalar(value))
    }
    fn and_one(g: &mut Graph, f: Binary, x: ValueId) -> ValueId {
        let one = number(g, 1.0);
        op(g, f, x, one)
    }
    let forms: [(&str, Form); 7] = [
        ("softplus", |g, x| {
            let e = exp(g, x);
            let sum = and_one(g, Binary::Add, e);
            g.add("log", Op::Unary(Unary::Log), &[sum]).unwrap()
        }),
        ("sigmoid", |g, x| {
            let x = neg(g, x);
            let e = exp(g, x);
            let sum = and_one(g, Binary::Add, e);
            let one = number(g, 1.0);
            op(g, Binary::Div, one, sum)
        }),
        ("sigmoid", |g, x| {
            let x = neg(g, x);
            let e = exp(g, x);
            let sum = and_one(g, Binary::Add, e);
            g.add("inverse", Op::Unary(Unary::Reciprocal), &[sum]).unwrap()
        }),
        ("silu", |g, x| {
            let minus = neg(g, x);
            let e = exp(g, minus);
            let sum = and_one(g, Binary::Add, e);
            op(g, Binary::Div, x, sum)
        }),
        ("tanh", |g, x| {
            let (e, minus) = (exp(g, x), neg(g, x));
            let f = exp(g, minus);
            let (above, below) = (op(g, Binary::Sub, e, f), op(g, Binary::Add, e, f));
            op(g, Binary::Div, above, below)
        }),
        ("tanh", |g, x| {
            let twice = op(g, Binary::Add, x, x);
            let e = exp(g, twice);
            let (above, below) = (and_one(g, Binary::Sub, e), and_one(g, Binary::Add, e));
            op(g, Binary::Div, above, below)
        }),
        ("softmax", |g, x| {
            let e = exp(g, x);
            let sum = Op::Reduce { kind: Reduce::Sum, axes: vec![1], keep: true };
            let sum = g.add("sum", sum, &[e]).unwrap();
            op(g, Binary::Div, e, sum)
        }),
    ];
    for (name, make) in forms {
        let mut g = Graph::new(1);
        let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(5)]).unwrap();
        let y = make(&mut g, x);
        g.output("y", y);
        assert_eq!(operations(&g), [name]);
        let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
        // Beyond 11.09, where an exponential ends.
        let x = HostTensor::new([1, 5], vec![30.0, 27.0, -30.0, 0.5, 29.0]).unwrap();
        let seen = plan.inspect(CpuEngine::new(1), &weights, std::slice::from_ref(&x)).unwrap();
        let right = g.evaluate(&[x]).unwrap().remove(0);
        assert!(distance(&seen.results[0], &right) < 1e-3, "{name}: {:?}", seen.results);
    }
}

#[test]
fn gelu_and_silu_are_found_again_however_they_are_written() {
    use nn_layers::Unary;
    let one = |g: &mut Graph, v: f64| g.weight("number", HostTensor::scalar(v));
    let op = |g: &mut Graph, f: Binary, x, y| g.add("op", Op::Binary(f), &[x, y]).unwrap();
    let function = |g: &mut Graph, f: Unary, x| g.add("f", Op::Unary(f), &[x]).unwrap();
    for form in ["erf", "tanh", "sigmoid", "other"] {
        let mut g = Graph::new(1);
        let input = g.input("x", &[Dim::Batch(1), Dim::Fixed(5)]).unwrap();
        let x = g.add("twice", Op::Binary(Binary::Add), &[input, input]).unwrap();
        let y = match form {
            "erf" => {
                let root = one(&mut g, std::f64::consts::SQRT_2);
                let y = op(&mut g, Binary::Div, x, root);
                let y = function(&mut g, Unary::Erf, y);
                let number = one(&mut g, 1.0);
                let y = op(&mut g, Binary::Add, y, number);
                let y = op(&mut g, Binary::Mul, x, y);
                let half = one(&mut g, 0.5);
                op(&mut g, Binary::Mul, y, half)
            }
            "tanh" => {
                let cube = function(&mut g, Unary::Pow(3.0), x);
                let small = one(&mut g, 0.044_715);
                let y = op(&mut g, Binary::Mul, small, cube);
                let y = op(&mut g, Binary::Add, x, y);
                let root = one(&mut g, 0.797_884_56);
                let y = op(&mut g, Binary::Mul, y, root);
                let y = function(&mut g, Unary::Tanh, y);
                let number = one(&mut g, 1.0);
                let y = op(&mut g, Binary::Add, number, y);
                let half = one(&mut g, 0.5);
                let x = op(&mut g, Binary::Mul, half, x);
                op(&mut g, Binary::Mul, x, y)
            }
            _ => {
                let gate = function(&mut g, Unary::Sigmoid, x);
                let other = if form == "other" { input } else { x };
                op(&mut g, Binary::Mul, other, gate)
            }
        };
        g.output("y", y);
        let wanted = match form {
            "erf" => &["add", "gelu"][..],
            // Up to 5e-4 off: another function.
            "tanh" => {
                assert!(!operations(&g).contains(&"gelu"));
                continue;
            }
            "sigmoid" => &["add", "silu"],
            _ => &["add", "sigmoid", "mul"],
        };
        assert_eq!(operations(&g), wanted, "{form}");
    }
}

#[test]
fn norms_and_logarithms_that_are_written_out_keep_their_range() {
    use nn_layers::{Reduce, Unary};
    let row = |values: &[f64]| HostTensor::new([1, 4], values.to_vec()).unwrap();
    let checked = |g: &Graph, x: HostTensor, relative: f64| {
        let Compiled { plan, weights } = compile(g);
        let seen = plan.inspect(CpuEngine::new(1), &weights, std::slice::from_ref(&x)).unwrap();
        assert_eq!(seen.refusal, None);
        let exact = g.evaluate(&[x]).unwrap();
        let largest = exact[0].floats().iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        let error = distance(&exact[0], &seen.results[0]);
        assert!(error < relative * largest, "{error} of {largest}");
    };
    let reduced = |kind| Op::Reduce { kind, axes: vec![1], keep: true };
    // x / sqrt(mean(x^2) + epsilon), of numbers whose squares leave the range.
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(4)]).unwrap();
    let squares = g.add("square", Op::Unary(Unary::Pow(2.0)), &[x]).unwrap();
    let mean = g.add("mean", reduced(Reduce::Mean), &[squares]).unwrap();
    let epsilon = g.weight("epsilon", HostTensor::scalar(1e-5));
    let mean = g.add("mean", Op::Binary(Binary::Add), &[mean, epsilon]).unwrap();
    let root = g.add("root", Op::Unary(Unary::InvSqrt), &[mean]).unwrap();
    let y = g.add("y", Op::Binary(Binary::Mul), &[x, root]).unwrap();
    g.output("y", y);
    checked(&g, row(&[2500.0, -3000.0, 100.0, 7.0]), 1e-2);
    // log(sum(exp(x))), where exp alone ends at 11.
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(4)]).unwrap();
    let powers = g.add("exp", Op::Unary(Unary::Exp), &[x]).unwrap();
    let sum = g.add("sum", reduced(Reduce::Sum), &[powers]).unwrap();
    let y = g.add("log", Op::Unary(Unary::Log), &[sum]).unwrap();
    g.output("y", y);
    checked(&g, row(&[40.0, 38.5, -100.0, 39.0]), 1e-5);
}

/// The divisors of rows in the forms that exporters write.
fn length(g: &mut Graph, form: &str, x: ValueId) -> ValueId {
    let over = |kind, keep| Op::Reduce { kind, axes: vec![1], keep };
    let mut add = |op: Op, inputs: &[ValueId]| g.add("length", op, inputs).unwrap();
    let guard = Op::Unary(Unary::Clip(Some(1e-12), None));
    let root = Op::Unary(Unary::Sqrt);
    let length = match form {
        // torch.nn.functional.normalize
        "guarded" => {
            let length = add(over(Reduce::L2, true), &[x]);
            add(guard, &[length])
        }
        // tf.math.l2_normalize
        "guarded inside" => {
            let sum = add(over(Reduce::SumSquare, true), &[x]);
            let sum = add(guard, &[sum]);
            add(root, &[sum])
        }
        "written out" => {
            let squares = add(Op::Binary(Binary::Mul), &[x, x]);
            let sum = add(over(Reduce::Sum, false), &[squares]);
            let length = add(root, &[sum]);
            let kept = [Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(2)];
            add(Op::Reshape(kept.to_vec()), &[length])
        }
        other => panic!("{other}"),
    };
    add(Op::Broadcast(vec![Dim::Batch(1), Dim::Fixed(3), Dim::Fixed(2)]), &[length])
}

#[test]
fn rows_divided_by_their_length_are_normalised_whatever_form_that_has() {
    let x = [2.5e6, 3e-2, -1.9e6, 4e-2, 1.2e6, 0.0];
    let x = HostTensor::new([1, 3, 2], x.to_vec()).unwrap();
    for form in ["guarded", "guarded inside", "written out"] {
        let mut g = Graph::new(1);
        let id = g.input("x", &[Dim::Batch(1), Dim::Fixed(3), Dim::Fixed(2)]).unwrap();
        let length = length(&mut g, form, id);
        let y = g.add("y", Op::Binary(Binary::Div), &[id, length]).unwrap();
        g.output("y", y);
        let Compiled { plan, weights } = same_function(&g, std::slice::from_ref(&x));
        assert!(!kinds(&plan).contains(&"binary".to_owned()), "{form}: {:?}", kinds(&plan));
        let engine = CpuEngine::new(1);
        let seen = plan.inspect(engine, &weights, std::slice::from_ref(&x)).unwrap();
        assert_eq!(seen.refusal, None, "{form}");
        let exact = g.evaluate(std::slice::from_ref(&x)).unwrap();
        let error = distance(&exact[0], &seen.results[0]);
        assert!(error < 1e-4, "{form}: {error}");
    }
    // A guard that fixed point has is another function.
    let mut g = Graph::new(1);
    let id = g.input("x", &[Dim::Batch(1), Dim::Fixed(3), Dim::Fixed(2)]).unwrap();
    let length = g.add("length", Op::Reduce { kind: Reduce::L2, axes: vec![1], keep: true }, &[id]);
    let least = Op::Unary(Unary::Clip(Some(0.5), None));
    let length = g.add("length", least, &[length.unwrap()]).unwrap();
    let y = g.add("y", Op::Binary(Binary::Div), &[id, length]).unwrap();
    g.output("y", y);
    assert!(kinds(&compile(&g).plan).contains(&"binary".to_owned()));
}

/// A table of income, age and assets: how wrong a model of them is in fixed point.
fn error_of_table(build: impl Fn(&mut Graph, ValueId) -> ValueId) -> f64 {
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let y = build(&mut g, x);
    g.output("y", y);
    let row = HostTensor::new([2, 3], vec![52_000.0, 41.0, 310_000.0, 81_500.0, 29.0, 1_500.0]);
    let row = row.unwrap();
    let Compiled { plan, weights } = compile(&g);
    let engine = CpuEngine::new(1);
    let seen = plan.inspect(engine, &weights, std::slice::from_ref(&row)).unwrap();
    assert_eq!(seen.refusal, None);
    let exact = plan.evaluate(&weights, std::slice::from_ref(&row)).unwrap();
    distance(&exact[0], &seen.results[0])
}

#[test]
fn columns_of_different_units_keep_their_precision() {
    let standard = |g: &mut Graph, x: ValueId| {
        let vector = |values: [f64; 3]| HostTensor::new([3], values.to_vec()).unwrap();
        let parts = [
            ("gamma", vector([1.0; 3])),
            ("beta", vector([0.0; 3])),
            ("mean", vector([50_000.0, 40.0, 250_000.0])),
            ("variance", vector([15_000.0 * 15_000.0, 144.0, 90_000.0 * 90_000.0])),
        ];
        let parts = parts.map(|(name, value)| g.weight(name, value));
        let norm = nn_layers::BatchNorm { epsilon: 1e-5, momentum: 0.1 };
        let inputs = [[x].as_slice(), &parts].concat();
        g.add("standard", Op::BatchNorm(norm), &inputs).unwrap()
    };
    let error = error_of_table(standard);
    assert!(error < 2e-4, "{error}");
    // The factors join the next layer's weights.
    let error = error_of_table(|g, x| {
        let y = standard(g, x);
        let y = dense(g, &mut Random(8), y, "fc", 5);
        relu(g, y)
    });
    assert!(error < 2e-4, "{error}");
    // Coefficients of the raw columns.
    let error = error_of_table(|g, x| {
        let coefficients = HostTensor::new([3, 1], vec![-1.3e-5, 0.021, 2.4e-6]).unwrap();
        let w = g.weight("w", coefficients);
        let op = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
        g.add("regression", op, &[x, w]).unwrap()
    });
    assert!(error < 1e-3, "{error}");
}

#[test]
fn columns_whose_weights_are_alike_are_left_alone() {
    let mut r = Random(9);
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(16)]).unwrap();
    let y = dense(&mut g, &mut r, x, "fc", 5);
    g.output("y", y);
    assert_eq!(kinds(&compile(&g).plan), ["linear truncate"]);
}

/// True if the plan of a network over `x`, `[batch, 4, 6]`, keeps its examples apart.
fn apart(build: impl Fn(&mut Graph, ValueId) -> ValueId) -> bool {
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(4), Dim::Fixed(6)]).unwrap();
    let y = build(&mut g, x);
    g.output("y", y);
    Compiled::new(&g, &PlanOptions::default()).unwrap().plan.keeps_examples_apart()
}

#[test]
fn plans_that_mix_the_examples_of_a_batch_are_known() {
    let add = |g: &mut Graph, op: Op, inputs: &[ValueId]| g.add("node", op, inputs).unwrap();
    let weight = |g: &mut Graph, dims: &[usize]| {
        let w = Random(5).tensor(dims, 1.0);
        g.weight("w", w)
    };
    let matmul = |transpose_lhs| Op::MatMul { transpose_lhs, transpose_rhs: false };
    let sum = |axes: &[usize]| Op::Reduce { kind: Reduce::Sum, axes: axes.to_vec(), keep: true };
    let flat = || Op::Reshape(vec![Dim::Batch(1), Dim::Fixed(24)]);

    // An attention's products, rows normalised, maps by weights, shapes that keep the batch in front.
    assert!(apart(|g, x| {
        let turned = add(g, Op::Permute(vec![0, 2, 1]), &[x]);
        let scores = add(g, matmul(false), &[x, turned]);
        let scores = add(g, Op::Softmax { axis: 2, log: false }, &[scores]);
        let seen = add(g, matmul(false), &[scores, x]);
        let sum = add(g, Op::Binary(Binary::Add), &[seen, x]);
        let sum = add(g, Op::Normalize { axis: 2, centre: Centre::Mean, epsilon: 1e-5 }, &[sum]);
        let w = weight(g, &[6, 5]);
        let y = add(g, matmul(false), &[sum, w]);
        add(g, Op::Reduce { kind: Reduce::Max, axes: vec![1], keep: false }, &[y])
    }));
    // Tokens of all examples in one axis, as language models have them.
    assert!(apart(|g, x| {
        let rows = add(g, Op::Reshape(vec![Dim::Batch(4), Dim::Fixed(6)]), &[x]);
        let w = weight(g, &[6, 3]);
        let y = add(g, matmul(false), &[rows, w]);
        let y = add(g, Op::Unary(Unary::Relu), &[y]);
        add(g, Op::Reshape(vec![Dim::Batch(1), Dim::Fixed(12)]), &[y])
    }));
    // A number of the whole batch reaches every example.
    for op in [sum(&[0]), sum(&[0, 2]), Op::Softmax { axis: 0, log: false }] {
        assert!(!apart(|g, x| {
            let all = add(g, op.clone(), &[x]);
            add(g, Op::Binary(Binary::Sub), &[x, all])
        }));
    }
    // The examples change places, or are met by their places.
    assert!(!apart(|g, x| {
        let turned = add(g, Op::Permute(vec![1, 0, 2]), &[x]);
        let rows = add(g, Op::Reshape(vec![Dim::Batch(1), Dim::Fixed(24)]), &[turned]);
        add(g, Op::Unary(Unary::Relu), &[rows])
    }));
    assert!(!apart(|g, x| {
        let flat = add(g, flat(), &[x]);
        let products = add(g, matmul(true), &[flat, flat]);
        add(g, matmul(false), &[flat, products])
    }));
    // A result that is not cut by examples.
    assert!(!apart(|g, x| add(g, sum(&[0, 1, 2]), &[x])));
}

/// Two layers of four channels, the weights of channel `i` multiplied by `factors[i]` and divided by it in the second
/// layer.
fn unbalanced(form: &str, factors: [f64; 4]) -> Graph {
    let mut r = Random(5);
    let mut weight =
        |g: &mut Graph, dims: &[usize], channel: &dyn Fn(usize) -> usize, sign: i32| {
            let values = r.tensor(dims, 0.7);
            let values = values.floats();
            let scaled = values.iter().enumerate().map(|(i, v)| v * factors[channel(i)].powi(sign));
            g.weight("w", HostTensor::new(dims, scaled.collect()).unwrap())
        };
    let kernel = |groups| nn_layers::Kernel { groups, window: Pool::new([3; 2], [1; 2]) };
    let mut g = Graph::new(1);
    let pictures = form != "products";
    let x = match pictures {
        true => image(&mut g, 2, 10),
        false => g.input("x", &[Dim::Batch(1), Dim::Fixed(6)]).unwrap(),
    };
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = if pictures {
        let w = weight(&mut g, &[4, 2, 3, 3], &|i| i / 18, 1);
        g.add("first", Op::Conv(kernel(1)), &[x, w]).unwrap()
    } else {
        let w = weight(&mut g, &[6, 4], &|i| i % 4, 1);
        g.add("first", product.clone(), &[x, w]).unwrap()
    };
    let bias: &[usize] = if pictures { &[1, 4, 1, 1] } else { &[4] };
    let bias = weight(&mut g, bias, &|i| i, 1);
    let y = g.add("shift", Op::Binary(Binary::Add), &[y, bias]).unwrap();
    let y = relu(&mut g, y);
    let pooled =
        |g: &mut Graph| g.add("pool", Op::MaxPool(Pool::new([2; 2], [2; 2])), &[y]).unwrap();
    let y = match form {
        "products" => {
            let w = weight(&mut g, &[4, 3], &|i| i / 3, -1);
            g.add("second", product, &[y, w]).unwrap()
        }
        "flattened" => {
            let y = pooled(&mut g);
            let y = flatten(&mut g, y);
            let w = weight(&mut g, &[64, 3], &|i| i / 48, -1);
            g.add("second", product, &[y, w]).unwrap()
        }
        "groups" => {
            let y = pooled(&mut g);
            let w = weight(&mut g, &[6, 2, 3, 3], &|i| i / 54 * 2 + i / 9 % 2, -1);
            g.add("second", Op::Conv(kernel(2)), &[y, w]).unwrap()
        }
        _ => {
            let w = weight(&mut g, &[3, 4, 3, 3], &|i| i / 9 % 4, -1);
            g.add("second", Op::Conv(kernel(1)), &[y, w]).unwrap()
        }
    };
    g.output("y", y);
    g
}

#[test]
fn channels_whose_weights_differ_by_powers_of_ten_keep_their_digits() {
    for form in ["products", "convolutions", "groups", "flattened"] {
        let dims: &[usize] = if form == "products" { &[1, 6] } else { &[1, 2, 10, 10] };
        let x = [Random(9).tensor(dims, 1.0)];
        let run = |factors| {
            let g = unbalanced(form, factors);
            let Compiled { plan, weights } = same_function(&g, &x);
            let seen = plan.inspect(CpuEngine::new(1), &weights, &x).unwrap();
            assert_eq!(seen.refusal, None, "{form}");
            let exact = g.evaluate(&x).unwrap();
            (plan, distance(&exact[0], &seen.results[0]))
        };
        let (plan, error) = run([1.0; 4]);
        assert!(error < 1e-4, "{form}: {error}");
        let (other, error) = run([1e-5, 1e5, 1e2, 1.0]);
        assert!(error < 1e-4, "{form}: {error}");
        // The plan, which servers see, tells nothing of the channels.
        assert_eq!(kinds(&plan), kinds(&other));
    }
}
