//! Models that no exporter of today writes, built by hand.

mod boxes;
mod masks;
mod operators;
mod past;

use nn_layers::{Compiled, HostTensor, PlanOptions};
use prost::Message;

use super::proto::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto,
    TypeProto, ValueInfoProto,
};
use super::{ImportOptions, import, with_weights};
use crate::Result;

const FLOAT: i32 = 1;
const INT32: i32 = 6;
const INT64: i32 = 7;

/// A model of one input `x` of this shape and of one output `y`.
struct Built {
    opset: i64,
    kind: i32,
    dims: Vec<i64>,
    nodes: Vec<NodeProto>,
    tensors: Vec<TensorProto>,
}

fn model(dims: &[i64]) -> Built {
    Built { opset: 18, kind: FLOAT, dims: dims.to_vec(), nodes: vec![], tensors: vec![] }
}

fn value(name: &str, kind: i32, dims: &[i64]) -> ValueInfoProto {
    let dim = |&size: &i64| DimensionProto { value: Some(DimensionValue::Size(size)) };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let tensor = Some(TensorTypeProto { elem_type: kind, shape });
    ValueInfoProto { name: name.to_owned(), kind: Some(TypeProto { tensor }) }
}

impl Built {
    fn node(mut self, op: &str, inputs: &[&str], output: &str, attributes: &[(&str, i64)]) -> Self {
        let attribute = |&(name, i): &(&str, i64)| AttributeProto {
            name: name.to_owned(),
            i,
            kind: 2,
            ..AttributeProto::default()
        };
        self.nodes.push(NodeProto {
            input: inputs.iter().map(|&name| name.to_owned()).collect(),
            output: vec![output.to_owned()],
            name: format!("{op} to {output}"),
            op_type: op.to_owned(),
            attribute: attributes.iter().map(attribute).collect(),
            ..NodeProto::default()
        });
        self
    }

    fn floats(mut self, name: &str, dims: &[i64], values: &[f32]) -> Self {
        self.tensors.push(TensorProto {
            name: name.to_owned(),
            dims: dims.to_vec(),
            data_type: FLOAT,
            float_data: values.to_vec(),
            ..TensorProto::default()
        });
        self
    }

    fn ints(mut self, name: &str, values: &[i64]) -> Self {
        self.tensors.push(TensorProto {
            name: name.to_owned(),
            dims: vec![values.len() as i64],
            data_type: INT64,
            int64_data: values.to_vec(),
            ..TensorProto::default()
        });
        self
    }

    fn encoded(self) -> Vec<u8> {
        self.proto().encode_to_vec()
    }

    fn proto(self) -> ModelProto {
        let graph = GraphProto {
            node: self.nodes,
            initializer: self.tensors,
            input: vec![value("x", self.kind, &self.dims)],
            output: vec![value("y", FLOAT, &[])],
        };
        let opset = OperatorSetIdProto { domain: String::new(), version: self.opset };
        ModelProto {
            ir_version: 8,
            opset_import: vec![opset],
            graph: Some(graph),
            functions: vec![],
        }
    }

    fn compile(self) -> Result<Compiled> {
        let graph = import(&self.encoded(), &ImportOptions::default())?;
        Ok(Compiled::new(&graph, &PlanOptions::default())?)
    }

    /// The result in fixed point, with every check on.
    fn run(self, x: &[f64]) -> Vec<f64> {
        let dims: Vec<usize> = self.dims.iter().map(|&size| size as usize).collect();
        let x = match self.kind {
            FLOAT => HostTensor::new(dims, x.to_vec()),
            _ => HostTensor::integers(dims, x.iter().map(|&v| v as i64).collect()),
        };
        let Compiled { plan, weights } = self.compile().unwrap();
        let seen = plan.inspect(ring_arith::CpuEngine::new(1), &weights, &[x.unwrap()]).unwrap();
        assert_eq!(seen.refusal, None);
        seen.results[0].floats().into_owned()
    }
}

fn near(got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len());
    let off = got.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off < 1e-3, "{got:?}, expected {wanted:?}");
}

#[test]
fn a_root_of_zero_is_zero() {
    for exponent in [0.3, 1.0 / 3.0, 0.75, 1.7] {
        let y = model(&[1, 3])
            .floats("p", &[], &[exponent as f32])
            .node("Pow", &["x", "p"], "y", &[])
            .run(&[0.0, 1.0, 8.0]);
        near(&y, &[0.0, 1.0, 8f64.powf(f64::from(exponent as f32))]);
    }
}

