//! Three parties in one process, as the demo and tests run them.

use std::{
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

use gpu_kernels::{AnyEngine, EngineChoice};
use mpc_core::Protocol;
use net::{Session, Transport, in_process::sessions_from_seed};
use ring_arith::{Engine, EngineTensor, Shape, ShapeEngine, Tensor};
use rss_protocols::Options;

use crate::{
    Digest, Error, Result, Shares,
    answer::{Component, Refresh, guard_seed, reveal},
    client::Answer,
    config::PARTIES,
    id::fill_random,
    program::{self, Mpc, Program, Share},
    share::Dealt,
    training::Training,
    watch::Watched,
    wire::Cost,
};

/// Secret-shares weights and input among three threads, runs the plan, and adds up what they return:
/// what clients and servers do, without the network between them. Each party has an engine of its own, and
/// its part of the CPU's threads.
///
/// # Errors
/// The first party's failure.
pub fn infer(
    program: &Program,
    weights: &[Tensor],
    input: &Tensor,
    engine: EngineChoice,
) -> Result<Answer> {
    let mut common = [0; 32];
    fill_random(&mut common)?;
    let refresh = Refresh::new(&common, &Digest::default());
    let seed = guard_seed(&common, &Digest::default());
    let (weights, input) = (Shared::new(weights)?, Shared::new(std::slice::from_ref(input))?);
    let outcomes = three(|me, session, watched| {
        let (engine, _) = engine.open(program::threads_each())?;
        let mpc = start(session, engine, Options::default())?;
        let part = |secret: &Shared| secret.dealt.part(me).expand(me, &secret.shapes);
        let (weights, input) = (part(&weights)?, part(&input)?);
        let (outputs, cost) = party(program, mpc, watched, weights, input, seed)?;
        let outputs = outputs.iter().enumerate();
        let fresh = outputs.map(|(at, output)| refresh.component(me, output, at));
        Ok((fresh.collect::<Result<Vec<_>>>()?, cost))
    })?;
    add_up(outcomes)
}

/// What a job of this batch size will send, at each server and by step, where servers have these options: counted in a run
/// of the plan in which shapes are computed and no words. Exact; there are no seconds in it.
///
/// # Errors
/// [`Error::Nn`] if the plan cannot run on this batch.
pub fn predict(program: &Program, batch: usize, options: Options) -> Result<[Cost; PARTIES]> {
    let zeros = |shapes: Vec<Shape>| -> Shares {
        shapes.into_iter().map(Tensor::zeros).map(|zeros| (zeros.clone(), zeros)).collect()
    };
    let weights = zeros(program.weight_shapes());
    let inputs = zeros(program.plan().input_shapes(batch)?);
    three(|_, session, watched| {
        let mpc = start(session, AnyEngine::Shapes(ShapeEngine), options)?;
        let (weights, inputs) = (weights.clone(), inputs.clone());
        let (_, cost) = party(program, mpc, watched, weights, inputs, 0)?;
        Ok(cost.timeless())
    })
}

/// Secret-shares a training's start and data among three threads, which train epoch by epoch. `watch` hears of
/// the metrics, each for a row, after every epoch; they and the last state are added up here, as the client that
/// may see them does. Returns that state.
///
/// # Errors
/// The first party's failure.
pub fn train(
    training: &Training,
    state: &[Tensor],
    rows: &[Tensor],
    engine: EngineChoice,
    watch: &(dyn Fn(Epoch) + Sync),
) -> Result<Vec<Tensor>> {
    let (state, rows) = (Shared::new(state)?, Shared::new(rows)?);
    let mut common = [0; 32];
    fill_random(&mut common)?;
    let (told, heard) = mpsc::channel();
    let parties = || {
        // The sender goes with the threads, so that whoever listens hears of their end.
        let told = Mutex::new(told);
        three(|me, session, watched| {
            let (engine, _) = engine.open(program::threads_each())?;
            let mut mpc = start(session, engine, Options::default())?;
            let part = |secret: &Shared| secret.dealt.part(me).expand(me, &secret.shapes);
            let shares = program::upload(mpc.engine(), part(&state)?)?;
            let mut state = training.plan().secret_state(shares)?;
            let rows = program::upload(mpc.engine(), part(&rows)?)?;
            for epoch in 0..training.course().epochs {
                let began = epoch * training.epoch_steps();
                watched.begin();
                let steps = began..began + training.epoch_steps();
                let hand = &mut watched.hand();
                let job = Digest::of(&[&epoch.to_le_bytes()]);
                let seed = guard_seed(&common, &job);
                let metrics = training.run(&mut mpc, &mut state, &rows, steps, seed, hand)?;
                let refresh = Refresh::new(&common, &job);
                let metrics = released(&mpc, &refresh, me, metrics.iter())?;
                let told = told.lock().unwrap_or_else(PoisonError::into_inner);
                // Who listens has gone only if another party failed.
                let _ = told.send((me, epoch, metrics, watched.cost()));
            }
            let refresh = Refresh::new(&common, &Digest::of(&[b"state"]));
            released(&mpc, &refresh, me, state.shares().into_iter())
        })
    };
    let outcome = thread::scope(|scope| {
        let parties = scope.spawn(parties);
        let listened = listen(training, &heard, watch);
        let outcome = parties.join().map_err(|_| Error::Internal("a party panicked".to_owned()));
        outcome?.and_then(|states| listened.map(|()| states))
    })?;
    join(outcome)
}

/// What an epoch was like.
#[derive(Debug, Clone)]
pub struct Epoch {
    /// Counted from 0.
    pub number: u32,
    /// The options' metrics, each for a row.
    pub metrics: Vec<f64>,
    /// What it took at each party.
    pub costs: [Cost; PARTIES],
}

/// What a party says after an epoch: which party, the epoch, its components of the metrics, its cost.
type Said = (usize, u32, Vec<Component>, Cost);

/// Adds up what the parties say of each epoch, until they have ended.
fn listen(
    training: &Training,
    heard: &mpsc::Receiver<Said>,
    watch: &(dyn Fn(Epoch) + Sync),
) -> Result<()> {
    let mut waiting: Vec<Said> = Vec::new();
    for said in heard {
        let number = said.1;
        waiting.push(said);
        if waiting.iter().filter(|said| said.1 == number).count() < PARTIES {
            continue;
        }
        let (mut now, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|said| said.1 == number);
        waiting = rest;
        now.sort_by_key(|said| said.0);
        let mut parts = now.into_iter().map(|(_, _, components, cost)| (components, cost));
        let (Some((a, x)), Some((b, y)), Some((c, z))) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(Error::Internal("three parties say three things".to_owned()));
        };
        let sums = join([a, b, c])?;
        let began = number * training.epoch_steps();
        let steps = began..began + training.epoch_steps();
        let metrics = training.decode_metrics(&sums, steps)?;
        watch(Epoch { number, metrics, costs: [x, y, z] });
    }
    Ok(())
}

