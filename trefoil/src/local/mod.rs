//! All parties in one process, as the demo and tests run them.

mod train;

use std::thread;

use bytes::Bytes;
use cluster_protocols::{Computing, ProtocolChoice, start_with_tape, with_protocol};
use gpu_kernels::{AnyEngine, EngineChoice};
use mpc_core::{Deal, Held, Released, ServerProtocol, Settings, Sharing};
use net::{Party, Session, Transport, in_process::sessions_from_seed};
use nn_layers::Sizes;
use ring_arith::{Engine, EngineTensor, Shape, ShapeEngine, Tensor};

pub use train::{Epoch, check_trains, train};

use crate::{
    base::{Error, Result, Shares, id::fill_random},
    client::{Answer, reveal_all},
    model::Program,
    wire::{Cost, Watched},
};

/// Secret-shares weights and input among threads, one for each server, runs the plan, and adds up their results.
/// Clients and servers do the same, with a network between them. Each party has a separate engine, and its part of the
/// CPU's threads.
///
/// # Errors
/// The first party's failure.
pub fn infer(
    protocol: ProtocolChoice,
    program: &Program,
    weights: &[Tensor],
    input: &Tensor,
    engine: EngineChoice,
) -> Result<Answer> {
    let sharing = protocol.sharing();
    let weights = held(program.weight_sharing(sharing)?, weights)?;
    let inputs = held(sharing, std::slice::from_ref(input))?;
    let computing = Computing { protocol, settings: Settings::default() };
    let shapes = vec![input.shape().clone()];
    let run = Run { program, computing, weights, inputs, shapes };
    let outcomes = run.by_all(&|| {
        let (engine, _) = engine.open(threads_each(sharing.servers()))?;
        Ok(engine)
    })?;
    let (released, costs): (Vec<_>, _) = outcomes.into_iter().unzip();
    Ok(Answer { outputs: reveal_all(sharing, released)?, costs })
}

/// The traffic of a job of this batch size, or of a step behind some positions, at each server and by step. It is
/// counted in a run of the plan that computes shapes and no words. Exact; seconds are left out. Where servers play a
/// dealer's tapes, the batch is the number of examples of a place, and bytes from the tapes are counted too.
///
/// # Errors
/// [`Error::Nn`] if the plan cannot run on this batch.
pub fn predict(
    program: &Program,
    sizes: impl Into<Sizes>,
    computing: Computing,
) -> Result<Vec<Cost>> {
    let sharing = computing.protocol.sharing();
    let zeros = |sharing: &dyn Sharing, shapes: &[Shape]| -> Vec<Shares> {
        let held = |shape: &Shape| vec![Tensor::zeros(shape.clone()); sharing.components()];
        vec![shapes.iter().map(held).collect(); sharing.servers()]
    };
    let shapes = program.plan().input_shapes(sizes)?;
    let weights = zeros(program.weight_sharing(sharing)?, &program.weight_shapes());
    let inputs = zeros(sharing, &shapes);
    let run = Run { program, computing, weights, inputs, shapes };
    let outcomes = run.by_all(&|| Ok(AnyEngine::Shapes(ShapeEngine)))?;
    Ok(outcomes.into_iter().map(|(_, cost)| cost.timeless()).collect())
}

/// One run of a plan by all parties.
struct Run<'a> {
    program: &'a Program,
    computing: Computing,
    /// Each server's components of the weights.
    weights: Vec<Shares>,
    /// Each server's components of the inputs.
    inputs: Vec<Shares>,
    /// The inputs' shapes.
    shapes: Vec<Shape>,
}

/// A server's part of the results, and its cost until then.
type Outcome = (Vec<Released>, Cost);