#[test]
fn the_largest_and_smallest_are_taken_out_of_rows_with_any_numbers() {
    let top = |kind: i32, largest: i64, k: i64, output: [&str; 2], x: &[f64]| {
        let mut model = model(&[1, x.len() as i64]).ints("k", &[k]);
        model.kind = kind;
        let mut model = model.node("TopK", &["x", "k"], output[0], &[("largest", largest)]);
        model.nodes[0].output.push(output[1].to_owned());
        model.run(x)
    };
    for kind in [FLOAT, INT64] {
        for (largest, x, values, places) in [
            (1, [3e7, 1.0, 2.0, 2.0], [3e7, 2.0, 2.0, 1.0], [0.0, 2.0, 3.0, 1.0]),
            (0, [3e7, -3e7, 5.0, 5.0], [-3e7, 5.0, 5.0, 3e7], [1.0, 2.0, 3.0, 0.0]),
            (1, [-7.0, -7.0, -7.0, -8.0], [-7.0, -7.0, -7.0, -8.0], [0.0, 1.0, 2.0, 3.0]),
            (0, [4.0, 4.0, 4.0, 4.0], [4.0; 4], [0.0, 1.0, 2.0, 3.0]),
        ] {
            for k in 1..=4 {
                let values = &values[..k];
                near(&top(kind, largest, k as i64, ["y", "places"], &x), values);
                near(&top(kind, largest, k as i64, ["values", "y"], &x), &places[..k]);
            }
        }
    }
}

/// `Round`, `Hardmax` and `Sign` give whole numbers of a float type, which mix with fractions.
#[test]
fn whole_numbers_of_a_float_type_are_numbers_of_that_type() {
    let clipped = model(&[1, 4])
        .node("Round", &["x"], "whole", &[])
        .floats("low", &[], &[-0.75])
        .floats("high", &[], &[1.25])
        .node("Clip", &["whole", "low", "high"], "y", &[])
        .run(&[-3.2, 0.1, 0.8, 7.0]);
    near(&clipped, &[-0.75, 0.0, 1.0, 1.25]);
    let bordered = model(&[1, 4])
        .node("Hardmax", &["x"], "whole", &[])
        .ints("pads", &[0, 1, 0, 1])
        .floats("value", &[], &[0.375])
        .node("Pad", &["whole", "pads", "value"], "y", &[])
        .run(&[-3.0, 0.0, 5.0, 1.0]);
    near(&bordered, &[0.375, 0.0, 0.0, 1.0, 0.0, 0.375]);
    // Nor do they wrap around as integers.
    let product = model(&[1, 4])
        .node("Sign", &["x"], "signs", &[])
        .node("ReduceProd", &["signs"], "y", &[("keepdims", 0)])
        .run(&[-3.0, 2.0, 5.0, 1.0]);
    near(&product, &[-1.0]);
}

#[test]
fn reductions_without_axes_that_reduce_nothing_still_square_and_take_magnitudes() {
    for (op, wanted) in [
        ("ReduceSum", [-3.0, 2.0]),
        ("ReduceSumSquare", [9.0, 4.0]),
        ("ReduceL1", [3.0, 2.0]),
        ("ReduceL2", [3.0, 2.0]),
    ] {
        let noop = [("noop_with_empty_axes", 1)];
        near(&model(&[1, 2]).node(op, &["x"], "y", &noop).run(&[-3.0, 2.0]), &wanted);
    }
}

#[test]
fn a_slice_backwards_from_before_the_start_takes_the_first_element() {
    let slice = |start: i64, end: i64| {
        model(&[1, 3])
            .ints("start", &[start])
            .ints("end", &[end])
            .ints("axis", &[1])
            .ints("step", &[-1])
            .node("Slice", &["x", "start", "end", "axis", "step"], "y", &[])
            .run(&[5.0, 6.0, 7.0])
    };
    near(&slice(-9, -99), &[5.0]);
    near(&slice(9, -99), &[7.0, 6.0, 5.0]);
    near(&slice(-1, 0), &[7.0, 6.0]);
}

#[test]
fn of_limits_that_cross_the_upper_one_holds() {
    let y = model(&[1, 3])
        .floats("low", &[], &[2.0])
        .floats("high", &[], &[-1.0])
        .node("Clip", &["x", "low", "high"], "y", &[])
        .run(&[-5.0, 0.0, 5.0]);
    near(&y, &[-1.0; 3]);
}

