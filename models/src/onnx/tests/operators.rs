//! ONNX's own operator tests: every case is refused or right.
//!
//! The few that ship with the crate run always. All of them run where the environment names the file that
//! `models/scripts/operator_cases.py` has made of the package `onnx`; `cargo xtask operators` does both.

mod table;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use nn_layers::{Compiled, HostTensor, Inspection, PlanOptions};
use prost::Message;

use super::super::proto::{ModelProto, NodeProto, TensorProto};
use super::super::{ImportOptions, dtype, import, tensor};
use crate::Error;

/// Names the file of all cases.
const VARIABLE: &str = "TREFOIL_ONNX_CASES";

/// Names the file into which a line for each case is written.
const REPORT: &str = "TREFOIL_ONNX_REPORT";

/// The least of all 1,884 that are right in some form; only ever raised.
const LEAST_OF_ALL: usize = 1_664;

/// The least of those that ship.
const LEAST_SHIPPED: usize = 319;

/// Texts of errors that refuse a case as a whole, not for its operator, and that need not name a node.
const NO_NODE: [&str; 6] = ["opset", "input `", "output `", "tensor", "weight `", "plan"];

#[derive(Clone, PartialEq, prost::Message)]
struct CasesProto {
    #[prost(message, repeated, tag = "1")]
    case: Vec<CaseProto>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CaseProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    model: Option<ModelProto>,
    #[prost(message, repeated, tag = "3")]
    input: Vec<ValueProto>,
    #[prost(message, repeated, tag = "4")]
    output: Vec<ValueProto>,
    #[prost(float, tag = "5")]
    tolerance: f32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ValueProto {
    #[prost(message, repeated, tag = "1")]
    tensors: Vec<TensorProto>,
    /// 0 for a tensor, 1 for a list of them, 2 for nothing.
    #[prost(int32, tag = "2")]
    sort: i32,
}

/// The inputs that are computed on; the others are the model's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// All.
    Everything,
    /// Those of real numbers: integers and truth values are the model's.
    Reals,
    /// The first alone: the others are weights and choices.
    First,
    /// None: the node is computed when the model is imported.
    Nothing,
}

const FORMS: [Form; 4] = [Form::Everything, Form::Reals, Form::First, Form::Nothing];

/// The outcome of a case in one form.
#[derive(Debug, Clone, PartialEq)]
enum Outcome {
    /// Right in floats, and in fixed point or refused there with this reason.
    Right(Option<String>),
    Refused(String),
    Wrong(String),
}

#[test]
fn what_onnx_tests_of_operators_is_right_or_refused() {
    let (cases, least) = match std::env::var_os(VARIABLE) {
        Some(file) => (read(Path::new(&file)), LEAST_OF_ALL),
        None => (shipped(), LEAST_SHIPPED),
    };
    let (mut report, mut wrong) = (String::new(), String::new());
    let (mut right, mut in_fixed_point) = (BTreeMap::new(), 0);
    for case in &cases {
        let outcomes = FORMS.map(|form| (form, of(case, form)));
        for (form, outcome) in &outcomes {
            let line = format!("{} {form:?}: {outcome:?}\n", case.name);
            report.push_str(&line);
            if let Outcome::Wrong(_) = outcome {
                wrong.push_str(&line);
            }
        }
        if let Some((form, _)) = outcomes.iter().find(|(_, o)| matches!(o, Outcome::Right(_))) {
            *right.entry(*form).or_insert(0) += 1;
        }
        in_fixed_point +=
            usize::from(outcomes[..3].iter().any(|(_, o)| *o == Outcome::Right(None)));
    }
    if let Some(file) = std::env::var_os(REPORT) {
        std::fs::write(file, report).unwrap();
    }
    let total: usize = right.values().sum();
    let mut counts = format!("{} cases, {total} right in some form:", cases.len());
    for (form, count) in &right {
        write!(counts, " {count} {form:?},").unwrap();
    }
    println!("{counts} {in_fixed_point} of them in fixed point on inputs that are not constants");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(total >= least, "{total} are right, {least} were");
}

