//! Each target's work on an input. It may return an error, but must not panic.

use std::env;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use models::data::{Preprocessing, cifar10, from_csv, from_idx, from_image, from_npy, to_npy};
use models::onnx::ImportOptions;
use models::weights::from_safetensors;
use mpc_core::{Plaintext, Protocol, TestWorld};
use net::Party;
use nn_layers::{
    HostTensor, Plan, PlanOptions,
    train::{TrainPlan, TrainRequest},
};
use ring_arith::{CpuEngine, EngineTensor, Shape, Tensor};
use rss_protocols::{Rss, Tape};
use serde::{Serialize, de::DeserializeOwned};
use trefoil::{
    analysis::{Analysis, AnalysisRequest},
    config::{ClientConfig, PartyConfig},
    server::{
        observe::parse as parse_http,
        queue::{Answer, Turn},
    },
    store::{parse_inventory, parse_manifest, parse_shares, saved::SavedShare, seal},
    training::RunFile,
    wire::{Reply, Request, parse},
};

/// Numbers in all inputs and weights of a plan that is run.
const RUN: usize = 1 << 14;

/// The same where three parties run it on shares.
const RUN_ON_SHARES: usize = 1 << 9;

pub(crate) fn frames(input: &[u8]) -> bool {
    let outcome = [None, Some(1 << 16)].map(|longest| net::fuzzing::frames(input, longest));
    assert!(outcome.iter().all(|outcome| outcome.bytes <= input.len() as u64));
    assert_eq!(outcome[0].messages, 0, "before a link is opened none pass");
    !outcome[1].violation
}

pub(crate) fn handshake(input: &[u8]) -> bool {
    net::fuzzing::handshake(input)
}

pub(crate) fn request(input: &[u8]) -> bool {
    parse::<Request>(input).is_ok_and(is_stable)
}

pub(crate) fn reply(input: &[u8]) -> bool {
    parse::<Reply>(input).is_ok_and(is_stable)
}

pub(crate) fn queue(input: &[u8]) -> bool {
    serde_json::from_slice::<Turn>(input).is_ok_and(is_stable)
        || serde_json::from_slice::<Answer>(input).is_ok_and(is_stable)
}

/// A plan that is taken for sound is described, and run where it is small.
pub(crate) fn plan(input: &[u8]) -> bool {
    let Ok(program) = trefoil::model::Program::parse(input) else { return false };
    let plan = program.plan();
    program.about(trefoil::Preprocess::default(), Vec::new()).expect("a plan describes itself");
    let batch = plan.fixed_batch().unwrap_or(1);
    let inputs = plan.input_shapes(batch).expect("a sound plan serves its batch");
    plan.output_shapes(batch).expect("a sound plan has its results");
    plan.peak_words(batch).expect("a sound plan has a size");
    let weights: Vec<_> = plan.weights().into_iter().map(|weight| weight.shape).collect();
    let words: usize = inputs.iter().chain(&weights).map(Shape::len).sum();
    if words <= RUN && plan.largest_value(batch).is_ok_and(|largest| largest <= RUN) {
        let _ = run(plan, batch);
    }
    true
}

/// Runs a plan on small numbers over the plaintext protocol, which checks every range.
fn run(plan: &Plan, batch: usize) -> Option<()> {
    let mut mpc = Plaintext::new(CpuEngine::new(1));
    let weights: Option<Vec<_>> =
        plan.weights().iter().map(|weight| filled(&weight.shape, false)).collect();
    let weights = share(&mut mpc, plan.encode_weights(&weights?).ok()?)?;
    let shapes = plan.input_shapes(batch).expect("a sound plan serves its batch");
    let inputs = plan.inputs().iter().zip(&shapes).enumerate().map(|(index, (spec, shape))| {
        plan.encode_input(index, batch, &filled(shape, spec.integer)?).ok()
    });
    let inputs: Option<Vec<_>> = inputs.collect();
    let inputs = share(&mut mpc, inputs?)?;
    let weights = plan.secret_weights(weights);
    let inputs = plan.secret_inputs(inputs);
    plan.run(&mut mpc, &weights, &inputs, &mut ()).ok().map(|_| ())
}

