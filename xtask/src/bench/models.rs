//! Benchmarks of whole models by the parties of any protocol: model and input secret, random weights.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use models::architectures::{
    GPT2_TOKENS, Pooling, RandomWeights, SENTIMENT_WORDS, Transformer, bert, by_name, gpt2,
    gpt2_step, sentiment, vit, wav2letter,
};
use mpc_core::{Operand, Profile as Spares, SecretTensor, Settings};
use net::{Party, Session, Stats, launch as parties};
use nn_layers::{Compiled, HostTensor, Plan, PlanOptions, Sizes};
use serde::{Deserialize, Serialize};
use trefoil::{
    client::Predicted,
    local::predict,
    model::Program,
    protocols::{Computing, ProtocolChoice, with_protocol},
};

use super::party::{self, Joined, Measurable, Mpc, Setup};
use super::{Bench, Effort, Network, Timing, cpu_seconds, peak_memory_bytes};

/// A model and the number of images, or texts, it is run on at once.
#[derive(Clone, Copy)]
pub(super) struct Model {
    pub(super) case: &'static str,
    network: Architecture,
    batch: usize,
    profile: Spares,
}

#[derive(Clone, Copy)]
enum Architecture {
    /// Of images, by name.
    Images(&'static str, Pooling),
    /// Of 128 positions, whose embeddings the text's owner looks up.
    Bert,
    /// Of 32 positions, likewise; the scores of the token after them.
    Gpt2,
    /// A single position, likewise, behind this number of cached ones.
    Gpt2Step(usize),
    /// ViT-B/16, of an image of 224 x 224 pixels.
    Vit,
    /// Of a second of sound.
    Wav2Letter,
    /// Of the number of times that each word is in a text.
    Sentiment,
}

const fn images(
    case: &'static str,
    network: &'static str,
    pooling: Pooling,
    batch: usize,
) -> Model {
    let network = Architecture::Images(network, pooling);
    Model { case, network, batch, profile: Spares::Balanced }
}

const fn one(case: &'static str, network: Architecture) -> Model {
    Model { case, network, batch: 1, profile: Spares::Balanced }
}

/// As another case, for slow links.
const fn slow(case: &'static str, model: Model) -> Model {
    Model { case, profile: Spares::SlowLinks, ..model }
}

const LENET: Model = images("lenet/1", "lenet", Pooling::Average, 1);
const RESNET50: Model = images("resnet50/1", "resnet50", Pooling::Max, 1);
const BERT: Model = one("bert-base/1", Architecture::Bert);
const GPT2: Model = one("gpt2/1", Architecture::Gpt2);
const DECODE: Model = one("gpt2/decode-128", Architecture::Gpt2Step(127));

/// All cases, as other systems are measured: CryptGPU's networks for small images with average
/// pooling, the ResNets with max pooling. Names key a history of results.
pub(super) const MODELS: &[Model] = &[
    LENET,
    slow("lenet/1/slow-links", LENET),
    images("lenet/128", "lenet", Pooling::Average, 128),
    images("alexnet-cifar/1", "alexnet-cifar", Pooling::Average, 1),
    images("vgg16-cifar/1", "vgg16-cifar", Pooling::Average, 1),
    images("alexnet-imagenet/1", "alexnet-imagenet", Pooling::Average, 1),
    RESNET50,
    slow("resnet50/1/slow-links", RESNET50),
    images("resnet18/1", "resnet18", Pooling::Max, 1),
    images("resnet152/1", "resnet152", Pooling::Max, 1),
    BERT,
    slow("bert-base/1/slow-links", BERT),
    GPT2,
    slow("gpt2/1/slow-links", GPT2),
    DECODE,
    slow("gpt2/decode-128/slow-links", DECODE),
    one("vit-b-16/1", Architecture::Vit),
    one("wav2letter/1", Architecture::Wav2Letter),
    Model { batch: 32, ..one("sentiment/32", Architecture::Sentiment) },
];

/// Seed of the random weights and inputs.
const SEED: u64 = 2021;

/// The cases of this module.
///
/// # Errors
/// If a model cannot be planned, or the parties cannot be started or fail.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let setup = bench.setup(Network::Tls);
    MODELS.iter().try_for_each(|model| run(bench, model.case, model, setup))
}

