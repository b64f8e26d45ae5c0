//! A training by all parties in one process.

use std::{
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

use cluster_protocols::{ProtocolChoice, with_protocol};
use gpu_kernels::{AnyEngine, EngineChoice};
use mpc_core::{Deal, Released, ServerProtocol, Settings, Sharing};
use ring_arith::Tensor;

use super::{held, parties, start, threads_each};
use crate::{
    base::{Error, Result, Shares},
    client::reveal_all,
    model::shapes_of,
    training::{Seen, Training},
    wire::Cost,
};

/// Secret-shares a training's start and data among threads, one for each server, which train epoch by epoch. `watch`
/// gets the metrics, each for a row, after every epoch; they and the last state are added up here, as the client that
/// may see them does. Returns that state.
///
/// # Errors
/// The first party's failure.
pub fn train(
    protocol: ProtocolChoice,
    training: &Training,
    state: &[Tensor],
    rows: &[Tensor],
    engine: EngineChoice,
    watch: &(dyn Fn(Epoch) + Sync),
) -> Result<Vec<Tensor>> {
    check_trains(protocol)?;
    with_protocol!(protocol, P => {
        train_by::<P>(protocol.sharing(), training, state, rows, engine, watch)
    })
}

/// Checks that a protocol trains.
///
/// # Errors
/// [`Error::Input`] if it plays tapes.
pub fn check_trains(protocol: ProtocolChoice) -> Result<()> {
    if !protocol.plays_tapes() {
        return Ok(());
    }
    let reason = "servers with a dealer's tapes do not train; choose another protocol";
    Err(Error::input("--protocol", reason))
}

fn train_by<P: ServerProtocol<Engine = AnyEngine>>(
    sharing: &dyn Sharing,
    training: &Training,
    state: &[Tensor],
    rows: &[Tensor],
    engine: EngineChoice,
    watch: &(dyn Fn(Epoch) + Sync),
) -> Result<Vec<Tensor>> {
    let state = held(sharing, state)?;
    let rows = held(sharing, rows)?;
    let (told, heard) = mpsc::channel();
    let train = || {
        // The sender goes with the threads, so that the receiver learns of their end.
        let told = Mutex::new(told);
        parties(sharing.servers(), |me, session, watched| {
            let (engine, _) = engine.open(threads_each(sharing.servers()))?;
            let mut mpc: P = start(session, engine, Settings::default())?;
            mpc.agree()?;
            let mut state = training.plan().secret_state(take(&mut mpc, state[me].clone())?)?;
            let rows = take(&mut mpc, rows[me].clone())?;
            for epoch in 0..training.course().epochs {
                let began = epoch * training.epoch_steps();
                watched.begin();
                let steps = began..began + training.epoch_steps();
                let hand = &mut watched.hand();
                let seed = mpc.seed()?;
                let Seen { sums, left } =
                    training.run(&mut mpc, &mut state, &rows, steps, seed, hand)?;
                let metrics = mpc.release(&sums.iter().chain(&left).collect::<Vec<_>>())?;
                let told = told.lock().unwrap_or_else(PoisonError::into_inner);
                // The receiver has gone only if another party failed.
                let _ = told.send((me, epoch, metrics, watched.cost()));
            }
            Ok(mpc.release(&state.shares())?)
        })
    };
    let outcome = thread::scope(|scope| {
        let trained = scope.spawn(train);
        let listened = listen(training, sharing, &heard, watch);
        let outcome = trained.join().map_err(|_| Error::Internal("a party panicked".to_owned()));
        outcome?.and_then(|states| listened.map(|()| states))
    })?;
    reveal_all(sharing, outcome)
}

/// The results of an epoch.
#[derive(Debug, Clone)]
pub struct Epoch {
    /// Counted from 0.
    pub number: u32,
    /// The options' metrics, each for a row.
    pub metrics: Vec<f64>,
    /// The cost at each party.
    pub costs: Vec<Cost>,
}

/// A party's message after an epoch: its number, the epoch, its part of the metrics, its cost.
type Said = (usize, u32, Vec<Released>, Cost);

/// Adds up what the parties report of each epoch, until they have ended.
fn listen(
    training: &Training,
    sharing: &dyn Sharing,
    heard: &mpsc::Receiver<Said>,
    watch: &(dyn Fn(Epoch) + Sync),
) -> Result<()> {
    let mut waiting: Vec<Said> = Vec::new();
    for said in heard {
        let number = said.1;
        waiting.push(said);
        if waiting.iter().filter(|said| said.1 == number).count() < sharing.servers() {
            continue;
        }
        let (mut now, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|said| said.1 == number);
        waiting = rest;
        now.sort_by_key(|said| said.0);
        let said = now.into_iter().map(|(_, _, released, cost)| (released, cost));
        let (released, costs): (Vec<_>, _) = said.unzip();
        let sums = reveal_all(sharing, released)?;
        let end = (number + 1) * training.epoch_steps();
        let metrics = training.decode_metrics(&sums, end)?.unwrap_or_default();
        watch(Epoch { number, metrics, costs });
    }
    Ok(())
}

fn take<P: Deal>(mpc: &mut P, held: Shares) -> Result<Vec<P::Share>> {
    Ok(mpc.accept(&shapes_of(&held)?, held)?)
}