impl Run<'_> {
    fn by_all(&self, engine: &(dyn Fn() -> Result<AnyEngine> + Sync)) -> Result<Vec<Outcome>> {
        let Computing { protocol, settings } = self.computing;
        if protocol.plays_tapes() {
            return self.with_tapes(engine);
        }
        with_protocol!(protocol, P => parties(protocol.servers(), |me, session, watched| {
            let mut mpc: P = start(session, engine()?, settings)?;
            mpc.agree()?;
            meet(&mut watched.hand())?;
            self.by_one(me, mpc, watched)
        }))
    }

    /// The dealer runs first: its messages are the tapes of the others.
    fn with_tapes(&self, engine: &(dyn Fn() -> Result<AnyEngine> + Sync)) -> Result<Vec<Outcome>> {
        let Computing { protocol, settings } = self.computing;
        let run = |me: usize, (session, transport): (Session, Box<dyn Transport>)| {
            let watched = Watched::new(transport);
            let session = Session { transport: Box::new(watched.hand()), ..session };
            self.by_one(me, start_with_tape(session, engine()?, settings)?, &watched)
        };
        let transports = net::tape::in_memory(protocol.servers());
        let sessions = sessions_from_seed(transports.len(), fresh_seed()?);
        let mut all: Vec<_> = sessions.into_iter().zip(transports).enumerate().collect();
        if let Some((dealer, session)) = all.pop() {
            run(dealer, session)?;
        }
        thread::scope(|scope| {
            let run = &run;
            let spawn = |(me, session)| scope.spawn(move || run(me, session));
            let parties: Vec<_> = all.into_iter().map(spawn).collect();
            let lost = |_| Err(Error::Internal("a party panicked".to_owned()));
            parties.into_iter().map(|party| party.join().unwrap_or_else(lost)).collect()
        })
    }

    /// A dealer holds no components.
    fn by_one<P: Deal>(&self, me: usize, mut mpc: P, watched: &Watched) -> Result<Outcome> {
        let held = |all: &[Shares]| all.get(me).cloned().unwrap_or_default();
        mpc.agree()?;
        let weights = self.program.weights(&mut mpc, held(&self.weights))?;
        watched.begin();
        let hand = &mut watched.hand();
        let Self { program, shapes, .. } = self;
        let outputs = if self.computing.protocol.plays_tapes() {
            let callers = self.inputs.get(me).cloned().into_iter().collect();
            program
                .run_place(&mut mpc, &weights, shapes, callers, hand)?
                .into_iter()
                .flatten()
                .collect()
        } else {
            program.run_on(&mut mpc, &weights, shapes, held(&self.inputs), hand)?
        };
        mpc.verify()?;
        let cost = watched.cost();
        Ok((mpc.release(&outputs.iter().collect::<Vec<_>>())?, cost))
    }
}

/// Each party sends every other one a message, as servers do before a job: rounds count from there. A dealer that
/// only sends would count fewer rounds than the others until then.
fn meet(control: &mut dyn Transport) -> Result<()> {
    let others = (0..control.parties()).map(Party).filter(|party| *party != control.me());
    let others: Vec<_> = others.collect();
    for &party in &others {
        control.send(party, Bytes::from_static(&[0]).into())?;
    }
    others.into_iter().try_for_each(|party| Ok(control.receive(party).map(drop)?))
}

/// Runs what all parties do as threads of this process.
fn parties<T: Send>(
    number: usize,
    task: impl Fn(usize, Session, &Watched) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let sessions = sessions_from_seed(number, fresh_seed()?);
    let outcomes = net::launch::run_all(sessions, |session| {
        let watched = Watched::new(session.transport);
        let transport = Box::new(watched.hand());
        task(transport.me().0, Session { transport, ..session }, &watched)
    });
    outcomes.into_iter().collect()
}

/// A seed from the operating system.
fn fresh_seed() -> Result<u64> {
    let mut seed = [0; 8];
    fill_random(&mut seed)?;
    Ok(u64::from_le_bytes(seed))
}

/// The protocol of one party, with the generator that is quick on its engine.
fn start<P: ServerProtocol<Engine = AnyEngine>>(
    session: Session,
    engine: AnyEngine,
    settings: Settings,
) -> Result<P> {
    let prg = engine.generators().first().map(|generator| generator.name().to_owned());
    Ok(P::start(Session { prg, ..session }, engine, settings)?)
}

/// Each party's part of secrets that are dealt here.
fn held(sharing: &dyn Sharing, secrets: &[Tensor]) -> Result<Vec<Vec<Held>>> {
    let shapes: Vec<_> = secrets.iter().map(|secret| secret.shape().clone()).collect();
    let parcels = sharing.deal(secrets.to_vec())?.into_iter().enumerate();
    parcels.map(|(party, parcel)| Ok(sharing.accept(party, parcel, &shapes)?)).collect()
}

