//! Language models that go on from keys and values of earlier steps, in the two forms in which exporters write them.

use mpc_core::{Format, Protocol, SecretTensor, TestWorld};
use net::Session;
use nn_layers::{Caches, Compiled, Graph, HostTensor, PlanOptions, Sizes};
use prost::Message;
use ring_arith::{CpuEngine, Engine, EngineTensor};
use rss_protocols::Rss;

use super::*;
use crate::{architectures::RandomWeights, onnx::Answers};

const WIDTH: usize = 64;
const HEADS: usize = 4;
const SIZE: usize = WIDTH / HEADS;
const LAYERS: usize = 4;
const VOCABULARY: usize = 24;
const PLACES: usize = 64;
const BOOL: i32 = 9;

/// A file being written.
struct File {
    graph: GraphProto,
    random: RandomWeights,
    /// Nodes so far, for names.
    count: usize,
}

fn named(name: &str, kind: i32, dims: &[&str]) -> ValueInfoProto {
    let dim = |name: &&str| DimensionProto {
        value: Some(match name.parse() {
            Ok(size) => DimensionValue::Size(size),
            Err(_) => DimensionValue::Name((*name).to_owned()),
        }),
    };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let tensor = Some(TensorTypeProto { elem_type: kind, shape });
    ValueInfoProto { name: name.to_owned(), kind: Some(TypeProto { tensor }) }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i, kind: 2, ..AttributeProto::default() }
}

fn real(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), f, kind: 1, ..AttributeProto::default() }
}

fn list(name: &str, ints: &[i64]) -> AttributeProto {
    let ints = ints.to_vec();
    AttributeProto { name: name.to_owned(), ints, kind: 7, ..AttributeProto::default() }
}

impl File {
    /// With the inputs and results that optimum and onnxruntime-genai name, for `heads` heads of keys.
    fn new(heads: usize, positions: bool) -> Self {
        let text = ["batch_size", "sequence_length"];
        let mut input = vec![
            named("input_ids", INT64, &text),
            named("attention_mask", INT64, &["batch_size", "total_sequence_length"]),
        ];
        if positions {
            input.push(named("position_ids", INT64, &text));
        }
        let mut output = vec![named("logits", FLOAT, &[])];
        for layer in 0..LAYERS {
            for side in ["key", "value"] {
                let (heads, size) = (heads.to_string(), SIZE.to_string());
                let dims = ["batch_size", &heads, "past_sequence_length", &size];
                input.push(named(&format!("past_key_values.{layer}.{side}"), FLOAT, &dims));
                output.push(named(&format!("present.{layer}.{side}"), FLOAT, &[]));
            }
        }
        let graph = GraphProto { node: vec![], initializer: vec![], input, output };
        Self { graph, random: RandomWeights::new(4), count: 0 }
    }

    /// A node with several results, of a domain that a dot separates from the operator.
    fn nodes(
        &mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attribute: Vec<AttributeProto>,
    ) {
        let (domain, op_type) = operator.rsplit_once('.').unwrap_or(("", operator));
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        self.count += 1;
        self.graph.node.push(NodeProto {
            input: names(inputs),
            output: names(outputs),
            name: format!("{op_type}_{}", self.count),
            op_type: op_type.to_owned(),
            domain: domain.to_owned(),
            attribute,
        });
    }

    /// A node with one result, which it names.
    fn node(&mut self, operator: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let output = format!("v{}", self.count + 1);
        self.nodes(operator, inputs, &[&output], attributes);
        output
    }

    fn weight(&mut self, dims: &[usize], centre: f64, scale: f64) -> String {
        let value = self.random.around(dims, centre, scale).unwrap();
        self.reals(dims, value.floats().iter().map(|&v| v as f32).collect())
    }

    fn reals(&mut self, dims: &[usize], float_data: Vec<f32>) -> String {
        let name = format!("w{}", self.graph.initializer.len());
        self.graph.initializer.push(TensorProto {
            name: name.clone(),
            dims: dims.iter().map(|&n| n as i64).collect(),
            data_type: FLOAT,
            float_data,
            ..TensorProto::default()
        });
        name
    }