/// Measures a model as a case.
pub(super) fn run(bench: &mut Bench, name: &str, model: &Model, setup: Setup) -> Result<()> {
    bench.case(name, |case| {
        let outcome = measure(model, setup, case.effort())?;
        let beside = setup.beside().map(|setup| measure(model, setup, case.effort()));
        case.run_by(&outcome.names).network_of(&setup).threads(setup.threads);
        case.size(format!("batch {}", model.batch)).timing(outcome.timing);
        case.bytes_per_party(outcome.bytes).rounds(outcome.rounds);
        case.max_abs_error(outcome.error);
        if !setup.protocol.plays_tapes() {
            check_prediction(model, setup, &outcome)?;
        }
        if let Some(beside) = beside.transpose()? {
            case.reference("replicated sharing", beside.timing);
            eprintln!(
                "  {} B a party beside {} B of replicated sharing, {} rounds beside {}",
                outcome.bytes, beside.bytes, outcome.rounds, beside.rounds
            );
        }
        eprintln!(
            "  peak memory of a party without the model's owner: {} MB",
            outcome.memory >> 20
        );
        let mut steps = outcome.steps;
        steps.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        for Step { name, kind, seconds, .. } in steps.iter().take(5) {
            eprintln!("  {:8.1} ms  {name} ({kind})", seconds * 1e3);
        }
        Ok(())
    })
}

/// Checks that a dry run predicts the counted bytes and rounds.
fn check_prediction(model: &Model, setup: Setup, outcome: &Outcome) -> Result<()> {
    if model.sizes().past > 0 {
        // Servers do not run steps.
        return Ok(());
    }
    let program = Program::new(model.compile()?.plan)?;
    let Setup { protocol, security, .. } = setup;
    let computing = Computing { protocol, settings: Settings { security, ..Settings::default() } };
    let clock = Instant::now();
    let predicted = Predicted::of(&predict(&program, model.batch, computing)?, model.batch);
    let seconds = clock.elapsed().as_secs_f64();
    let (bytes, rounds) = (predicted.bytes, u64::from(predicted.rounds));
    let (sent, took) = (outcome.sent, outcome.rounds);
    ensure!(
        (bytes, rounds) == (sent, took),
        "predicted are {bytes} B and {rounds} rounds, counted {sent} B and {took} rounds"
    );
    eprintln!(
        "  predicted in {:.1} ms: {bytes} B in all, {rounds} rounds, as counted",
        seconds * 1e3
    );
    Ok(())
}

impl Model {
    pub(super) fn sizes(&self) -> Sizes {
        let past = if let Architecture::Gpt2Step(past) = self.network { past } else { 0 };
        Sizes { batch: self.batch, past }
    }

    pub(super) fn compile(&self) -> Result<Compiled> {
        let random = &mut RandomWeights::new(SEED);
        let graph = match self.network {
            Architecture::Images(name, pooling) => by_name(name, pooling, random)?,
            Architecture::Bert => bert(&Transformer::base(128), random)?,
            Architecture::Gpt2 => gpt2(&Transformer::base(32), GPT2_TOKENS, random)?,
            Architecture::Gpt2Step(_) => gpt2_step(&Transformer::base(1), GPT2_TOKENS, random)?,
            Architecture::Vit => vit(&Transformer::base(197), 16, 1000, random)?,
            Architecture::Wav2Letter => wav2letter(16_000, random)?,
            Architecture::Sentiment => sentiment(SENTIMENT_WORDS, random)?,
        };
        Ok(Compiled::new(&graph, &PlanOptions::default().with_profile(self.profile))?)
    }
}

