//! The shapes, messages and memory of an analysis, by a run without numbers.

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use cluster_protocols::ReplicatedServer;
use gpu_kernels::AnyEngine;
use mpc_core::{Format, Protocol, SecretTensor, ServerProtocol, Settings};
use net::{Metered, Report, Session, Stats, in_process};
use ring_arith::{Engine, Shape, ShapeEngine, Tensor};

use super::{AnalysisRequest, Made, Traffic, refused};
use crate::base::{Error, Result};

/// Parties of the run.
const PARTIES: usize = 3;

/// The time that planning may take: a client's list of steps must not hold a server for longer.
const TIME: Duration = Duration::from_secs(30);

/// The bits of the numbers of data sets: those of any number that was encoded.
pub(super) const WIDTH: u32 = 63;

/// The results of the run.
pub(super) struct Derived {
    /// Of each place.
    pub(super) made: Vec<Made>,
    /// The first place after each step.
    pub(super) next: Vec<usize>,
    pub(super) traffic: Traffic,
}

/// Runs the steps by three parties with an engine that knows shapes alone.
///
/// # Errors
/// [`Error::Refused`] that names the step that fails, or makes more than `most` numbers at a place.
pub(super) fn derive(request: &AnalysisRequest, most: u64) -> Result<Derived> {
    let sessions = in_process::sessions_from_seed(PARTIES, 0);
    let ended = thread::scope(|scope| {
        let parties = sessions.into_iter().map(|session| {
            thread::Builder::new()
                .name("trefoil analysis".to_owned())
                .spawn_scoped(scope, move || party(session, request, most))
        });
        let parties: Vec<_> = parties.collect();
        let ended = parties.into_iter().map(|party| match party {
            Ok(party) => party.join().unwrap_or_else(|_| {
                Err(refused("a function failed an assertion with these operands"))
            }),
            Err(cause) => Err(Error::Internal(format!("a thread that plans: {cause}"))),
        });
        ended.collect::<Vec<_>>()
    });
    // All parties find the same fault; whoever only lost its peers says less.
    let lost = |error: &Error| matches!(error, Error::Mpc(mpc_core::Error::Net(_)));
    let mut stats = Vec::new();
    let mut first = None;
    let mut failed: Option<Error> = None;
    for one in ended {
        match one {
            Ok((derived, sent)) => {
                stats.push(sent);
                first.get_or_insert(derived);
            }
            Err(error) if failed.as_ref().is_none_or(lost) => failed = Some(error),
            Err(_) => {}
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let derived = first.ok_or_else(|| Error::Internal("no party planned".to_owned()))?;
    let bytes = stats.iter().map(Stats::bytes_sent).max().unwrap_or(0);
    let traffic = Traffic { bytes, rounds: Report::of(&stats).rounds };
    Ok(Derived { traffic, ..derived })
}

/// One party's run.
fn party(session: Session, request: &AnalysisRequest, most: u64) -> Result<(Derived, Stats)> {
    let metered = Metered::new(session.transport);
    let meter = metered.meter();
    let session = Session { transport: Box::new(metered), ..session };
    let engine = AnyEngine::Shapes(ShapeEngine);
    let mut mpc = ReplicatedServer::start(session, engine, Settings::default())?;
    mpc.begin_job(&[0; 32])?;
    let began = Instant::now();
    let mut made = Vec::new();
    let mut table = HashMap::new();
    for input in &request.inputs {
        let shape = Shape::new([&[request.rows], &input.dims[..]].concat())?;
        check_size("the rows", &shape, most)?;
        let zeros = mpc.engine().upload(Tensor::zeros(shape))?;
        let format = Format { frac: input.fraction_bits, width: WIDTH };
        let rows = SecretTensor::new(mpc.constant(&zeros)?, format);
        table.insert(made.len() as u64, rows.clone());
        made.push(of(&rows));
    }
    let mut next = Vec::with_capacity(request.steps.len());
    for (at, step) in request.steps.iter().enumerate() {
        let what = || format!("step {at}, `{}`", step.name());
        let results = step.run(&mut mpc, &table).map_err(|cause| match cause {
            mpc_core::Error::Net(_) => Error::from(cause),
            cause => refused(format_args!("{}: {cause}", what())),
        })?;
        for result in results {
            check_size(&what(), result.shape(), most)?;
            made.push(of(&result));
            table.insert(made.len() as u64 - 1, result);
        }
        next.push(made.len());
        if began.elapsed() > TIME {
            return Err(refused(format_args!(
                "after {} s {at} of {} steps are planned; make several smaller analyses",
                TIME.as_secs(),
                request.steps.len()
            )));
        }
    }
    Ok((Derived { made, next, traffic: Traffic::default() }, meter.stats()))
}

fn of<P: Protocol>(x: &SecretTensor<P>) -> Made {
    Made { shape: x.shape().clone(), format: x.format() }
}

fn check_size(what: &str, shape: &Shape, most: u64) -> Result<()> {
    let numbers = shape.len() as u64;
    if numbers <= most {
        return Ok(());
    }
    Err(refused(format_args!(
        "{what}: {numbers} numbers {shape:?}; at most {most} are possible at once"
    )))
}