#[test]
fn integers_are_added_before_they_are_looked_up() {
    let y = Built { kind: INT64, ..model(&[1, 2]) }
        .ints("offset", &[1])
        .floats("table", &[4, 1], &[0.5, 1.5, 2.5, 3.5])
        .node("Add", &["x", "offset"], "at", &[])
        .node("Gather", &["table", "at"], "y", &[])
        .run(&[0.0, 2.0]);
    near(&y, &[1.5, 3.5]);
}

#[test]
fn squares_of_integers_are_summed_as_integers_and_their_root_is_refused() {
    let reduced = |operator: &str| {
        Built { kind: INT64, ..model(&[1, 3]) }.ints("axes", &[1]).node(
            operator,
            &["x", "axes"],
            "y",
            &[],
        )
    };
    near(&reduced("ReduceSumSquare").run(&[1.0, -2.0, 3.0]), &[14.0]);
    let refused = reduced("ReduceL2").compile().unwrap_err().to_string();
    assert!(refused.contains("cast them to floats"), "{refused}");
}

#[test]
fn integers_stay_integers_through_differences_products_and_running_sums() {
    // Positions as transformers count them: the tokens that there are before each, moved by 2.
    let y = Built { kind: INT64, ..model(&[1, 4]) }
        .ints("one", &[1])
        .ints("axis", &[1])
        .ints("two", &[2])
        .floats("table", &[6, 1], &[0.5, 1.5, 2.5, 3.5, 4.5, 5.5])
        .node("CumSum", &["x", "axis"], "sums", &[])
        .node("Mul", &["sums", "x"], "counted", &[])
        .node("Sub", &["counted", "one"], "from zero", &[])
        .node("Add", &["from zero", "two"], "at", &[])
        .node("Gather", &["table", "at"], "y", &[])
        .run(&[1.0, 1.0, 0.0, 1.0]);
    near(&y, &[2.5, 3.5, 1.5, 4.5]);
    let y = Built { kind: INT64, ..model(&[1, 2]) }
        .ints("two", &[2])
        .floats("table", &[5, 1], &[0.5, 1.5, 2.5, 3.5, 4.5])
        .node("Mul", &["x", "two"], "at", &[])
        .node("Gather", &["table", "at"], "y", &[])
        .run(&[2.0, 1.0]);
    near(&y, &[4.5, 2.5]);
}

#[test]
fn counts_that_were_cast_to_real_numbers_divide_as_real_numbers() {
    let built = || {
        Built { kind: INT64, ..model(&[1, 3]) }
            .ints("axis", &[1])
            .ints("one", &[1])
            .node("Equal", &["x", "one"], "ones", &[])
            .node("Cast", &["ones"], "reals", &[("to", 1)])
            .node("ReduceSum", &["reals", "axis"], "count", &[])
            .node("Cast", &["x"], "numbers", &[("to", 1)])
            .node("ReduceSum", &["numbers", "axis"], "sum", &[])
            .node("Div", &["count", "sum"], "y", &[])
    };
    near(&built().run(&[1.0, 1.0, 3.0]), &[0.4]);
    let Compiled { plan, weights } = built().compile().unwrap();
    let x = HostTensor::integers([1, 3], vec![1, 1, 3]).unwrap();
    near(&plan.evaluate(&weights, &[x]).unwrap()[0].floats(), &[0.4]);
}

#[test]
fn a_written_out_root_mean_square_keeps_its_range() {
    let rows = [2e6, -2e6, 2e6, 2e6];
    for inverse in [false, true] {
        let built = model(&[1, 4])
            .ints("axis", &[1])
            .floats("two", &[], &[2.0])
            .floats("epsilon", &[], &[1e-6])
            .node("Pow", &["x", "two"], "square", &[])
            .node("ReduceMean", &["square", "axis"], "mean", &[("keepdims", 1)])
            .node("Add", &["mean", "epsilon"], "sum", &[])
            .node("Sqrt", &["sum"], "root", &[]);
        let built = if inverse {
            let built = built.node("Reciprocal", &["root"], "factor", &[]);
            built.node("Mul", &["x", "factor"], "y", &[])
        } else {
            built.node("Div", &["x", "root"], "y", &[])
        };
        near(&built.run(&rows), &[1.0, -1.0, 1.0, 1.0]);
    }
}