/// Files of small models with answers that do not come from the importer.
const ANSWERED: [&str; 2] = ["optimised", "composed"];

/// Each is right in fixed point where all inputs are computed on, and never wrong where some are constants.
#[test]
fn models_with_answers_are_right_in_fixed_point() {
    let mut wrong = String::new();
    for case in &answered() {
        for form in FORMS {
            let outcome = of(case, form);
            let right = match outcome {
                Outcome::Wrong(_) => false,
                _ => form != Form::Everything || outcome == Outcome::Right(None),
            };
            if !right {
                writeln!(wrong, "{} {form:?}: {outcome:?}", case.name).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The cases of these files.
fn answered() -> Vec<CaseProto> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    ANSWERED.iter().flat_map(|file| read(&folder.join(format!("{file}.gz")))).collect()
}

/// The cases that ship with the crate.
fn shipped() -> Vec<CaseProto> {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data/operators.gz"))
}

fn read(file: &Path) -> Vec<CaseProto> {
    let mut bytes = vec![];
    GzDecoder::new(&*std::fs::read(file).unwrap()).read_to_end(&mut bytes).unwrap();
    CasesProto::decode(&*bytes).unwrap().case
}

/// Runs a case in a form and returns the outcome.
fn of(case: &CaseProto, form: Form) -> Outcome {
    let Some((model, inputs)) = in_form(case, form) else {
        return Outcome::Refused("the model takes what no tensor here is".to_owned());
    };
    let refused = |e: Error| {
        let text = e.to_string();
        let named = text.contains("node `") || NO_NODE.iter().any(|known| text.contains(known));
        if named { Outcome::Refused(text) } else { Outcome::Wrong(format!("no node in: {text}")) }
    };
    let graph = match import(&model.encode_to_vec(), &ImportOptions::default()) {
        Ok(graph) => graph,
        Err(e) => return refused(e),
    };
    let wanted = match case.output.iter().map(decoded).collect::<Option<Vec<_>>>() {
        Some(wanted) => wanted.concat(),
        None => return Outcome::Wrong("imported, but its results are no tensors here".to_owned()),
    };
    // A real number between two integers is rounded to either, as 32-bit floats happen to put it.
    let quantises = |node: &NodeProto| {
        node.op_type == "Round" || node.op_type.starts_with("Q") || node.op_type.starts_with("Dyn")
    };
    let nodes = model.graph.as_ref().map_or(&[][..], |graph| &graph.node);
    let unit = f64::from(u8::from(nodes.iter().any(quantises)));
    let compiled = match Compiled::new(&graph, &PlanOptions::default()) {
        Ok(compiled) => compiled,
        Err(e) => return refused(e.into()),
    };
    let got = match compiled.plan.evaluate(&compiled.weights, &inputs) {
        Ok(got) => found(case, got),
        Err(e) => return refused(e.into()),
    };
    if let Some(reason) = differ(&got, &wanted, f64::from(case.tolerance), 1e-5, unit) {
        return Outcome::Wrong(reason);
    }
    let engine = ring_arith::CpuEngine::new(1);
    match compiled.plan.inspect(engine, &compiled.weights, &inputs) {
        Ok(Inspection { refusal: None, results, values, .. }) => {
            match differ(&found(case, results), &wanted, 2e-3, 4e-3, unit) {
                None => Outcome::Right(None),
                // The guard finds these on shares.
                Some(reason) if values.iter().any(|value| value.outside.is_some()) => {
                    Outcome::Right(Some(format!("outside of a domain: {reason}")))
                }
                Some(reason) => Outcome::Wrong(format!("in fixed point: {reason}")),
            }
        }
        Ok(Inspection { refusal, .. }) => Outcome::Right(refusal.map(|r| r.reason)),
        Err(e) => Outcome::Right(Some(e.to_string())),
    }
}

/// The model with the inputs that are not computed on as its numbers, and the others.
fn in_form(case: &CaseProto, form: Form) -> Option<(ModelProto, Vec<HostTensor>)> {
    let mut model = case.model.clone()?;
    let graph = model.graph.as_mut()?;
    let mut inputs = vec![];
    let (mut names, mut lists) = (vec![], vec![]);
    for (i, (info, value)) in
        std::mem::take(&mut graph.input).into_iter().zip(&case.input).enumerate()
    {
        let own = |k: usize| {
            if value.sort == 0 { info.name.clone() } else { format!("{}.{k}", info.name) }
        };
        let made = NodeProto { output: vec![info.name.clone()], ..NodeProto::default() };
        match value.sort {
            1 => {
                let input = (0..value.tensors.len()).map(own).collect();
                let op_type = "SequenceConstruct".to_owned();
                lists.push(NodeProto { op_type, input, ..made });
            }
            2 => lists.push(NodeProto { op_type: "Optional".to_owned(), ..made }),
            _ => {}
        }
        for (k, t) in value.tensors.iter().enumerate() {
            let float = dtype::is_float(t.data_type)?;
            let computed = match form {
                Form::Everything => true,
                Form::Reals => float,
                Form::First => i == 0,
                Form::Nothing => false,
            };
            let t = TensorProto { name: own(k), ..t.clone() };
            if computed {
                inputs.push(tensor::decode(&t, None).ok()?);
                names.push(super::value(&t.name, t.data_type, &t.dims));
            } else {
                graph.initializer.push(t);
            }
        }
    }
    graph.input = names;
    graph.node.splice(..0, lists);
    Some((model, inputs))
}

/// The tensors of an expected value with their element types; None where one is of a type that none here has.
fn decoded(value: &ValueProto) -> Option<Vec<(i32, HostTensor)>> {
    let read = |t: &TensorProto| Some((t.data_type, tensor::decode(t, None).ok()?));
    value.tensors.iter().map(read).collect()
}

/// Results without the rows that stand for boxes that are not there: ONNX has no such rows.
fn found(case: &CaseProto, mut results: Vec<HostTensor>) -> Vec<HostTensor> {
    if case.name.contains("nonmaxsuppression") {
        let all = results[0].floats().into_owned();
        let rows: Vec<f64> = all.chunks(3).filter(|row| row[0] >= 0.0).flatten().copied().collect();
        results[0] = HostTensor::new([rows.len() / 3, 3], rows).unwrap();
    }
    results
}

/// The first place where results differ by more than `more` plus a part of the wanted number, or integers by more than
/// `unit`.
fn differ(
    got: &[HostTensor],
    wanted: &[(i32, HostTensor)],
    part: f64,
    more: f64,
    unit: f64,
) -> Option<String> {
    if got.len() != wanted.len() {
        return Some(format!("{} results, {} are wanted", got.len(), wanted.len()));
    }
    for (i, (got, (kind, wanted))) in got.iter().zip(wanted).enumerate() {
        if got.dims() != wanted.dims() {
            return Some(format!("result {i}: shape {:?} for {:?}", got.dims(), wanted.dims()));
        }
        // Results of few bits are rounded to them, which nothing here is.
        let part = part.max((2.0 - precision(*kind)).exp2());
        let off = |(a, b): (&f64, &f64)| {
            let same = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= more + part * b.abs();
            (!same).then(|| format!("result {i}: {a} for {b}"))
        };
        let exact = |(a, b): (&f64, &f64)| {
            ((a - b).abs() > unit || a.is_nan()).then(|| format!("result {i}: {a} for {b}"))
        };
        let (got, wanted_values) = (got.floats(), wanted.floats());
        let mut pairs = got.iter().zip(wanted_values.iter());
        let found = if wanted.is_int() { pairs.find_map(exact) } else { pairs.find_map(off) };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Bits of a number of a type, the leading one included.
fn precision(kind: i32) -> f64 {
    match kind {
        dtype::BFLOAT16 => 8.0,
        dtype::FLOAT16 => 11.0,
        kind if dtype::bits(kind) < 16 => 4.0,
        _ => 24.0,
    }
}