/// The measurements of all parties together.
pub(super) struct Outcome {
    pub(super) timing: Timing,
    /// Of protocol and engine.
    pub(super) names: [String; 2],
    /// Sent by the party that sent most.
    pub(super) bytes: u64,
    /// Bytes that all sent, a live dealer among them.
    sent: u64,
    pub(super) rounds: u64,
    pub(super) error: f64,
    memory: u64,
    /// All steps of the last run; bytes are those of one party on average.
    pub(super) steps: Vec<Step>,
}

/// One step of a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) name: String,
    /// The kind of operation, such as `conv+relu`.
    pub(super) kind: String,
    pub(super) seconds: f64,
    pub(super) bytes: u64,
}

/// The measurements of one party.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Measured {
    seconds: Vec<f64>,
    cpu: f64,
    bytes: u64,
    /// Causal depth before and after the last run.
    depth: [u32; 2],
    names: [String; 2],
    /// Largest difference from the result in 64-bit floats; only party 0 knows it.
    error: f64,
    memory: u64,
    /// The steps of the last run.
    steps: Vec<Step>,
}

/// The description of a measurement for every party.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    case: String,
    setup: Setup,
    effort: Effort,
    plan: PathBuf,
    /// The folder of the parties' tapes, if a dealer made some.
    tapes: Option<PathBuf>,
}

pub(super) fn measure(model: &Model, setup: Setup, effort: Effort) -> Result<Outcome> {
    let folder = std::env::temp_dir().join(format!("trefoil-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let plan = folder.join("plan.json");
    fs::write(&plan, serde_json::to_vec(&model.compile()?.plan)?)?;
    let plays = setup.protocol.plays_tapes();
    let tapes = plays.then(|| deal(model, &read_plan(&plan)?, setup, effort)).transpose()?;
    let task = Task { case: model.case.to_owned(), setup, effort, plan, tapes };
    let measured = match setup.network {
        Network::InProcess => {
            let mut all = party::threads(model.case, &setup, |session| task.run_any(session));
            // The process is one: its CPU time is that of all parties.
            if let Ok(all) = &mut all {
                all.iter_mut().skip(1).for_each(|party| party.cpu = 0.0);
            }
            all
        }
        _ => {
            let args = ["models".to_owned(), serde_json::to_string(&task)?];
            let files = [party::tapes(task.tapes.as_ref()), vec![task.plan.clone()]].concat();
            party::processes(&setup, &args, &files, |line| serde_json::from_str(line).ok())
        }
    };
    if let Some(tapes) = &task.tapes {
        fs::remove_dir_all(tapes)?;
    }
    fs::remove_dir_all(&folder)?;
    combine(setup.protocol, &measured?)
}

/// Makes the tapes of a measurement, in a separate folder.
fn deal(model: &Model, plan: &Plan, setup: Setup, effort: Effort) -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("trefoil-bench-tapes-{}", std::process::id()));
    let set_up = |mpc: &mut Mpc| {
        let shapes: Vec<_> = plan.weights().into_iter().map(|w| w.shape).collect();
        let weights = party::input(mpc, &shapes, None)?;
        let x = party::input(mpc, &plan.input_shapes(model.sizes()).map_err(failed)?, None)?;
        Ok((plan.secret_weights(weights), plan.secret_inputs(x)))
    };
    party::deal(&setup, &effort, &folder, 2, set_up, |mpc, (weights, x)| {
        plan.run(mpc, weights, x, &mut ()).map(drop).map_err(failed)
    })?;
    Ok(folder)
}

fn failed(error: nn_layers::Error) -> mpc_core::Error {
    mpc_core::Error::Invalid { op: "plan", reason: error.to_string() }
}

