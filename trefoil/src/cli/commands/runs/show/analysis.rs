//! An analysis, as owners of data see it.

use std::collections::BTreeMap;

use ring_arith::EngineTensor;
use serde_json::{Value, json};

use super::{few_pairs, getting, joins, progress, sets, shown};
use crate::{
    analysis::{Analysis, Known, Made, Operand, Step},
    base::{
        Result,
        format::{bytes, table},
    },
    cli::output::Output,
    wire::RunState,
};

/// Steps that are printed one by one; of more, how often each function is called.
const FEW: usize = 40;

/// Public numbers of an operand that are printed one by one.
const MOST_PUBLIC: usize = 4;

/// Prints all that an owner of data should know before consenting to an analysis.
pub(super) fn show(state: &RunState, analysis: &Analysis, output: Output) -> Result<()> {
    let run = &state.run;
    let flow = analysis.flow();
    let mut warnings = few_pairs(&run.spec.data);
    if flow.leaves_much() {
        warnings.push(format!(
            "{} numbers leave and {} went in: results can be rows of the data. Consent only if you trust the run's owner \
             with them, or ask for fewer",
            flow.numbers_out(),
            flow.numbers_in
        ));
    }
    let results: Vec<_> = analysis.results().collect();
    let value = json!({
        "name": state.name, "owner": state.owner, "run": run, "analysis": analysis.request(),
        "traffic": analysis.traffic(), "warnings": warnings,
        "leaves": { "flow": flow, "to": getting(state), "numbers_out": flow.numbers_out() },
        "results": results.iter().map(|(name, made)| result(name, made)).collect::<Vec<_>>(),
    });
    output.result(&value, || {
        let named = |(name, made): &(&str, &Made)| format!("{name} {:?}", made.shape.dims());
        let columns: Vec<_> =
            run.columns.iter().flatten().map(|column| column.name.as_str()).collect();
        let traffic = analysis.traffic();
        let mut text = format!(
            "run          {}\nfingerprint  {}\ndata         {}: {} rows in all\n{}",
            state.name,
            shown(run.fingerprint),
            sets(run),
            run.rows,
            joins(&run.spec.data)
        );
        if !columns.is_empty() {
            text += &format!("columns      {}\n", columns.join(", "));
        }
        text += &format!(
            "analysis     {} steps on all rows; {} and {} rounds among three servers with replicated shares\n\
             leaves       {} numbers, once, after the last step, to {}\n\
             {:13}{}\n\
             went in      {} numbers of {} rows\n\
             privacy      no noise is counted: results may tell of single rows, as the steps below say\n",
            analysis.steps(),
            bytes(traffic.bytes),
            traffic.rounds,
            flow.numbers_out(),
            getting(state).join(", "),
            "",
            results.iter().map(named).collect::<Vec<_>>().join(", "),
            flow.numbers_in,
            flow.rows,
        );
        for warning in &warnings {
            text += &format!("WARNING      {warning}\n");
        }
        format!("{text}state        {}\n\n{}", progress(state), steps(analysis))
    })
}

fn result(name: &str, made: &Made) -> Value {
    json!({ "name": name, "shape": made.shape.dims(), "fraction_bits": made.format.frac })
}

/// The steps one by one, or how often each function is called.
fn steps(analysis: &Analysis) -> String {
    let all = &analysis.request().steps;
    if all.len() <= FEW {
        let mut place = analysis.request().inputs.len();
        let rows = all.iter().enumerate().map(|(at, step)| {
            let made = analysis.made(at);
            let shapes = made.iter().map(|made| format!("{:?}", made.shape.dims()));
            let places: Vec<_> = (place..place + made.len()).map(|at| format!("#{at}")).collect();
            place += made.len();
            vec![
                places.join(" "),
                step.name().to_owned(),
                operands(step),
                shapes.collect::<Vec<_>>().join(" "),
            ]
        });
        let heading = ["makes", "function", "of", "shape"];
        return format!(
            "Its steps; #0 and the next are the rows, as the data sets have them:\n{}",
            table(&heading, &rows.collect::<Vec<_>>())
        );
    }
    let mut calls = BTreeMap::<&str, usize>::new();
    for step in all {
        *calls.entry(step.name()).or_default() += 1;
    }
    let rows: Vec<_> =
        calls.iter().map(|(name, count)| vec![(*name).to_owned(), count.to_string()]).collect();
    let table = table(&["function", "steps"], &rows);
    format!("How often it calls each function; `--json` lists all steps in their order:\n{table}")
}

fn operands(step: &Step) -> String {
    let Step::Call(call) = step else {
        return step.needs().iter().map(|place| format!("#{place}")).collect();
    };
    let operands = call.operands.iter().map(|operand| match operand {
        Operand::Secret(place) => format!("#{place}"),
        Operand::Known(known) => public(known),
    });
    let params = call.params.iter().map(|(name, value)| format!("{name}={value}"));
    operands.chain(params).collect::<Vec<_>>().join(" ")
}

/// A few public numbers, or the shape of many.
fn public(known: &Known) -> String {
    let words = known.words.words();
    if words.len() > MOST_PUBLIC {
        return format!("public {:?}", known.words.shape().dims());
    }
    let unit = f64::from(known.frac).exp2();
    let numbers = words.iter().map(|&word| (word as i64 as f64 / unit).to_string());
    format!("({})", numbers.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Call;

    #[test]
    fn the_operands_of_a_step_are_shown_public_numbers_too() {
        let known = |count: usize| {
            let words = (0..count as u64).map(|at| at.wrapping_sub(1)).collect();
            Operand::Known(Known::new(vec![count], words, 1).unwrap())
        };
        let params = [("axis".to_owned(), crate::analysis::Param::Int(1))].into();
        let all = vec![Operand::Secret(3), known(3), known(5)];
        let call = Call { function: "concat".to_owned(), operands: all, params };
        assert_eq!(operands(&Step::Call(call)), "#3 (-0.5, 0, 0.5) public [5] axis=1");
        assert_eq!(operands(&Step::Bound { of: 7, bound: 1.0 }), "#7");
    }
}
