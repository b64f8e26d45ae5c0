//! The table of operators in `models/OPERATORS.md`: the domain, accuracy and cost of each operator, measured by
//! running ONNX's own small test of it on shares.

use std::fmt::Write;
use std::path::Path;

use mpc_core::{Protocol, SecretTensor, TestWorld};
use net::{Metered, Party, Report, Session};
use nn_layers::{Compiled, Exactness, HostTensor, PlanOptions};
use prost::Message;
use ring_arith::{CpuEngine, EngineTensor, Tensor};
use rss_protocols::Rss;

use super::super::super::{ImportOptions, import, node, ops};
use super::{
    CaseProto, FORMS, Form, Outcome, answered, decoded, differ, found, in_form, of, shipped,
};

/// Names the file into which the table is to be written.
const VARIABLE: &str = "TREFOIL_ONNX_TABLE";

/// The beginning of the page.
const HEAD: &str = "\
# Operators of ONNX

Every operator that the importer understands. `cargo xtask operators` writes this page, and a test holds it to what
the importer does. Each line is one small test of ONNX's own, or a model with onnxruntime's answer, run among three
servers with as many operands computed as it may have, so that known parameters and positions cost less: how right its
result is (`rounded`: to the last of 20 bits behind the point, sums to a few of them; `to 2^-17`: so much beside the
function, relative to the larger of 1 and the result), in which interval its operands must lie where that is not all
that has an encoding (20 bits behind the point: up to 2^42 in magnitude, integers up to 2^40, and products up to 2^22;
an input below 2^-21 is 0, and a product errs by the rounding of each factor, up to 2^-21, times the other), and what
all servers send for so many numbers of the result. `constants`: computed when the model is imported, at no cost. A
line without figures has no small test among these that can be run on shares.

| operator | result | domain | numbers | bytes | rounds |
|---|---|---|---|---|---|
";