/// A tensor of small numbers.
fn filled(shape: &Shape, integer: bool) -> Option<HostTensor> {
    let places = 0..shape.len();
    let tensor = if integer {
        HostTensor::integers(shape.dims(), places.map(|place| (place % 3) as i64).collect())
    } else {
        let number = |place: usize| (place % 7) as f64 / 4.0 - 0.5;
        HostTensor::new(shape.dims(), places.map(number).collect())
    };
    tensor.ok()
}

fn share<P: Protocol<Engine = CpuEngine>>(
    mpc: &mut P,
    words: Vec<Tensor>,
) -> Option<Vec<P::Share>> {
    let shapes: Vec<_> = words.iter().map(|words| words.shape().clone()).collect();
    let mine = mpc.me() == Party(0);
    mpc.input(Party(0), &shapes, mine.then_some(&words)).ok()
}

/// An analysis that is taken for sound gives shapes or an error.
pub(crate) fn analysis(input: &[u8]) -> bool {
    let Ok(request) = serde_json::from_slice::<AnalysisRequest>(input) else { return false };
    if let Ok(analysis) = Analysis::new(request.clone(), RUN as u64) {
        assert!(analysis.results().count() > 0, "an analysis has results");
        analysis.digest().expect("an analysis can be written");
        let _ = analysis.flow();
    }
    is_stable(request)
}

/// A training request that is taken for sound gives a plan or an error. The plan is run where it is small, and on shares
/// where it is tiny.
pub(crate) fn train_request(input: &[u8]) -> bool {
    let Ok(request) = serde_json::from_slice::<TrainRequest>(input) else { return false };
    if request.numbers() > RUN as u64 {
        return true;
    }
    let Ok(plan) = request.derive() else { return true };
    let zeros = |shape: &Shape| HostTensor::new(shape.dims(), vec![0.0; shape.len()]);
    let state = plan.state();
    let rows = plan.batch_shapes().expect("a sound plan takes a batch");
    let words: usize = state.iter().map(|one| &one.shape).chain(&rows).map(Shape::len).sum();
    let step = plan.step_plan();
    if words <= RUN && step.largest_value(plan.batch()).is_ok_and(|largest| largest <= RUN) {
        let state: Result<Vec<_>, _> = state.iter().map(|one| zeros(&one.shape)).collect();
        let rows: Result<Vec<_>, _> = rows.iter().map(zeros).collect();
        if let (Ok(mut values), Ok(rows)) = (state, rows) {
            let encoded = plan.encode_state(&values).expect("zeros can be encoded");
            let batch = plan.encode_batch(&rows).expect("zeros can be encoded");
            let _ = plan.step_in_the_clear(&mut values, &rows, 0.0);
            let _ = train(&mut Plaintext::new(CpuEngine::new(1)), &plan, &encoded, &batch);
            if words <= RUN_ON_SHARES {
                // All parties do the same work, up to the same error.
                let _ = TestWorld::new(3).try_sessions(move |session| {
                    let mut mpc = Rss::new(session, CpuEngine::new(1))?;
                    Ok(train(&mut mpc, &plan, &encoded, &batch))
                });
            }
        }
    }
    is_stable(request)
}

/// Does one step of a training.
fn train<P: Protocol<Engine = CpuEngine>>(
    mpc: &mut P,
    plan: &TrainPlan,
    state: &[Tensor],
    batch: &[Tensor],
) -> Option<()> {
    let (state, batch) = (share(mpc, state.to_vec())?, share(mpc, batch.to_vec())?);
    let mut state = plan.secret_state(state).expect("shares of a state");
    let batch = plan.step_plan().secret_inputs(batch);
    plan.step(mpc, &mut state, &batch, 0.0, &mut ()).ok().map(|_| ())
}

/// Reads a manifest, or the inventory of a copy of a store, as it came, and one whose hash was made to fit.
pub(crate) fn manifest(input: &[u8]) -> bool {
    let _ = parse_manifest(input);
    let _ = parse_inventory(input);
    let sealed = seal(input);
    parse_manifest(&sealed).is_ok_and(is_stable) || parse_inventory(&sealed).is_ok_and(is_stable)
}

/// Reads a configuration file, of a server and of a client.
pub(crate) fn config(input: &[u8]) -> bool {
    let path = written(input, "toml");
    PartyConfig::read(&path).is_ok() || ClientConfig::read(&path).is_ok()
}

