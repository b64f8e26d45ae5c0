//! All parties in one process, as the demo and tests run them.

use std::{
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

use gpu_kernels::{AnyEngine, EngineChoice};
use mpc_core::{Deal, Held, Released, Sharing};
use net::{Session, Transport, in_process::sessions_from_seed};
use ring_arith::{Engine, EngineTensor, Shape, ShapeEngine, Tensor};
use rss_protocols::{Options, Rss};

use crate::{
    Error, Result, Shares,
    client::{Answer, reveal_all},
    config::ProtocolChoice,
    id::fill_random,
    program::{self, Mpc, Program, Share, shapes_of, sharing},
    training::{Seen, Training},
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
    let sharing = sharing(ProtocolChoice::Rss);
    let weights = held(sharing, weights)?;
    let input = held(sharing, std::slice::from_ref(input))?;
    let outcomes = parties(sharing.servers(), |me, session, watched| {
        let (engine, _) = engine.open(program::threads_each(sharing.servers()))?;
        let mut mpc = start(session, engine, Options::default())?;
        mpc.agree()?;
        let held = (weights[me].clone(), input[me].clone());
        party(program, &mut mpc, watched, held)
    })?;
    let (released, costs): (Vec<_>, _) = outcomes.into_iter().unzip();
    Ok(Answer { outputs: reveal_all(sharing, released)?, costs })
}

/// What a job of this batch size will send, at each server and by step, where servers have these options: counted in a run
/// of the plan in which shapes are computed and no words. Exact; there are no seconds in it.
///
/// # Errors
/// [`Error::Nn`] if the plan cannot run on this batch.
pub fn predict(program: &Program, batch: usize, options: Options) -> Result<Vec<Cost>> {
    let sharing = sharing(ProtocolChoice::Rss);
    let components = sharing.components();
    let zeros = |shapes: Vec<Shape>| -> Shares {
        let held = |shape| vec![Tensor::zeros(shape); components];
        shapes.into_iter().map(held).collect()
    };
    let weights = zeros(program.weight_shapes());
    let inputs = zeros(program.plan().input_shapes(batch)?);
    parties(sharing.servers(), |_, session, watched| {
        let mut mpc = start(session, AnyEngine::Shapes(ShapeEngine), options)?;
        mpc.agree()?;
        let (_, cost) = party(program, &mut mpc, watched, (weights.clone(), inputs.clone()))?;
        Ok(cost.timeless())
    })
}

/// [`predict`] where two servers play a dealer's tapes, of places for so many examples: what they send each other,
/// and what they take from the tapes.
///
/// # Errors
/// As [`predict`].
pub fn predict_dealt(program: &Program, examples: usize, options: Options) -> Result<Vec<Cost>> {
    let sharing = sharing(ProtocolChoice::RssDealt);
    let weights = program.weight_shapes();
    let inputs = program.plan().input_shapes(examples)?;
    let zeros = |shapes: &[Shape]| -> Shares {
        shapes.iter().map(|shape| vec![Tensor::zeros(shape.clone())]).collect()
    };
    let run = |me: usize, (session, transport): (Session, Box<dyn Transport>)| {
        let watched = Watched::new(transport);
        let session = Session { transport: Box::new(watched.hand()), ..session };
        let mut mpc = Rss::dealt(session, AnyEngine::Shapes(ShapeEngine), options)?;
        // The dealer has no part in secrets.
        let held =
            |shapes: &[Shape]| if me < sharing.servers() { zeros(shapes) } else { Vec::new() };
        let shares = mpc.accept(&weights, held(&weights))?;
        watched.begin();
        program.run_on(&mut mpc, &shares, &inputs, held(&inputs), &mut watched.hand())?;
        Ok::<_, Error>(watched.cost().timeless())
    };
    let transports = net::tape::in_memory(sharing.servers());
    let mut all: Vec<_> =
        sessions_from_seed(transports.len(), 0).into_iter().zip(transports).enumerate().collect();
    // It runs before the others.
    if let Some((dealer, session)) = all.pop() {
        run(dealer, session)?;
    }
    thread::scope(|scope| {
        let run = &run;
        let parties: Vec<_> =
            all.into_iter().map(|(me, session)| scope.spawn(move || run(me, session))).collect();
        let lost = |_| Err(Error::Internal("a party panicked".to_owned()));
        parties.into_iter().map(|party| party.join().unwrap_or_else(lost)).collect()
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
    let sharing = sharing(ProtocolChoice::Rss);
    let state = held(sharing, state)?;
    let rows = held(sharing, rows)?;
    let (told, heard) = mpsc::channel();
    let train = || {
        // The sender goes with the threads, so that whoever listens hears of their end.
        let told = Mutex::new(told);
        parties(sharing.servers(), |me, session, watched| {
            let (engine, _) = engine.open(program::threads_each(sharing.servers()))?;
            let mut mpc = start(session, engine, Options::default())?;
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
                // Who listens has gone only if another party failed.
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

/// What an epoch was like.
#[derive(Debug, Clone)]
pub struct Epoch {
    /// Counted from 0.
    pub number: u32,
    /// The options' metrics, each for a row.
    pub metrics: Vec<f64>,
    /// What it took at each party.
    pub costs: Vec<Cost>,
}

/// What a party says after an epoch: which party, the epoch, what it releases of the metrics, its cost.
type Said = (usize, u32, Vec<Released>, Cost);

/// Adds up what the parties say of each epoch, until they have ended.
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

/// Runs what all parties do as threads of this process.
fn parties<T: Send>(
    number: usize,
    task: impl Fn(usize, Session, &Watched) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let mut seed = [0; 8];
    fill_random(&mut seed)?;
    let sessions = sessions_from_seed(number, u64::from_le_bytes(seed));
    let outcomes = net::launch::run_all(sessions, |session| {
        let watched = Watched::new(session.transport);
        let transport = Box::new(watched.hand());
        task(transport.me().0, Session { transport, ..session }, &watched)
    });
    outcomes.into_iter().collect()
}

/// The protocol of one party, with the generator that is quick on its engine.
fn start(session: Session, engine: AnyEngine, options: Options) -> Result<Mpc> {
    let prg = engine.generators().first().map(|generator| generator.name().to_owned());
    program::protocol(Session { prg, ..session }, engine, options)
}

/// One party of a run on what it holds of weights and inputs: what it releases of the results, and what it sent
/// while it computed.
fn party(
    program: &Program,
    mpc: &mut Mpc,
    watched: &Watched,
    (weights, inputs): (Shares, Shares),
) -> Result<(Vec<Released>, Cost)> {
    let weights = take(mpc, weights)?;
    watched.begin();
    let outputs = program.run(mpc, &weights, inputs, &mut watched.hand())?;
    let cost = watched.cost();
    Ok((mpc.release(&outputs.iter().collect::<Vec<_>>())?, cost))
}

fn take(mpc: &mut Mpc, held: Shares) -> Result<Vec<Share>> {
    Ok(mpc.accept(&shapes_of(&held)?, held)?)
}

/// What each party holds of secrets that are dealt here.
fn held(sharing: &dyn Sharing, secrets: &[Tensor]) -> Result<Vec<Vec<Held>>> {
    let shapes: Vec<_> = secrets.iter().map(|secret| secret.shape().clone()).collect();
    let parcels = sharing.deal(secrets)?.into_iter().enumerate();
    parcels.map(|(party, parcel)| Ok(sharing.accept(party, parcel, &shapes)?)).collect()
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
            let counted: Vec<_> = counted.into_iter().map(Cost::timeless).collect();
            assert_eq!(counted, predicted, "{network}, batch {batch}");
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