    fn ints(&mut self, values: &[i64]) -> String {
        let name = format!("w{}", self.graph.initializer.len());
        self.graph.initializer.push(TensorProto {
            name: name.clone(),
            dims: vec![values.len() as i64],
            data_type: INT64,
            int64_data: values.to_vec(),
            ..TensorProto::default()
        });
        name
    }

    /// A single integer of a value's shape, as a list of one.
    fn size(&mut self, x: &str, axis: i64) -> String {
        let shape = self.node("Shape", &[x], vec![]);
        let axis = self.ints(&[axis]);
        self.node("Gather", &[&shape, &axis], vec![int("axis", 0)])
    }

    fn dense(&mut self, x: &str, inputs: usize, outputs: usize, bias: bool) -> String {
        let weight = self.weight(&[inputs, outputs], 0.0, (3.0 / inputs as f64).sqrt());
        let y = self.node("MatMul", &[x, &weight], vec![]);
        if !bias {
            return y;
        }
        let bias = self.weight(&[outputs], 0.0, 0.1);
        self.node("Add", &[&bias, &y], vec![])
    }

    fn norm(&mut self, x: &str) -> String {
        let scale = self.weight(&[WIDTH], 1.0, 0.1);
        let shift = self.weight(&[WIDTH], 0.0, 0.1);
        let attributes = vec![int("axis", -1), real("epsilon", 1e-5)];
        self.node("LayerNormalization", &[x, &scale, &shift], attributes)
    }

    fn finish(self) -> Vec<u8> {
        let opset =
            |domain: &str, version| OperatorSetIdProto { domain: domain.to_owned(), version };
        let opset_import = vec![opset("", 20), opset("com.microsoft", 1)];
        let graph = Some(self.graph);
        ModelProto { ir_version: 9, opset_import, graph, functions: vec![] }.encode_to_vec()
    }
}

/// GPT-2 as optimum exports it: shapes are computed, the causal mask is cut out of a table of truth values, and the
/// mask of positions is added.
fn gpt2() -> Vec<u8> {
    gpt2_of_window(PLACES)
}