/// Reads the description of a training run, and requests it.
pub(crate) fn run_file(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let Ok(file) = RunFile::parse(&text, Path::new("run.toml")) else { return false };
    file.spec(Vec::new(), 1000, Vec::new());
    file.options().is_ok()
}

/// Reads a server's file of shares: the shares have the stated shapes.
pub(crate) fn shares(input: &[u8]) -> bool {
    let Ok(shares) = parse_shares(input.to_vec().into()) else { return false };
    assert!(8 * shares.words() <= input.len());
    true
}

/// Reads a share that Python saved.
pub(crate) fn saved(input: &[u8]) -> bool {
    let Ok(share) = SavedShare::parse(input) else { return false };
    assert!(8 * share.held.iter().map(|held| held.shape().len()).sum::<usize>() <= input.len());
    let three = [0, 1, 2].map(|party| SavedShare { party, ..share.clone() });
    let _ = trefoil::store::saved::same(Path::new("x"), share.protocol, &three);
    true
}

/// Opens a dealer's tape, and takes its key out and puts it back.
pub(crate) fn tape(input: &[u8]) -> bool {
    let path = written(input, "tape");
    let Ok(tape) = Tape::open(&path, None) else { return false };
    let [left, places] = tape.left();
    assert!(left <= places && tape.next() == places - left);
    assert_eq!(fs::metadata(&path).map(|file| file.len()).ok(), Some(input.len() as u64));
    tape.bound().expect("a whole tape says what it is bound to");
    let key = tape.key();
    tape.without_key().expect("the temporary folder is writable");
    drop(tape);
    Tape::open(&path, Some(&key)).expect("it is the tape's key");
    true
}

/// Reads a list of revoked certificates; that its authority signed it is found out later.
pub(crate) fn revoked(input: &[u8]) -> bool {
    net::fuzzing::revoked(input)
}

/// Reads a request of an operator's tool, in pieces.
pub(crate) fn http(input: &[u8]) -> bool {
    let whole = parse_http(input);
    if matches!(whole, Ok(Some(_))) {
        // The first half is incomplete or the same request, never another one.
        let before = parse_http(&input[..input.len() / 2]);
        assert!(matches!(before, Ok(None)) || before.ok() == whole.as_ref().ok().cloned());
    }
    matches!(whole, Ok(Some(Some(_))))
}

/// A file of these bytes.
fn written(input: &[u8], ending: &str) -> PathBuf {
    let path = env::temp_dir().join(format!("trefoil-fuzz-{}.{ending}", process::id()));
    fs::write(&path, input).expect("the temporary folder is writable");
    path
}

/// Imports a model, and plans it where that is possible.
pub(crate) fn onnx(input: &[u8]) -> bool {
    let Ok(graph) = models::onnx::import(input, &ImportOptions::default()) else { return false };
    let preprocess = trefoil::Preprocess::default();
    let _ = trefoil::model::import::plan(
        "model",
        &graph,
        &PlanOptions::default(),
        preprocess,
        Vec::new(),
    );
    true
}

pub(crate) fn weights(input: &[u8]) -> bool {
    let Ok(tensors) = from_safetensors(input) else { return false };
    assert!(tensors.values().all(|tensor| tensor.check_finite().is_ok()));
    true
}

pub(crate) fn picture(input: &[u8]) -> bool {
    let Ok(picture) = from_image(input, &Preprocessing::imagenet()) else { return false };
    assert_eq!(picture.shape().dims(), [1, 3, 224, 224]);
    true
}

pub(crate) fn table(input: &[u8]) -> bool {
    from_csv(input).is_ok()
}

pub(crate) fn array(input: &[u8]) -> bool {
    let Ok(array) = from_npy(input) else { return false };
    if array.check_finite().is_ok() {
        assert_eq!(from_npy(&to_npy(&array)).as_ref().ok(), Some(&array));
    }
    true
}

pub(crate) fn idx(input: &[u8]) -> bool {
    from_idx(input).is_ok() || cifar10(input).is_ok()
}

/// Checks that a value can be written and read again, and is the same then. Panics if not.
fn is_stable<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) -> bool {
    let text = serde_json::to_vec(&value).expect("what was read can be written");
    assert_eq!(serde_json::from_slice::<T>(&text).expect("what was written can be read"), value);
    true
}