#[test]
fn gelu_by_a_hyperbolic_tangent_holds_far_from_zero() {
    let y = model(&[1, 4])
        .floats("three", &[], &[3.0])
        .floats("cubed", &[], &[0.044715])
        .floats("root", &[], &[0.797_884_6])
        .floats("one", &[], &[1.0])
        .floats("half", &[], &[0.5])
        .node("Pow", &["x", "three"], "cube", &[])
        .node("Mul", &["cube", "cubed"], "more", &[])
        .node("Add", &["x", "more"], "sum", &[])
        .node("Mul", &["sum", "root"], "scaled", &[])
        .node("Tanh", &["scaled"], "tanh", &[])
        .node("Add", &["tanh", "one"], "gate", &[])
        .node("Mul", &["x", "gate"], "gated", &[])
        .node("Mul", &["gated", "half"], "y", &[])
        .run(&[-100.0, -1.0, 1.0, 100.0]);
    near(&y, &[0.0, -0.158_808, 0.841_192, 100.0]);
}

#[test]
fn integers_of_few_bits_wrap_around() {
    let y = Built { kind: 2, ..model(&[1, 3]) }
        .ints("five", &[5])
        .node("Cast", &["five"], "less", &[("to", 2)])
        .node("Sub", &["x", "less"], "y", &[])
        .run(&[3.0, 5.0, 200.0]);
    near(&y, &[254.0, 0.0, 195.0]);
}

#[test]
fn nodes_stand_in_any_order_and_what_nobody_reads_is_not_asked_for() {
    let mut built = model(&[1, 2])
        .node("Relu", &["h"], "y", &[])
        .node("Nonsense", &["x"], "unread", &[])
        .node("Neg", &["x"], "h", &[]);
    built.nodes[2].output.push("also".to_owned());
    near(&built.run(&[1.0, -2.0]), &[0.0, 2.0]);
}

#[test]
fn a_node_that_needs_itself_is_named() {
    let built = model(&[1, 2]).node("Relu", &["y"], "h", &[]).node("Neg", &["h"], "y", &[]);
    let refused = built.compile().unwrap_err().to_string();
    assert!(refused.contains("Relu to h") && refused.contains("its own result"), "{refused}");
}

#[test]
fn what_is_in_training_mode_is_refused() {
    let refused = model(&[1, 2])
        .floats("part", &[], &[0.5])
        .ints("yes", &[1])
        .node("Dropout", &["x", "part", "yes"], "y", &[])
        .compile()
        .unwrap_err()
        .to_string();
    assert!(refused.contains("evaluation mode"), "{refused}");
}

#[test]
fn integers_of_a_quantised_model_become_secret_weights() {
    let compiled = model(&[1, 2])
        .ints("q", &[3, -4])
        .floats("scale", &[], &[0.25])
        .node("DequantizeLinear", &["q", "scale"], "w", &[])
        .node("Mul", &["x", "w"], "y", &[])
        .compile()
        .unwrap();
    assert_eq!(compiled.weights.len(), 1);
    assert_eq!(&*compiled.weights[0].floats(), [0.75, -1.0]);
    assert!(!serde_json::to_string(&compiled.plan).unwrap().contains("0.75"));
}

#[test]
fn a_size_for_a_dimension_that_no_input_has_is_refused() {
    let mut built = model(&[1, 2]).node("Relu", &["x"], "y", &[]);
    built.opset = 21;
    let bytes = built.encoded();
    let refused = import(&bytes, &ImportOptions::default().with_dim("length", 3)).unwrap_err();
    assert!(refused.to_string().contains("`length`"), "{refused}");
}

#[test]
fn all_operators_that_cannot_be_run_are_named_with_what_to_export_instead() {
    let built = model(&[1, 2])
        .node("DeformConv", &["x"], "a", &[])
        .node("Relu", &["a"], "b", &[])
        .node("RandomNormalLike", &["b"], "c", &[])
        .node("DeformConv", &["c"], "y", &[]);
    let refused = built.compile().unwrap_err().to_string();
    for wanted in ["`DeformConv to a`", "which places are read", "RandomNormalLike", "an input"] {
        assert!(refused.contains(wanted), "{refused}");
    }
    assert_eq!(refused.matches("which places are read").count(), 1, "{refused}");
}

#[test]
fn the_mean_of_integers_is_an_integer_towards_zero() {
    let mean = |kind| {
        Built { kind, ..model(&[2, 3]) }.ints("axes", &[1]).node(
            "ReduceMean",
            &["x", "axes"],
            "y",
            &[("keepdims", 0)],
        )
    };
    let rows = [-1.0, -1.0, 0.0, 5.0, 7.0, 9.0];
    assert_eq!(mean(INT64).run(&rows), [0.0, 7.0]);
    assert_eq!(mean(INT32).run(&[-7.0, -1.0, 0.0, 1e6, 1e6, 1e6 - 1.0]), [-2.0, 999_999.0]);
    near(&mean(FLOAT).run(&rows), &[-2.0 / 3.0, 7.0]);
}