/// The same, but each position sees only so many before it, itself among them.
fn gpt2_of_window(window: usize) -> Vec<u8> {
    let mut f = File::new(HEADS, true);
    let tokens = f.weight(&[VOCABULARY, WIDTH], 0.0, 0.8);
    let places = f.weight(&[PLACES, WIDTH], 0.0, 0.4);
    let words = f.node("Gather", &[&tokens, "input_ids"], vec![]);
    let at = f.node("Gather", &[&places, "position_ids"], vec![]);
    let mut x = f.node("Add", &[&words, &at], vec![]);
    // (1 - mask) * -3.4e38, [batch, 1, 1, total].
    let axes = f.ints(&[1, 2]);
    let mask = f.node("Unsqueeze", &["attention_mask", &axes], vec![]);
    let mask = f.node("Cast", &[&mask], vec![int("to", FLOAT.into())]);
    let one = f.node("Constant", &[], vec![real("value_float", 1.0)]);
    let least = f.node("Constant", &[], vec![real("value_float", f32::MIN)]);
    let mask = f.node("Sub", &[&one, &mask], vec![]);
    let mask = f.node("Mul", &[&mask, &least], vec![]);
    let sees = |row: usize, column: usize| column <= row && row - column < window;
    let rows = (0..PLACES * PLACES).map(|i| i32::from(sees(i / PLACES, i % PLACES))).collect();
    f.graph.initializer.push(TensorProto {
        name: "causal".to_owned(),
        dims: vec![1, 1, PLACES as i64, PLACES as i64],
        data_type: BOOL,
        int32_data: rows,
        ..TensorProto::default()
    });
    for layer in 0..LAYERS {
        let y = f.norm(&x);
        let y = f.dense(&y, WIDTH, 3 * WIDTH, true);
        let parts = ["q", "k", "v"].map(|part| format!("{part}_part{layer}"));
        let names: Vec<_> = parts.iter().map(String::as_str).collect();
        let thirds = f.ints(&[WIDTH as i64; 3]);
        f.nodes("Split", &[&y, &thirds], &names, vec![int("axis", 2)]);
        let heads = parts.map(|part| {
            let (batch, length) = (f.size(&part, 0), f.size(&part, 1));
            let rest = f.ints(&[HEADS as i64, SIZE as i64]);
            let shape = f.node("Concat", &[&batch, &length, &rest], vec![int("axis", 0)]);
            let y = f.node("Reshape", &[&part, &shape], vec![]);
            f.node("Transpose", &[&y], vec![list("perm", &[0, 2, 1, 3])])
        });
        let [k, v] = [("key", &heads[1]), ("value", &heads[2])].map(|(side, new)| {
            let [past, present] =
                ["past_key_values", "present"].map(|n| format!("{n}.{layer}.{side}"));
            f.nodes("Concat", &[&past, new], &[&present], vec![int("axis", -2)]);
            present
        });
        let turned = f.node("Transpose", &[&k], vec![list("perm", &[0, 1, 3, 2])]);
        let scores = f.node("MatMul", &[&heads[0], &turned], vec![]);
        let root = f.node("Constant", &[], vec![real("value_float", (SIZE as f32).sqrt())]);
        let scores = f.node("Div", &[&scores, &root], vec![]);
        let (total, new) = (f.size(&k, 2), f.size(&heads[0], 2));
        let before = f.node("Sub", &[&total, &new], vec![]);
        let (zero, two, three) = (f.ints(&[0]), f.ints(&[2]), f.ints(&[3]));
        let sees = f.node("Slice", &["causal", &before, &total, &two], vec![]);
        let sees = f.node("Slice", &[&sees, &zero, &total, &three], vec![]);
        let scores = f.node("Where", &[&sees, &scores, &least], vec![]);
        let scores = f.node("Add", &[&scores, &mask], vec![]);
        let weights = f.node("Softmax", &[&scores], vec![int("axis", -1)]);
        let y = f.node("MatMul", &[&weights, &v], vec![]);
        let y = f.node("Transpose", &[&y], vec![list("perm", &[0, 2, 1, 3])]);
        let flat = f.ints(&[0, 0, WIDTH as i64]);
        let y = f.node("Reshape", &[&y, &flat], vec![]);
        let y = f.dense(&y, WIDTH, WIDTH, true);
        x = f.node("Add", &[&y, &x], vec![]);
        let y = f.norm(&x);
        let y = f.dense(&y, WIDTH, 2 * WIDTH, true);
        let y = f.node("Gelu", &[&y], vec![]);
        let y = f.dense(&y, 2 * WIDTH, WIDTH, true);
        x = f.node("Add", &[&x, &y], vec![]);
    }
    let x = f.norm(&x);
    let turned = f.node("Transpose", &[&tokens], vec![list("perm", &[1, 0])]);
    f.nodes("MatMul", &[&x, &turned], &["logits"], vec![]);
    f.finish()
}