/// A party's components of shares, as they leave it.
fn released<'a>(
    mpc: &Mpc,
    refresh: &Refresh,
    me: usize,
    shares: impl Iterator<Item = &'a Share>,
) -> Result<Vec<Component>> {
    let each = shares.enumerate().map(|(index, share)| {
        refresh.component(me, &program::download(mpc.engine(), share)?, index)
    });
    each.collect()
}

/// Adds up what the three parties hold of several tensors.
fn join([zero, one, two]: [Vec<Component>; PARTIES]) -> Result<Vec<Tensor>> {
    let parts = zero.into_iter().zip(one).zip(two);
    parts.map(|((x, y), z)| reveal(&[x, y, z])).collect()
}

/// Runs what three parties do as threads of this process.
fn three<T: Send>(
    task: impl Fn(usize, Session, &Watched) -> Result<T> + Sync,
) -> Result<[T; PARTIES]> {
    let mut seed = [0; 8];
    fill_random(&mut seed)?;
    let sessions = sessions_from_seed(PARTIES, u64::from_le_bytes(seed));
    let outcomes = net::launch::run_all(sessions, |session| {
        let watched = Watched::new(session.transport);
        let transport = Box::new(watched.hand());
        task(transport.me().0, Session { transport, ..session }, &watched)
    });
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    outcomes
        .try_into()
        .map_err(|_| Error::Internal("three parties return three results".to_owned()))
}

/// The protocol of one party, with the generator that is quick on its engine.
fn start(session: Session, engine: AnyEngine, options: Options) -> Result<Mpc> {
    let prg = engine.generators().first().map(|generator| generator.name().to_owned());
    program::protocol(Session { prg, ..session }, engine, options)
}