#[test]
fn products_of_integers_of_32_bits_wrap_around() {
    let square = |kind| Built { kind, ..model(&[4]) }.node("Mul", &["x", "x"], "y", &[]);
    let x = [70_000.0, -65_536.0, 46_340.0, -3.0];
    let wrapped = [70_000i32, -65_536, 46_340, -3].map(|v| f64::from(v.wrapping_mul(v)));
    assert_eq!(square(INT32).run(&x), wrapped);
    assert_eq!(square(INT64).run(&x), x.map(|v| v * v));
}

#[test]
fn attributes_that_an_operator_does_not_have_are_refused_by_name() {
    let refused = |attribute: &str| {
        model(&[2, 2]).node("Softmax", &["x"], "y", &[(attribute, 1)]).compile().map(|_| ())
    };
    refused("axis").unwrap();
    let reason = refused("axes").unwrap_err().to_string();
    assert!(reason.contains("`axes` is not an attribute") && reason.contains("axis"), "{reason}");
}

/// Numbers in a file beside the model become part of the written one, trained or not.
#[test]
fn weights_beside_the_file_are_written_into_it() {
    let built = model(&[2])
        .node("Mul", &["x", "scale"], "scaled", &[])
        .node("Add", &["scaled", "shift"], "y", &[])
        .floats("scale", &[2], &[2.0, 3.0])
        .floats("shift", &[2], &[0.5, -0.5]);
    let mut apart = built.proto();
    let folder = std::env::temp_dir().join(format!("weights-beside-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut data = vec![];
    for tensor in &mut apart.graph.as_mut().unwrap().initializer {
        let numbers = std::mem::take(&mut tensor.float_data);
        let entry =
            |key: &str, value: String| StringStringEntryProto { key: key.to_owned(), value };
        tensor.external_data = vec![
            entry("location", "model.onnx.data".to_owned()),
            entry("offset", data.len().to_string()),
        ];
        tensor.data_location = 1;
        data.extend(numbers.iter().flat_map(|v| v.to_le_bytes()));
    }
    std::fs::write(folder.join("model.onnx.data"), data).unwrap();
    let bytes = apart.encode_to_vec();
    let trained = [("scale".to_owned(), HostTensor::new([2], vec![10.0, 20.0]).unwrap())].into();
    let error = with_weights(&bytes, None, &trained).unwrap_err().to_string();
    assert!(error.contains("`model.onnx.data`, which cannot be opened from here"), "{error}");
    let written = with_weights(&bytes, Some(&folder), &trained).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let graph = import(&written, &ImportOptions::default()).unwrap();
    let y = graph.evaluate(&[HostTensor::new([2], vec![1.0, 1.0]).unwrap()]).unwrap();
    assert_eq!(*y[0].floats(), [10.5, 19.5]);
}

/// Each says what cannot be, and where.
#[test]
fn uses_that_would_tell_a_secret_or_have_no_exact_form_are_refused() {
    let refused = |built: Built, wanted: &str| {
        let reason = built.compile().map(|_| ()).unwrap_err().to_string();
        assert!(reason.contains("to y`") && reason.contains(wanted), "{reason}");
    };
    let picture = model(&[1, 2, 2, 2]).floats("p", &[1, 2, 2, 2], &[0.5; 8]);
    refused(picture.node("GridSample", &["p", "x"], "y", &[]), "which elements are read");
    let whole = |dims: &[i64]| Built { kind: INT64, ..model(dims) };
    let divided = |by: i64| whole(&[3]).ints("d", &[by]).node("Div", &["x", "d"], "y", &[]);
    refused(divided(0), "division by 0");
    refused(divided(1 << 20), "131072 is the largest");
    let signs = model(&[2]).floats("base", &[2], &[1.0, -2.0]);
    refused(signs.node("Pow", &["base", "x"], "y", &[]), "not positive");
    let far = whole(&[100]).ints("old", &[0; 100]).ints("new", &[1; 100]);
    refused(far.node("ScatterElements", &["old", "x", "new"], "y", &[]), "64 are the most");
    let real = model(&[2]).floats("d", &[], &[0.7]);
    refused(real.node("Mod", &["x", "d"], "y", &[("fmod", 1)]), "of computed real numbers");
}

/// A power outside of the domain of its own exponent is found, and no other element's exponent matters.
#[test]
fn elements_are_in_the_domain_of_their_own_exponent_alone() {
    let built = || model(&[1, 2]).floats("p", &[2], &[2.0, 0.5]).node("Pow", &["x", "p"], "y", &[]);
    near(&built().run(&[-3.0, 16.0]), &[9.0, 4.0]);
    let Compiled { plan, weights } = built().compile().unwrap();
    for (x, outside) in [([-3.0, 16.0], false), ([3.0, -16.0], true)] {
        let x = HostTensor::new([1, 2], x.to_vec()).unwrap();
        let seen = plan.inspect(ring_arith::CpuEngine::new(1), &weights, &[x]).unwrap();
        let found = seen.values.iter().any(|value| value.outside.is_some());
        assert_eq!(found, outside);
    }
}

#[test]
fn computed_positions_outside_are_found() {
    let table = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let picked = || {
        Built { kind: INT64, ..model(&[1, 2]) }.floats("table", &[2, 3], &table).node(
            "GatherND",
            &["table", "x"],
            "y",
            &[],
        )
    };
    near(&picked().run(&[1.0, -1.0]), &[6.0]);
    let Compiled { plan, weights } = picked().compile().unwrap();
    for at in [[0, 3], [2, 0], [0, -4]] {
        let at = HostTensor::integers([1, 2], at.to_vec()).unwrap();
        let seen = plan.inspect(ring_arith::CpuEngine::new(1), &weights, &[at]).unwrap();
        assert!(seen.refusal.is_some_and(|refusal| refusal.reason.contains("not one of 1 rows")));
    }
}

/// A plan with a fused operator serves any batch.
#[test]
fn fused_operators_serve_every_batch() {
    let mut built = model(&[0, 3]).floats("w", &[3, 2], &[1.0, -1.0, 0.5, 2.0, 0.25, -3.0]);
    built = built.node("FusedMatMul", &["x", "w"], "y", &[]);
    built.nodes[0].domain = "com.microsoft".to_owned();
    let Compiled { plan, weights } = built.compile().unwrap();
    for rows in [1, 5] {
        let x = HostTensor::new([rows, 3], vec![1.0; rows * 3]).unwrap();
        let y = plan.evaluate(&weights, &[x]).unwrap();
        near(&y[0].floats(), &[1.75, -2.0].repeat(rows));
    }
}

/// A step of grouped attention after earlier ones gives the last row of attention to all positions at once.
#[test]
fn grouped_attention_goes_on_from_earlier_keys_and_values() {
    let step = |mut built: Built, from: [&str; 3], last: i64, outputs: [&str; 3]| {
        let [x, key, value] = from;
        let length = format!("last {last}");
        let operands = [x, "", "", key, value, &length, "total", "cosines", "sines"];
        let heads = [("num_heads", 2), ("kv_num_heads", 1), ("do_rotary", 1)];
        built = built.ints(&length, &[last]).node("GroupQueryAttention", &operands, "", &heads);
        let node = built.nodes.last_mut().unwrap();
        node.domain = "com.microsoft".to_owned();
        node.output = outputs.map(str::to_owned).to_vec();
        built
    };
    let angles = [0.0f32, 0.5, 1.0, 1.5].map(|a| [a.cos(), a.sin()]);
    let mut built = model(&[1, 3, 8])
        .ints("total", &[3])
        .ints("split", &[2, 1])
        .floats("cosines", &[4, 1], &angles.map(|[cosine, _]| cosine))
        .floats("sines", &[4, 1], &angles.map(|[_, sine]| sine));
    built = step(built, ["x", "", ""], 2, ["whole", "", ""]);
    built = built.node("Split", &["x", "split"], "", &[("axis", 1)]);
    built.nodes.last_mut().unwrap().output = ["first", "second"].map(str::to_owned).to_vec();
    built = step(built, ["first", "", ""], 1, ["before", "key", "value"]);
    built = step(built, ["second", "key", "value"], 2, ["after", "", ""]);
    let y = built
        .node("Concat", &["before", "after"], "steps", &[("axis", 1)])
        .node("Sub", &["whole", "steps"], "y", &[])
        .run(&(0..24).map(|i| 2.0 * f64::from(i * i).sin()).collect::<Vec<_>>());
    near(&y, &[0.0; 12]);
}