/// Llama as onnxruntime-genai writes it, with two heads of queries for each head of keys.
fn llama() -> Vec<u8> {
    let shared = HEADS / 2;
    let mut f = File::new(shared, false);
    let tokens = f.weight(&[VOCABULARY, WIDTH], 0.0, 1.0);
    let mut x = f.node("Gather", &[&tokens, "input_ids"], vec![]);
    let one = f.ints(&[1]);
    let sum = f.node("ReduceSum", &["attention_mask", &one], vec![int("keepdims", 1)]);
    let last = f.node("Sub", &[&sum, &one], vec![]);
    let last = f.node("Cast", &[&last], vec![int("to", INT32.into())]);
    let total = f.size("attention_mask", 1);
    let total = f.node("Cast", &[&total], vec![int("to", INT32.into())]);
    let angle = |i: usize| (i / (SIZE / 2)) as f64 * 100f64.powf(-((i % (SIZE / 2)) as f64) / 8.0);
    let table = |turn: fn(f64) -> f64| {
        (0..PLACES * SIZE / 2).map(|i| turn(angle(i)) as f32).collect::<Vec<_>>()
    };
    let [cos, sin] = [f64::cos as fn(f64) -> f64, f64::sin].map(table);
    let (cos, sin) = (f.reals(&[PLACES, SIZE / 2], cos), f.reals(&[PLACES, SIZE / 2], sin));
    let mut y = {
        let scale = f.weight(&[WIDTH], 1.0, 0.1);
        let attributes = vec![int("axis", -1), real("epsilon", 1e-5), int("stash_type", 1)];
        f.node("SimplifiedLayerNormalization", &[&x, &scale], attributes)
    };
    let skip = |f: &mut File, x: &mut String, y: &str| {
        let scale = f.weight(&[WIDTH], 1.0, 0.1);
        let [made, sum] = ["made", "sum"].map(|name| format!("{name}{}", f.count));
        let attributes = vec![real("epsilon", 1e-5)];
        let operator = "com.microsoft.SkipSimplifiedLayerNormalization";
        f.nodes(operator, &[x, y, &scale], &[&made, "", "", &sum], attributes);
        *x = sum;
        made
    };
    for layer in 0..LAYERS {
        let q = f.dense(&y, WIDTH, WIDTH, false);
        let [k, v] = [0, 1].map(|_| f.dense(&y, WIDTH, shared * SIZE, false));
        let [past_k, past_v] =
            ["key", "value"].map(|side| format!("past_key_values.{layer}.{side}"));
        let [k_out, v_out] = ["key", "value"].map(|side| format!("present.{layer}.{side}"));
        let made = format!("attention{layer}");
        let attributes = vec![
            int("num_heads", HEADS as i64),
            int("kv_num_heads", shared as i64),
            real("scale", 1.0 / (SIZE as f32).sqrt()),
            int("do_rotary", 1),
            int("rotary_interleaved", 0),
        ];
        let inputs = [&q, &k, &v, &past_k, &past_v, &last, &total, &cos, &sin];
        let inputs = inputs.map(String::as_str);
        let outputs = [made.as_str(), &k_out, &v_out];
        f.nodes("com.microsoft.GroupQueryAttention", &inputs, &outputs, attributes);
        let made = f.dense(&made, WIDTH, WIDTH, false);
        let between = skip(&mut f, &mut x, &made);
        let gate = f.dense(&between, WIDTH, 2 * WIDTH, false);
        let up = f.dense(&between, WIDTH, 2 * WIDTH, false);
        let open = f.node("Sigmoid", &[&gate], vec![]);
        let gate = f.node("Mul", &[&gate, &open], vec![]);
        let both = f.node("Mul", &[&gate, &up], vec![]);
        let down = f.dense(&both, 2 * WIDTH, WIDTH, false);
        y = skip(&mut f, &mut x, &down);
    }
    let head = f.weight(&[WIDTH, VOCABULARY], 0.0, 0.3);
    f.nodes("MatMul", &[&y, &head], &["logits"], vec![]);
    f.finish()
}