/// One party of a run: its shares of the results, and what it sent while it computed.
fn party(
    program: &Program,
    mut mpc: Mpc,
    watched: &Watched,
    weights: Shares,
    inputs: Shares,
    seed: u64,
) -> Result<(Shares, Cost)> {
    let weights = program::upload(mpc.engine(), weights)?;
    watched.begin();
    let outputs = program.run(&mut mpc, &weights, inputs, seed, &mut watched.hand())?;
    Ok((outputs, watched.cost()))
}

fn add_up([(zero, a), (one, b), (two, c)]: [(Vec<Component>, Cost); PARTIES]) -> Result<Answer> {
    Ok(Answer { outputs: join([zero, one, two])?, costs: [a, b, c] })
}

struct Shared {
    dealt: Dealt,
    shapes: Vec<Shape>,
}

impl Shared {
    fn new(secrets: &[Tensor]) -> Result<Self> {
        let shapes = secrets.iter().map(|secret| secret.shape().clone()).collect();
        Ok(Self { dealt: Dealt::new(secrets)?, shapes })
    }
}

#[cfg(test)]
mod tests {
    use models::architectures::{Pooling, RandomWeights, by_name};
    use nn_layers::{Compiled, PlanOptions};

    use super::*;
    use crate::{
        Preprocess,
        import::{Imported, plan},
    };

    /// What is counted in a run is what was predicted: bytes and messages of each server, rounds, each step.
    #[test]
    fn predictions_are_exact() {
        for (network, pooling, batch) in [
            ("lenet", Pooling::Average, 1),
            ("lenet", Pooling::Max, 5),
            ("alexnet-cifar", Pooling::Average, 1),
        ] {
            let graph = by_name(network, pooling, &mut RandomWeights::new(5)).unwrap();
            let compiled = Compiled::new(&graph, &PlanOptions::default()).unwrap();
            let weights = compiled.plan.encode_weights(&compiled.weights).unwrap();
            let program = Program::new(compiled.plan.with_guard(true)).unwrap();
            let shape = program.plan().input_shapes(batch).unwrap().remove(0);
            let input = Tensor::from_fn(shape, |at| (at as u64 * 7919) % (1 << 20));
            let counted = infer(&program, &weights, &input, EngineChoice::Cpu).unwrap().costs;
            let predicted = predict(&program, batch, Options::default()).unwrap();
            assert!(counted.iter().all(|cost| cost.bytes > 0 && !cost.steps.is_empty()));
            assert_eq!(counted.map(Cost::timeless), predicted, "{network}, batch {batch}");
        }
    }

    /// What a network answers whose second layer's weights are larger by a factor, to an input of ones.
    fn answer(factor: f64, guard: bool) -> Result<Vec<Vec<Vec<f64>>>> {
        let graph = by_name("lenet", Pooling::Average, &mut RandomWeights::new(5)).unwrap();
        let Imported { program, about, values, .. } =
            plan("lenet", &graph, 20, Preprocess::default(), vec![])?;
        let names = program.plan().weights();
        let louder = values.iter().zip(&names).map(|(value, spec)| {
            let second = spec.name.starts_with("conv2") && spec.name.ends_with("weight");
            if second { value.map(|v| v * factor) } else { value.clone() }
        });
        let weights = program.plan().encode_weights(&louder.collect::<Vec<_>>())?;
        let imported = Imported { program, about, weights, values };
        let Imported { program, about, weights, .. } =
            if guard { imported } else { imported.without_guard()? };
        let shape = program.plan().input_shapes(1)?.remove(0);
        let input = Tensor::from_fn(shape, |_| 1 << 20);
        about.decode(1, &infer(&program, &weights, &input, EngineChoice::Cpu)?.outputs)
    }

    #[test]
    fn an_answer_whose_values_left_their_range_is_an_error_that_names_the_layer() {
        assert_eq!(answer(1.0, true).unwrap()[0][0].len(), 10);
        let error = answer(2f64.powi(30), true).unwrap_err();
        let Error::OutOfRange { layer, .. } = &error else { panic!("{error}") };
        assert_eq!(layer, "conv2", "{error}");
        assert_eq!((error.kind(), error.exit_code()), ("out-of-range", 6));
        // Without the guard there is an answer, and nothing says that it is wrong.
        assert_eq!(answer(2f64.powi(30), false).unwrap()[0][0].len(), 10);
    }
}
