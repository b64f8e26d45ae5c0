//! Compares the bytes and rounds of `bench/results` with those of today's code, which runs by shapes alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use gpu_kernels::AnyEngine;
use mpc_core::{Operand, Profile, Protocol, ServerProtocol};
use net::{Collectives, Metered, Report, Session, Stats};
use nn_layers::Plan;
use nn_layers::train::{Step, TrainPlan};
use ring_arith::{Engine, Shape, ShapeEngine, Tensor};
use rss_protocols::{Options, Rss};
use trefoil::wire::Watched;

use super::models::{MODELS, Model};
use super::party::{self, JOB, Mpc, Setup};
use super::protocols::{OPERATIONS, Operation};
use super::training::{RATE, TRAININGS, Training};
use super::{Record, figures};
use crate::record::OURS;

/// Bytes of the party that sends most, and rounds.
type Counts = (u64, u64);

/// Counts a run.
fn count<S>(
    prepare: impl Fn(&mut Mpc) -> Result<S> + Sync,
    run: impl Fn(&mut Mpc, &mut S) -> Result<()> + Sync,
) -> Result<Counts> {
    let each = party::threads("count", &Setup::in_process(1), |session| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        let control = Watched::new(Box::new(metered));
        let session = Session { transport: Box::new(control.hand()), ..session };
        let engine = AnyEngine::Shapes(ShapeEngine);
        let options = Options::default().profile(Profile::default());
        let mut mpc = Rss::with_options(session, engine, options)?;
        let mut state = prepare(&mut mpc)?;
        mpc.begin_job(&JOB)?;
        // Rounds count from where all are equally far.
        control.hand().barrier()?;
        meter.reset();
        run(&mut mpc, &mut state)?;
        Ok(meter.stats())
    })?;
    let bytes = each.iter().map(Stats::bytes_sent).max().unwrap_or(0);
    Ok((bytes, u64::from(Report::of(&each).rounds)))
}

/// Shares of zeros, without a message.
fn zeros(mpc: &mut Mpc, shapes: &[Shape]) -> Result<Vec<<Mpc as Protocol>::Share>> {
    let zero = |shape: &Shape| -> Result<_> {
        let zero = mpc.engine().upload(Tensor::zeros(shape.clone()))?;
        Ok(mpc.constant(&zero)?)
    };
    shapes.iter().map(zero).collect()
}

fn of_operation(operation: &Operation) -> Result<Counts> {
    count(|mpc| Ok(operation.work.prepare(mpc)?), |mpc, run| Ok(run(mpc)?))
}

fn of_model(model: &Model) -> Result<Counts> {
    let plan = model.compile()?.plan;
    count(
        |mpc| operands(mpc, &plan, model),
        |mpc, (weights, x)| {
            plan.run(mpc, weights, x, &mut ())?;
            Ok(())
        },
    )
}

type Operands = (Vec<Operand<Mpc>>, Vec<Operand<Mpc>>);

fn operands(mpc: &mut Mpc, plan: &Plan, model: &Model) -> Result<Operands> {
    let shapes: Vec<_> = plan.weights().into_iter().map(|weight| weight.shape).collect();
    let weights = zeros(mpc, &shapes)?;
    let x = zeros(mpc, &plan.input_shapes(model.sizes())?)?;
    Ok((plan.secret_weights(weights), plan.secret_inputs(x)))
}

fn of_training(training: &Training) -> Result<Counts> {
    let plan: TrainPlan = training.pair()?.step;
    count(
        |mpc| {
            let rows = zeros(mpc, &plan.batch_shapes()?)?;
            let shapes: Vec<_> = plan.state().into_iter().map(|spec| spec.shape).collect();
            let state = plan.secret_state(zeros(mpc, &shapes)?)?;
            Ok((state, plan.step_plan().secret_inputs(rows), 0))
        },
        |mpc, (state, batch, number)| {
            plan.step(mpc, state, batch, Step::new(*number, RATE), &mut ())?;
            *number += 1;
            Ok(())
        },
    )
}

/// The counts of a case by its path; none of layers, which models hold.
fn counts(suite: &str, case: &str) -> Result<Option<Counts>> {
    let operation = |name: &str, all: &'static [Operation]| all.iter().find(|one| one.name == name);
    let model = |name: &str| MODELS.iter().find(|model| model.case == name);
    let unknown = || format!("there is no case `{case}` any more");
    Ok(Some(match suite {
        _ if case.starts_with("profile/") => return Ok(None),
        // Adam's numbers of a step are public, and its cost depends on them: shapes do not tell it. Nor do they tell the
        // bits that a join opens.
        "training" if case.ends_with("/adam-row") => return Ok(None),
        "protocols" if case.starts_with("join/") => return Ok(None),
        "protocols" => of_operation(operation(case, OPERATIONS).with_context(unknown)?)?,
        "models" => of_model(model(case).with_context(unknown)?)?,
        "training" => {
            let training = TRAININGS.iter().find(|training| training.case == case);
            of_training(training.with_context(unknown)?)?
        }
        "figures" => match operation(case, figures::OPERATIONS) {
            Some(operation) => of_operation(operation)?,
            None => of_model(model(case).with_context(unknown)?)?,
        },
        other => anyhow::bail!("no suite {other}"),
    }))
}

/// Compares the results of suites with the code.
fn compare(suites: &[&str], least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/results");
    // Of lines about one case the last counts, as in the tables.
    let mut last: BTreeMap<(String, String), Counts> = BTreeMap::new();
    for suite in suites {
        let path = folder.join(format!("{suite}.jsonl"));
        for line in fs::read_to_string(path).unwrap().lines() {
            let record: Record = serde_json::from_str(line).unwrap();
            let plain = record
                .protocol
                .as_deref()
                .is_some_and(|name| name.starts_with("rss/") && !name.ends_with("/checked"));
            let counts = record.bytes_per_party.zip(record.rounds);
            if let Some(counts) = counts.filter(|_| record.system == OURS && plain) {
                last.insert((record.suite, record.case), counts);
            }
        }
    }
    assert!(last.len() >= least, "{} cases", last.len());
    let mut wrong = Vec::new();
    // A case over several networks is one.
    let mut known: BTreeMap<(String, String), _> = BTreeMap::new();
    for ((suite, case), stated) in last {
        let path = case.strip_prefix("network/").and_then(|over| over.rsplit_once('/'));
        let path = path.map_or(case.as_str(), |(path, _)| path).to_owned();
        let found = known
            .entry((suite.clone(), path))
            .or_insert_with_key(|(suite, path)| counts(suite, path));
        match found {
            Ok(Some(found)) if *found != stated => {
                wrong.push(format!("{suite}/{case}: {stated:?} in the results, {found:?} now"));
            }
            Ok(_) => {}
            Err(error) => wrong.push(format!("{suite}/{case}: {error:#}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "measure these again (`cargo xtask bench SUITE --only CASE --json bench/results`), then `cargo xtask report`:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn bytes_and_rounds_of_operations_and_trainings_are_those_of_the_code() {
    compare(&["protocols", "training", "figures"], 60);
}

#[test]
fn bytes_and_rounds_of_models_are_those_of_the_code() {
    compare(&["models"], 12);
}