/// Llama in the operators of opset 23, as PyTorch's exporter writes it.
fn opset_23(tables: bool) -> Vec<u8> {
    let shared = HEADS / 2;
    let mut f = File::new(shared, true);
    let tokens = f.weight(&[VOCABULARY, WIDTH], 0.0, 1.0);
    let mut x = f.node("Gather", &[&tokens, "input_ids"], vec![]);
    let angle = |i: usize| (i / (SIZE / 2)) as f64 * 0.5f64.powf((i % (SIZE / 2)) as f64);
    let table = |turn: fn(f64) -> f64| {
        (0..PLACES * SIZE / 2).map(|i| turn(angle(i)) as f32).collect::<Vec<_>>()
    };
    let (cos, sin) = if tables {
        let (cos, sin) = (table(f64::cos), table(f64::sin));
        (f.reals(&[PLACES, SIZE / 2], cos), f.reals(&[PLACES, SIZE / 2], sin))
    } else {
        // As PyTorch's exporters write it: of the products of positions and frequencies.
        let each = (0..SIZE / 2).map(|i| 0.5f32.powi(i as i32)).collect();
        let each = f.reals(&[1, SIZE / 2], each);
        let axes = f.ints(&[2]);
        let places = f.node("Unsqueeze", &["position_ids", &axes], vec![]);
        let places = f.node("Cast", &[&places], vec![int("to", FLOAT.into())]);
        let angles = f.node("MatMul", &[&places, &each], vec![]);
        let turned = ["Cos", "Sin"].map(|turn| {
            let y = f.node(turn, &[&angles], vec![]);
            f.node("Cast", &[&y], vec![int("to", FLOAT.into())])
        });
        turned.into()
    };
    for layer in 0..LAYERS {
        let scale = f.weight(&[WIDTH], 1.0, 0.1);
        let y = f.node("RMSNormalization", &[&x, &scale], vec![int("axis", -1)]);
        let q = f.dense(&y, WIDTH, WIDTH, false);
        let [k, v] = [0, 1].map(|_| f.dense(&y, WIDTH, shared * SIZE, false));
        let [q, k] = [(q, HEADS), (k, shared)].map(|(side, heads)| {
            let heads = vec![int("num_heads", heads as i64)];
            let places = if tables { &["position_ids"][..] } else { &[] };
            f.node("RotaryEmbedding", &[&[&*side, &*cos, &*sin], places].concat(), heads)
        });
        let [past_k, past_v] =
            ["key", "value"].map(|side| format!("past_key_values.{layer}.{side}"));
        let [k_out, v_out] = ["key", "value"].map(|side| format!("present.{layer}.{side}"));
        let made = format!("attention{layer}");
        let attributes = vec![
            int("is_causal", 1),
            int("q_num_heads", HEADS as i64),
            int("kv_num_heads", shared as i64),
        ];
        let inputs = [&q, &k, &v, "", &past_k, &past_v];
        f.nodes("Attention", &inputs, &[&made, &k_out, &v_out], attributes);
        let y = f.dense(&made, WIDTH, WIDTH, false);
        x = f.node("Add", &[&x, &y], vec![]);
    }
    let head = f.weight(&[WIDTH, VOCABULARY], 0.0, 0.3);
    f.nodes("MatMul", &[&x, &head], &["logits"], vec![]);
    let mut model = ModelProto::decode(f.finish().as_slice()).unwrap();
    model.opset_import[0].version = 23;
    model.encode_to_vec()
}

/// A file with two branches, of which the one without caches gives other logits.
fn merged() -> Vec<u8> {
    let mut model = ModelProto::decode(gpt2().as_slice()).unwrap();
    let graph = model.graph.as_mut().unwrap();
    graph.input.push(named("use_cache_branch", BOOL, &["1"]));
    let last = graph.node.last_mut().unwrap();
    last.output = vec!["scores".to_owned()];
    let branch = |name: &str, operator: &str| {
        let node = NodeProto {
            input: vec!["scores".to_owned()],
            output: vec![format!("{operator} scores")],
            op_type: operator.to_owned(),
            ..NodeProto::default()
        };
        let output = vec![named(&format!("{operator} scores"), FLOAT, &[])];
        let body = GraphProto { node: vec![node], output, ..GraphProto::default() };
        let g = Some(Box::new(body));
        AttributeProto { name: name.to_owned(), g, kind: 5, ..AttributeProto::default() }
    };
    graph.node.push(NodeProto {
        input: vec!["use_cache_branch".to_owned()],
        output: vec!["logits".to_owned()],
        op_type: "If".to_owned(),
        attribute: vec![branch("then_branch", "Identity"), branch("else_branch", "Neg")],
        ..NodeProto::default()
    });
    model.encode_to_vec()
}

fn imported(bytes: &[u8], new: usize) -> Graph {
    let options = ImportOptions::default().with_dim("sequence_length", new);
    import(bytes, &options).unwrap()
}

fn compiled(bytes: &[u8], new: usize) -> Compiled {
    Compiled::new(&imported(bytes, new), &PlanOptions::default()).unwrap()
}

fn text() -> Vec<i64> {
    (0..40).map(|i| (i * i + 3 * i) % VOCABULARY as i64).collect()
}

fn tokens(ids: &[i64]) -> HostTensor {
    HostTensor::integers([1, ids.len()], ids.to_vec()).unwrap()
}