fn combine(protocol: ProtocolChoice, members: &[Measured]) -> Result<Outcome> {
    let (parties, _) = members.split_at(protocol.parties());
    let runs = parties[0].seconds.len();
    ensure!(parties.iter().all(|party| party.seconds.len() == runs), "parties ran differently");
    // A run lasts until the last party is done.
    let slowest = |run: usize| parties.iter().map(|party| party.seconds[run]).fold(0.0, f64::max);
    let seconds = (0..runs).map(slowest).collect();
    let cpu = members.iter().map(|party| party.cpu).sum();
    let depth = |at: usize| parties.iter().map(|party| party.depth[at]).max().unwrap_or(0);
    Ok(Outcome {
        timing: Timing::from_runs(seconds, Some(cpu)),
        names: parties[0].names.clone(),
        bytes: parties.iter().map(|party| party.bytes).max().unwrap_or(0),
        sent: members.iter().map(|party| party.bytes).sum(),
        rounds: u64::from(depth(1) - depth(0)),
        error: parties[0].error,
        memory: parties.iter().skip(1).map(|party| party.memory).max().unwrap_or(0),
        steps: mean_steps(parties),
    })
}

/// Steps with the seconds of party 0 and the mean bytes of all.
fn mean_steps(parties: &[Measured]) -> Vec<Step> {
    let mean = |at: usize| {
        let bytes = parties.iter().filter_map(|party| party.steps.get(at)).map(|step| step.bytes);
        bytes.sum::<u64>() / parties.len() as u64
    };
    let steps = parties[0].steps.iter().enumerate();
    steps.map(|(at, step)| Step { bytes: mean(at), ..step.clone() }).collect()
}

impl Task {
    /// Runs one party of the task's protocol.
    fn run_any(&self, session: Session) -> Result<Measured> {
        with_protocol!(self.setup.protocol, P => self.run::<P>(session))
    }

    fn run<P: Measurable>(&self, session: Session) -> Result<Measured> {
        let mut party = Joined::<P>::new(session, &self.setup, self.tapes.as_deref())?;
        let model = MODELS.iter().find(|known| known.case == self.case);
        let model = model.with_context(|| format!("no case {}", self.case))?;
        let plan = read_plan(&self.plan)?;
        let Inputs { weights, x, expected } = inputs(&mut party.mpc, model, &plan)?;
        let mut profile = Profile::default();
        let run = |mpc: &mut P, profile: &mut Profile| {
            profile.0.clear();
            let results = plan.run(mpc, &weights, &x, profile)?;
            mpc.verify()?;
            Ok::<_, nn_layers::Error>(results)
        };
        // The second run decides the number of runs. Over slow links the first one is enough to see that one run
        // suffices.
        let mut runs = 1;
        for _ in 0..2 {
            party.next_run()?;
            let clock = Instant::now();
            run(&mut party.mpc, &mut profile)?;
            runs = party.agree_on_runs(&self.effort, clock.elapsed().as_secs_f64())?;
            if runs == 1 {
                break;
            }
        }
        let (mut seconds, mut ends, mut results) = (vec![], None, vec![]);
        let before = cpu_seconds().unwrap_or(0.0);
        for _ in 0..runs {
            party.next_run()?;
            let start = party.meter.stats();
            let clock = Instant::now();
            results = run(&mut party.mpc, &mut profile)?;
            seconds.push(clock.elapsed().as_secs_f64());
            ends = Some([start, party.meter.stats()]);
        }
        let [start, end] = ends.context("there is at least one run")?;
        let (bytes, depth) = (end.bytes_sent() - start.bytes_sent(), [start.depth, end.depth]);
        let cpu = cpu_seconds().unwrap_or(0.0) - before;
        let shares: Vec<_> = results.iter().map(SecretTensor::share).collect();
        let words = party::open(&mut party.mpc, &shares)?;
        let at = logits(&plan);
        let logits = plan.decode_output(at, &words[at])?;
        let error = expected.map_or(0.0, |e| distance(&e, &logits));
        let names = party.names();
        let memory = peak_memory_bytes().unwrap_or(0);
        drop((weights, x, results));
        party.finish()?;
        let steps = profile.steps([&start, &end]);
        Ok(Measured { seconds, cpu, bytes, depth, names, error, memory, steps })
    }
}