/// The number of threads that each of `parties` parties in one process gets.
fn threads_each(parties: usize) -> usize {
    let all = thread::available_parallelism().map_or(1, usize::from);
    all.div_ceil(parties)
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{Mutex, atomic::Ordering},
    };

    use cluster_protocols::TapePlayer;
    use models::architectures::{Pooling, RandomWeights, by_name};
    use mpc_core::Security;
    use net::{Fault, Strike, Tamper};
    use nn_layers::{Compiled, PlanOptions};

    use super::*;
    use crate::{
        client::Predicted,
        model::{
            Preprocess,
            import::{Imported, plan},
        },
    };

    /// The counts of a run equal the prediction: bytes and messages of each server, rounds, each step.
    #[test]
    fn predictions_are_exact() {
        let [unchecked, checked] = [Security::SemiHonest, Security::Checked];
        for (network, pooling, batch, security, clear) in [
            ("lenet", Pooling::Average, 1, unchecked, false),
            ("lenet", Pooling::Max, 5, unchecked, false),
            ("alexnet-cifar", Pooling::Average, 1, unchecked, false),
            ("lenet", Pooling::Average, 1, checked, false),
            ("lenet", Pooling::Average, 2, unchecked, true),
            ("lenet", Pooling::Average, 1, checked, true),
            // More than one batch of proofs.
            ("lenet", Pooling::Average, 100, checked, false),
        ] {
            let graph = by_name(network, pooling, &mut RandomWeights::new(5)).unwrap();
            let compiled = Compiled::new(&graph, &PlanOptions::default()).unwrap();
            let weights = compiled.plan.encode_weights(&compiled.weights).unwrap();
            let plan = compiled.plan.with_guard(true).with_public_weights(clear);
            let program = Program::new(plan).unwrap();
            let shapes = program.plan().input_shapes(batch).unwrap();
            let input = Tensor::from_fn(shapes[0].clone(), |at| (at as u64 * 7919) % (1 << 20));
            let settings = Settings { security, ..Settings::default() };
            let computing = Computing { settings, ..Computing::default() };
            let sharing = computing.protocol.sharing();
            let of_weights = program.weight_sharing(sharing).unwrap();
            let (weights, inputs) = (held(of_weights, &weights), held(sharing, &[input]));
            let (weights, inputs) = (weights.unwrap(), inputs.unwrap());
            let run = Run { program: &program, computing, weights, inputs, shapes };
            let counted = run.by_all(&|| Ok(EngineChoice::Cpu.open(1)?.0)).unwrap();
            let counted: Vec<_> = counted.into_iter().map(|(_, cost)| cost.timeless()).collect();
            assert!(counted.iter().all(|cost| cost.bytes > 0 && !cost.steps.is_empty()));
            let proofs = counted[0].steps.iter().any(|step| step.name == "proofs");
            assert_eq!(proofs, security == checked);
            let predicted = predict(&program, batch, computing).unwrap();
            assert_eq!(counted, predicted, "{network}, batch {batch}");
        }
    }

    /// A linear layer of 6,144 results: 252 bits each by shared weights, and the truncation's 124 by weights in the clear.
    #[test]
    fn weights_in_the_clear_halve_the_bytes_of_a_linear_layer() {
        let mut graph = nn_layers::Graph::new(1);
        let x = graph.input("x", &[nn_layers::Dim::Batch(1), nn_layers::Dim::Fixed(50)]).unwrap();
        let w = RandomWeights::new(7).around(&[50, 6144], 0.0, 1.0).unwrap();
        let w = graph.weight("w", w);
        let product = nn_layers::Op::MatMul { transpose_lhs: false, transpose_rhs: false };
        let y = graph.add("y", product, &[x, w]).unwrap();
        graph.output("y", y);
        let plan = Compiled::new(&graph, &PlanOptions::default()).unwrap().plan;
        for (clear, bits) in [(false, 252), (true, 124)] {
            let program = Program::new(plan.clone().with_public_weights(clear)).unwrap();
            let costs = predict(&program, 1, Computing::default()).unwrap();
            let layer =
                |cost: &Cost| cost.steps.iter().find(|step| step.name == "y").unwrap().bytes;
            assert_eq!(8 * costs.iter().map(layer).sum::<u64>(), 6144 * bits);
        }
    }

    /// Of servers that prove their messages one flips a bit of one message. The others end without releasing anything, and
    /// suspect it, unless the bit meant nothing.
    #[test]
    fn a_server_that_changes_a_bit_of_any_message_is_noticed_before_anything_is_released() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/data/digits.onnx");
        let graph = crate::model::import::graph(&file, &Default::default()).unwrap();
        let compiled = Compiled::new(&graph, &PlanOptions::default()).unwrap();
        let weights = compiled.plan.encode_weights(&compiled.weights).unwrap();
        let program = Program::new(compiled.plan.with_guard(true)).unwrap();
        let shapes = program.plan().input_shapes(1).unwrap();
        let input = Tensor::from_fn(shapes[0].clone(), |at| (at as u64 * 7919) % (1 << 20));
        let settings = Settings { security: Security::Checked, ..Settings::default() };
        let computing = Computing { settings, ..Computing::default() };
        let sharing = computing.protocol.sharing();
        let weights = held(sharing, &weights).unwrap();
        let inputs = held(sharing, &[input]).unwrap();
        let run = Run { program: &program, computing, weights, inputs, shapes };
        let by_all = |liar: usize, strike: Option<Strike>| {
            let struck = Mutex::new(0);
            let outcomes = net::launch::run_all(sessions_from_seed(3, 5), |session| {
                let me = session.transport.me().0;
                let strikes = strike.clone().filter(|_| me == liar);
                let transport = Tamper::new(session.transport, strikes.into_iter().collect());
                let count = transport.struck();
                let watched = Watched::new(Box::new(transport));
                let session = Session { transport: Box::new(watched.hand()), ..session };
                let engine = EngineChoice::Cpu.open(1).unwrap().0;
                let mpc = start::<TapePlayer>(session, engine, settings)?;
                let outcome = run.by_one(me, mpc, &watched);
                *struck.lock().unwrap() += count.load(Ordering::Relaxed);
                outcome.map(|(released, _)| released)
            });
            (outcomes, struck.into_inner().unwrap())
        };
        let answer = |released: Vec<Result<Vec<Released>>>| {
            let released = released.into_iter().collect::<Result<Vec<_>>>().unwrap();
            reveal_all(sharing, released).unwrap().iter().map(|one| one.words().to_vec()).collect()
        };
        let honest: Vec<Vec<u64>> = answer(by_all(0, None).0);
        let (mut noticed, mut struck) = (0, 0);
        for liar in 0..3 {
            for nth in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
                let strike = Strike::new(Fault::Flip(777 * nth + 64)).nth(nth);
                let (outcomes, hit) = by_all(liar, Some(strike));
                struck += hit;
                let cheated = |outcome: &Result<_>| match outcome {
                    Err(Error::Mpc(mpc_core::Error::Cheated { suspects, .. })) => {
                        suspects.contains(&Party(liar))
                    }
                    _ => false,
                };
                let others = || (1..3).map(|after| &outcomes[(liar + after) % 3]);
                noticed += others().filter(|outcome| cheated(outcome)).count();
                if others().any(Result::is_ok) {
                    assert_eq!(answer(outcomes), honest, "{liar} {nth}");
                }
            }
        }
        assert!(struck > 10 && noticed >= struck, "{noticed} errors for {struck} lies");
    }

    /// The answer to an input of ones, of a network whose second layer's weights are larger by a factor.
    fn answer(factor: f64, guard: bool) -> Result<Vec<Vec<Vec<f64>>>> {
        let graph = by_name("lenet", Pooling::Average, &mut RandomWeights::new(5)).unwrap();
        let Imported { program, about, values } =
            plan("lenet", &graph, &PlanOptions::default(), Preprocess::default(), vec![])?;
        let specs = program.plan().weights();
        let louder = values.iter().zip(&specs).map(|(value, spec)| {
            let second = spec.name.starts_with("conv2") && spec.name.ends_with("weight");
            if second { value.map(|v| v * factor) } else { value.clone() }
        });
        let values = louder.collect();
        let imported = Imported { program, about, values };
        let imported = if guard { imported } else { imported.without_guard()? };
        let weights = imported.weights()?;
        let Imported { program, about, .. } = imported;
        let shape = program.plan().input_shapes(1)?.remove(0);
        let input = Tensor::from_fn(shape, |_| 1 << 20);
        about.decode(
            1,
            &infer(ProtocolChoice::Rss, &program, &weights, &input, EngineChoice::Cpu)?.outputs,
        )
    }

    /// CrypTen's parties send 6.10 MB each: `bench/README.md`.
    #[test]
    fn lenet_by_masked_sharing_takes_a_tenth_of_the_bytes_of_crypten() {
        let graph = by_name("lenet", Pooling::Average, &mut RandomWeights::new(5)).unwrap();
        let compiled = Compiled::new(&graph, &PlanOptions::default()).unwrap();
        let program = Program::new(compiled.plan).unwrap();
        for (name, bytes) in [("dealt-2", 81_376), ("dealt-3", 162_752)] {
            let protocol: ProtocolChoice = name.parse().unwrap();
            let computing = Computing { protocol, ..Computing::default() };
            let costs = predict(&program, 1, computing).unwrap();
            let (parties, dealer) = costs.split_at(protocol.parties());
            assert!(parties.iter().all(|cost| cost.bytes == bytes), "{name}: {parties:?}");
            assert_eq!(dealer[0].bytes, 330_848);
            assert_eq!(Predicted::of(&costs, 1).rounds, 18);
            assert!(10 * bytes < 6_100_000);
        }
    }

    #[test]
    fn an_answer_whose_values_left_their_range_is_an_error_that_names_the_layer() {
        assert_eq!(answer(1.0, true).unwrap()[0][0].len(), 10);
        let error = answer(2f64.powi(30), true).unwrap_err();
        let Error::OutOfRange { layer, .. } = &error else { panic!("{error}") };
        assert_eq!(layer, "conv2", "{error}");
        assert_eq!((error.kind(), error.exit_code()), ("out-of-range", 6));
        // Without the guard the caller gets an answer, and does not learn that it is wrong.
        assert_eq!(answer(2f64.powi(30), false).unwrap()[0][0].len(), 10);
    }
}