/// The logits of a text in steps of these lengths, in the clear.
fn in_the_clear(bytes: &[u8], steps: &[usize]) -> Vec<f64> {
    let text = text();
    let (mut caches, mut logits) = (Caches::new(), vec![]);
    let mut plans = std::collections::HashMap::new();
    for &new in steps {
        let own = plans.entry(new).or_insert_with(|| compiled(bytes, new));
        let ids = tokens(&text[caches.past()..caches.past() + new]);
        let y = own.plan.evaluate_step(&own.weights, &mut caches, &[ids]).unwrap();
        assert_eq!(y[0].dims(), [1, new, VOCABULARY]);
        logits.extend_from_slice(&y[0].floats());
    }
    logits
}

fn off(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The logits of a text, token by token on shares of three parties.
fn on_shares(bytes: Vec<u8>) -> Vec<f64> {
    of_steps_on_shares(move || compiled(&bytes, 1))
}

/// The results of a text's steps of one token on shares of three parties.
fn of_steps_on_shares(compiled: impl Fn() -> Compiled + Send + Sync + 'static) -> Vec<f64> {
    let program = move |session: Session| -> mpc_core::Result<_> {
        let mut mpc = Rss::new(session, CpuEngine::new(1))?;
        let Compiled { plan, weights } = compiled();
        let mut share = |words: &[ring_arith::Tensor]| {
            let shapes: Vec<_> = words.iter().map(|x| x.shape().clone()).collect();
            let words = words.iter().map(|x| mpc.engine().upload(x.clone()));
            let words = words.collect::<ring_arith::Result<Vec<_>>>()?;
            let mine = mpc.me() == net::Party(0);
            mpc.input(net::Party(0), &shapes, mine.then_some(&words))
        };
        let words = plan.encode_weights(&weights).unwrap();
        let weights = plan.secret_weights(share(&words)?);
        let mut ids = vec![];
        for &id in &text() {
            let sizes = Sizes { batch: 1, past: 0 };
            let words = plan.encode_input(0, sizes, &tokens(&[id])).unwrap();
            ids.push(SecretTensor::new(share(&[words])?.remove(0), Format::integer(64)));
        }
        let (mut caches, mut logits) = (Caches::new(), vec![]);
        for id in ids {
            let inputs = [mpc_core::Operand::Secret(id)];
            let y = plan.step(&mut mpc, &weights, &mut caches, &inputs, &mut ()).unwrap();
            let words = mpc.open(&[y[0].share()])?.remove(0);
            let words = mpc.engine().download(&words)?;
            logits.extend_from_slice(&plan.decode_output(0, &words).unwrap().floats());
        }
        Ok(logits)
    };
    let outcomes = TestWorld::new(3).try_sessions(program);
    outcomes.into_iter().next().unwrap().unwrap()
}

/// The bar of both models: token by token on shares, 40 tokens have the logits of the whole at once.
fn agrees(bytes: &[u8]) {
    let whole = in_the_clear(bytes, &[40]);
    assert!(off(&in_the_clear(bytes, &[32, 1, 1, 4, 1, 1]), &whole) < 1e-9);
    assert!(off(&in_the_clear(bytes, &[1; 40]), &whole) < 1e-9);
    // Logits differ from each other, and from place to place.
    let largest = whole.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    assert!(largest > 1.0, "{largest}");
    let error = off(&on_shares(bytes.to_vec()), &whole);
    println!("largest logit {largest}, error 2^{:.1}", error.log2());
    assert!(error < f64::from(-12).exp2(), "{error}");
}

#[test]
fn a_step_draws_the_likeliest_token_where_it_is_cold() {
    let whole = in_the_clear(&gpt2(), &[40]);
    let drawn = of_steps_on_shares(|| {
        let cold = Answers::Sample { temperature: 0.001 };
        let options = ImportOptions::default().with_dim("sequence_length", 1).with_answers(cold);
        Compiled::new(&import(&gpt2(), &options).unwrap(), &PlanOptions::default()).unwrap()
    });
    let mut clear = 0;
    for (scores, token) in whole.chunks(VOCABULARY).zip(&drawn) {
        let mut order: Vec<_> = (0..VOCABULARY).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        if scores[order[0]] - scores[order[1]] > 0.05 {
            assert_eq!(*token, order[0] as f64);
            clear += 1;
        }
    }
    assert!(clear > 20, "{clear}");
}

#[test]
fn gpt2_token_by_token_is_gpt2_at_once() {
    agrees(&gpt2());
}

#[test]
fn llama_token_by_token_is_llama_at_once() {
    agrees(&llama());
}

#[test]
fn operators_of_opset_23_go_on_from_caches() {
    let bytes = opset_23(true);
    let whole = in_the_clear(&bytes, &[40]);
    for steps in [vec![1; 40], vec![16, 16, 1, 1, 2, 4]] {
        let error = off(&in_the_clear(&bytes, &steps), &whole);
        assert!(error < 1e-9, "{steps:?}: {error}");
    }
}

/// Exporters of PyTorch compute cosines and sines of frequencies, where others write tables of them.
#[test]
fn angles_that_are_computed_from_positions_are_those_of_tables() {
    let (computed, tables) = (opset_23(false), opset_23(true));
    let whole = in_the_clear(&tables, &[40]);
    for steps in [vec![40], vec![1; 40], vec![16, 16, 1, 1, 2, 4]] {
        // Tables are of 32-bit floats.
        let error = off(&in_the_clear(&computed, &steps), &whole);
        assert!(error < 1e-5, "{steps:?}: {error}");
    }
    // They are public, so they cost nothing on shares, and without a table no position is the last.
    let [of_tables, own] = [&tables, &computed].map(|bytes| compiled(bytes, 1).plan);
    assert_eq!(own.weights(), of_tables.weights());
    assert_eq!((of_tables.most_past(), own.most_past()), (Some(PLACES - 1), Some((1 << 15) - 1)));
    let error = off(&on_shares(computed), &whole);
    assert!(error < f64::from(-12).exp2(), "{error}");
}

#[test]
fn a_file_for_steps_of_one_length_is_not_taken_for_another() {
    let mut model = ModelProto::decode(gpt2().as_slice()).unwrap();
    let graph = model.graph.as_mut().unwrap();
    graph.input[0] = named("input_ids", INT64, &["batch_size", "2"]);
    let read = |positions| {
        import(&model.encode_to_vec(), &ImportOptions::default().with_positions(positions))
    };
    assert!(read(2).is_ok());
    let error = read(4).unwrap_err().to_string();
    assert!(error.contains("its steps have 2 positions, not 4"), "{error}");
    // One that leaves it open is for any length.
    let any = import(&gpt2(), &ImportOptions::default().with_positions(4)).unwrap();
    let plan = Compiled::new(&any, &PlanOptions::default()).unwrap().plan;
    assert_eq!(plan.new_positions(), Some(4));
}

/// Each position of the text sees 18, itself among them. That is not seen where the network is built for few.
#[test]
fn a_text_ends_where_a_window_of_attention_would_begin_to_hide() {
    let (window, whole) = (gpt2_of_window(18), gpt2());
    let own = in_the_clear(&window, &[1; 18]);
    assert!(off(&own, &in_the_clear(&whole, &[18])) < 1e-9);
    for (new, steps) in [(1, vec![1; 19]), (3, vec![3; 7])] {
        let Compiled { plan, weights } = compiled(&window, new);
        let mut caches = Caches::new();
        let mut step = |at: usize| {
            let ids = tokens(&text()[at..at + new]);
            plan.evaluate_step(&weights, &mut caches, &[ids]).map(|_| ())
        };
        let last = steps.len() - 1;
        (0..last).for_each(|at| step(at * new).unwrap());
        let error = step(last * new).unwrap_err().to_string();
        assert!(error.contains("a text has at most 18"), "{error}");
        let written = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<nn_layers::Plan>(&written).unwrap(), plan);
    }
    assert_eq!(compiled(&whole, 4).plan.most_past(), Some(PLACES - 4));
}