/// The inputs of a run and its expected result.
struct Inputs<P: Measurable> {
    weights: Vec<Operand<P>>,
    x: Vec<Operand<P>>,
    expected: Option<HostTensor>,
}

/// Shares model and input, both of which party 0 holds.
fn inputs<P: Measurable>(mpc: &mut P, model: &Model, plan: &Plan) -> Result<Inputs<P>> {
    let shapes: Vec<_> = plan.weights().into_iter().map(|w| w.shape).collect();
    let input_shapes = plan.input_shapes(model.sizes())?;
    let (mut words, mut input, mut expected) = (None, None, None);
    if mpc.me() == Party(0) {
        let compiled = model.compile()?;
        ensure!(&compiled.plan == plan, "the plan is not the one that was written");
        let mut random = RandomWeights::new(SEED + 1);
        let x = input_shapes.iter().map(|shape| random.around(shape.dims(), 0.0, 1.0));
        let x = x.collect::<models::Result<Vec<_>>>()?;
        expected = Some(plan.evaluate(&compiled.weights, &x)?.swap_remove(logits(plan)));
        words = Some(plan.encode_weights(&compiled.weights)?);
        let encode = |(i, x)| plan.encode_input(i, model.sizes(), x);
        input = Some(x.iter().enumerate().map(encode).collect::<nn_layers::Result<Vec<_>>>()?);
    }
    let weights = party::input(mpc, &shapes, words.as_deref())?;
    let x = party::input(mpc, &input_shapes, input.as_deref())?;
    Ok(Inputs { weights: plan.secret_weights(weights), x: plan.secret_inputs(x), expected })
}

/// The number of the result that is not a state.
fn logits(plan: &Plan) -> usize {
    let states = plan.states();
    (0..).find(|&i| states.iter().all(|state| state.output != i)).unwrap_or(0)
}

fn read_plan(path: &Path) -> Result<Plan> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn distance(x: &HostTensor, y: &HostTensor) -> f64 {
    let (a, b) = (x.floats(), y.floats());
    a.iter().zip(b.iter()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Name, kind and seconds of every step.
#[derive(Default)]
pub(super) struct Profile(Vec<(String, &'static str, f64)>);

impl Profile {
    /// Name, kind and seconds of the slowest steps.
    pub(super) fn slowest(mut self, count: usize) -> Vec<(String, String, f64)> {
        self.0.sort_by(|a, b| b.2.total_cmp(&a.2));
        let steps = self.0.into_iter().take(count);
        steps.map(|(name, kind, seconds)| (name, kind.to_owned(), seconds)).collect()
    }

    /// The steps of a run between two counts.
    fn steps(self, [start, end]: [&Stats; 2]) -> Vec<Step> {
        let sent = |stats: &Stats, name: &str| {
            stats.steps.iter().find(|step| step.name == name).map_or(0, |step| step.sent.bytes)
        };
        let step = |(name, kind, seconds): (String, &'static str, f64)| {
            let bytes = sent(end, &name) - sent(start, &name);
            Step { name, kind: kind.to_owned(), seconds, bytes }
        };
        self.0.into_iter().map(step).collect()
    }
}

impl nn_layers::Observer for Profile {
    fn ended(&mut self, step: &nn_layers::StepInfo<'_>, elapsed: Duration) {
        self.0.push((step.name.to_owned(), step.kind, elapsed.as_secs_f64()));
    }
}

/// Runs this process as one party of a measurement.
///
/// # Errors
/// If the arguments are not those of [`cases`], or the party fails.
pub(super) fn party(args: &[String]) -> Result<()> {
    let task = args.first().context("no measurement is named")?;
    let task: Task = serde_json::from_str(task).context("not a measurement")?;
    let endpoint = parties::joined()?.context("not started as a party")?;
    let session = endpoint.session(&party::job(&task.case, &task.setup)?)?;
    println!("{}", serde_json::to_string(&task.run_any(session)?)?);
    Ok(())
}