#[test]
fn each_operator_is_right_on_shares_and_the_table_says_its_cost() {
    let cases = [shipped(), answered()].concat();
    let mut page = HEAD.to_owned();
    let mut wrong = vec![];
    let mut names: Vec<&str> = ops::names().collect();
    names.sort_unstable();
    for name in names {
        let own = cases.iter().filter(|case| operator(case).as_deref() == Some(name));
        let line = line(&own.collect::<Vec<_>>()).unwrap_or_else(|difference| {
            wrong.push(difference);
            String::new()
        });
        writeln!(page, "| `{name}` | {line} |").unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if let Some(file) = std::env::var_os(VARIABLE) {
        std::fs::write(file, page).unwrap();
        return;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("OPERATORS.md");
    let there = std::fs::read_to_string(file).unwrap_or_default();
    let changed = page.lines().find(|line| !there.lines().any(|other| other == *line));
    assert_eq!(changed, None, "OPERATORS.md is older; `cargo xtask operators` writes it");
    assert_eq!(page.lines().count(), there.lines().count(), "OPERATORS.md has other lines too");
}

/// The operator that a case is about, if it has no other.
fn operator(case: &CaseProto) -> Option<String> {
    let nodes = &case.model.as_ref()?.graph.as_ref()?.node;
    let first = node::operator(nodes.first()?);
    nodes.iter().all(|other| node::operator(other) == first).then_some(first)
}

/// The table's line for an operator, from the first of its cases in the form in which most is computed.
///
/// # Errors
/// The difference, if the result on shares differs.
fn line(cases: &[&CaseProto]) -> Result<String, String> {
    for form in FORMS {
        let Some(case) = cases.iter().find(|case| of(case, form) == Outcome::Right(None)) else {
            continue;
        };
        if form != Form::Nothing
            && let Some(line) = on_shares(case, form)
        {
            return line;
        }
        return Ok("constants | | | |".to_owned());
    }
    Ok(" | | | |".to_owned())
}

/// Runs a case on shares and compares the results with those of the case. None if nothing is left to compute.
fn on_shares(case: &CaseProto, form: Form) -> Option<Result<String, String>> {
    let (model, inputs) = in_form(case, form)?;
    let graph = import(&model.encode_to_vec(), &ImportOptions::default()).unwrap();
    let compiled = Compiled::new(&graph, &PlanOptions::default()).unwrap();
    compiled.plan.operations().next()?;
    let wanted: Vec<_> = case.output.iter().flat_map(|value| decoded(value).unwrap()).collect();
    let (results, report) = shared(&compiled, &inputs);
    let unit = f64::from(u8::from(
        case.name.contains("quant") || case.name.starts_with('q') || case.name.contains("qlinear"),
    ));
    if let Some(difference) = differ(&found(case, results.clone()), &wanted, 2e-3, 4e-3, unit) {
        return Some(Err(format!("{} {form:?} on shares: {difference}", case.name)));
    }
    let numbers: usize = results.iter().map(HostTensor::len).sum();
    let operations = || compiled.plan.operations();
    let exactness = operations().map(|operation| operation.exactness).reduce(worse)?;
    let mut domains: Vec<String> = vec![];
    let all = operations().flat_map(|operation| operation.domains.into_iter().zip(operation.least));
    for domain in all.filter_map(|(ends, least)| interval(ends, least)) {
        if !domains.contains(&domain) {
            domains.push(domain);
        }
    }
    let domains = domains.join("; ");
    let bytes = report.bytes;
    let rounds = report.rounds;
    Some(Ok(format!("{exactness} | {domains} | {numbers} | {bytes} | {rounds}")))
}

fn worse(a: Exactness, b: Exactness) -> Exactness {
    let bits = |of: Exactness| match of {
        Exactness::Exact => f64::INFINITY,
        Exactness::Rounded => 20.0,
        Exactness::Approximated(bits) => bits,
    };
    if bits(b) < bits(a) { b } else { a }
}

/// An interval in words, with the least magnitude in it; None if every number is allowed.
fn interval([low, high]: [f64; 2], least: f64) -> Option<String> {
    let end = |v: f64| match v.abs().log2() {
        power if v != 0.0 && power.fract() == 0.0 => {
            format!("{}2^{power}", if v < 0.0 { "-" } else { "" })
        }
        _ => format!("{}", (v * 1e3).round() / 1e3),
    };
    let ends = match (low.is_finite(), high.is_finite()) {
        (true, true) => Some(format!("{} to {}", end(low), end(high))),
        (true, false) => Some(format!("from {}", end(low))),
        (false, true) => Some(format!("up to {}", end(high))),
        (false, false) => None,
    };
    let inner = (least > 0.0).then(|| format!("at least {} in magnitude", end(least)));
    match (ends, inner) {
        (Some(ends), Some(inner)) => Some(format!("{ends}, {inner}")),
        (ends, inner) => ends.or(inner),
    }
}

/// The results of three parties, and their traffic after weights and inputs were shared.
fn shared(compiled: &Compiled, inputs: &[HostTensor]) -> (Vec<HostTensor>, Report) {
    let plan = compiled.plan.clone();
    let shapes: Vec<_> = inputs.iter().map(HostTensor::shape).collect();
    let batch = plan.batch_of(&shapes).unwrap();
    let weights = plan.encode_weights(&compiled.weights).unwrap();
    let encoded = inputs.iter().enumerate().map(|(i, x)| plan.encode_input(i, batch, x).unwrap());
    let words = [weights, encoded.collect()];
    let program = move |mut session: Session| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::new(session, CpuEngine::new(1))?;
        let mine = mpc.me() == Party(0);
        let share = |mpc: &mut Rss<CpuEngine>, words: &[Tensor]| {
            let shapes: Vec<_> = words.iter().map(|t| t.shape().clone()).collect();
            mpc.input(Party(0), &shapes, mine.then_some(words))
        };
        let [weights, inputs] = [share(&mut mpc, &words[0])?, share(&mut mpc, &words[1])?];
        meter.reset();
        let weights = plan.secret_weights(weights);
        let inputs = plan.secret_inputs(inputs);
        let results = plan.run(&mut mpc, &weights, &inputs, &mut ()).unwrap();
        let stats = meter.stats();
        let shares: Vec<_> = results.iter().map(SecretTensor::share).collect();
        let opened = mpc.open(&shares)?;
        let decode = |(i, words)| plan.decode_output(i, words).unwrap();
        Ok((opened.iter().enumerate().map(decode).collect::<Vec<_>>(), stats))
    };
    let outcomes = TestWorld::new(3).try_sessions(program);
    let outcomes: Vec<_> = outcomes.into_iter().map(mpc_core::Result::unwrap).collect();
    let (mut results, stats): (Vec<_>, Vec<_>) = outcomes.into_iter().unzip();
    (results.remove(0), Report::of(&stats))
}