#[test]
fn of_two_branches_the_one_with_caches_is_taken() {
    assert_eq!(in_the_clear(&merged(), &[8, 1, 1]), in_the_clear(&gpt2(), &[8, 1, 1]));
}

#[test]
fn earlier_tokens_and_positions_count() {
    for bytes in [gpt2(), llama(), opset_23(true), opset_23(false)] {
        let Compiled { plan, weights } = compiled(&bytes, 1);
        let last = |text: &[i64]| {
            let mut caches = Caches::new();
            let mut y = vec![];
            for &id in text {
                y = plan.evaluate_step(&weights, &mut caches, &[tokens(&[id])]).unwrap();
            }
            y[0].floats().to_vec()
        };
        let own = last(&[1, 2, 3, 4]);
        assert!(off(&own, &last(&[2, 1, 3, 4])) > 1e-3, "order");
        assert!(off(&own, &last(&[5, 2, 3, 4])) > 1e-3, "the first");
        assert!(off(&own, &last(&[1, 1, 2, 3, 4])) > 1e-3, "one more");
    }
}

#[test]
fn only_tokens_are_inputs_of_a_step() {
    for (bytes, heads) in [(gpt2(), HEADS), (llama(), HEADS / 2)] {
        let plan = compiled(&bytes, 1).plan;
        let states = plan.states();
        assert_eq!(states.len(), 2 * LAYERS);
        let own = |i: &usize| states.iter().all(|state| state.input != *i);
        let others: Vec<_> = (0..plan.inputs().len()).filter(own).collect();
        let names: Vec<_> = others.iter().map(|&i| plan.inputs()[i].name.as_str()).collect();
        assert_eq!(names, ["input_ids"]);
        // A text begins with nothing, and the plan says what it keeps.
        let words = plan.state_words(Sizes { batch: 1, past: 10 }).unwrap();
        assert_eq!(words, 10 * 2 * LAYERS * heads * SIZE);
        // The step's length is that of one token unless it is given.
        let graph = import(&bytes, &ImportOptions::default()).unwrap();
        let again = Compiled::new(&graph, &PlanOptions::default()).unwrap().plan;
        assert_eq!(again, plan);
    }
}

#[test]
fn caches_of_a_given_length_are_inputs_like_others() {
    let lengths =
        [("sequence_length", 1), ("past_sequence_length", 7), ("total_sequence_length", 8)];
    let options =
        lengths.iter().fold(ImportOptions::default(), |o, (name, n)| o.with_dim(name, *n));
    let graph = import(&gpt2(), &options).unwrap();
    let plan = Compiled::new(&graph, &PlanOptions::default()).unwrap().plan;
    assert!(plan.states().is_empty());
    assert_eq!(plan.inputs().len(), 3 + 2 * LAYERS);
    let shapes = plan.input_shapes(1).unwrap();
    assert_eq!(shapes[3].dims(), [1, HEADS, 7, SIZE]);
}

/// The refusal of a file that is changed in one place.
fn refusal(change: impl FnOnce(&mut GraphProto)) -> String {
    let mut model = ModelProto::decode(gpt2().as_slice()).unwrap();
    change(model.graph.as_mut().unwrap());
    import(&model.encode_to_vec(), &ImportOptions::default()).unwrap_err().to_string()
}

#[test]
fn states_that_are_not_extended_are_refused_by_name() {
    let missing = refusal(|graph| graph.output.retain(|output| output.name != "present.2.key"));
    assert!(missing.contains("`past_key_values.2.key` has no result `present.2.key`"), "{missing}");
    let other = refusal(|graph| {
        let node = graph.node.iter_mut().find(|node| node.output[0] == "present.1.value");
        node.unwrap().input.swap(0, 1);
    });
    assert!(other.contains("`present.1.value` is not the state"), "{other}");
    let nameless = refusal(|graph| {
        for input in &mut graph.input {
            if input.name == "input_ids" {
                input.name = "words".to_owned();
            }
        }
        for node in &mut graph.node {
            for input in node.input.iter_mut().filter(|name| *name == "input_ids") {
                *input = "words".to_owned();
            }
        }
    });
    assert!(nameless.contains("no input `input_ids`"), "{nameless}");
    let flat = refusal(|graph| {
        for input in graph.input.iter_mut().filter(|input| input.name == "attention_mask") {
            *input = named("attention_mask", INT64, &["batch_size", "4", "total"]);
        }
    });
    assert!(flat.contains("input `attention_mask` has 3 dimensions"), "{flat}");
}
