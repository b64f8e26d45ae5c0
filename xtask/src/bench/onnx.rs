//! Private inference of exported networks, compared with onnxruntime's results.
//!
//! `models/scripts/export_torchvision.py` makes the files; a case whose file is missing is skipped
//! with a note. Three parties as threads of this process, model and input secret.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use gpu_kernels::AnyTensor;
use models::{onnx, weights};
use mpc_core::{Operand, Protocol, SecretTensor};
use net::{Party, Session, launch};
use nn_layers::{Compiled, HostTensor, PlanOptions};
use rss_protocols::Share;

use super::party::{self, Mpc, Setup, barrier};
use super::{Bench, Network, Timing};

/// The networks of `export_torchvision.py`.
const NAMES: &[&str] = &[
    "alexnet",
    "vgg16_bn",
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "squeezenet1_1",
    "densenet121",
];

/// The folder that the script writes to.
const FOLDER: &str = "target/torchvision";

/// Largest difference from onnxruntime's logits, relative to the largest of them.
const LIMIT: f64 = 1.0 / 64.0;

/// The cases of this module.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let setup = bench.setup(Network::InProcess);
    let runs = if bench.quick() { 1 } else { 3 };
    for name in NAMES {
        let case = format!("torchvision/{name}");
        let file = Path::new(FOLDER).join(format!("{name}.onnx"));
        if bench.wants(&case) && !file.is_file() {
            eprintln!("{case}: no {}; see models/scripts/export_torchvision.py", file.display());
            continue;
        }
        bench.case(&case, |case| {
            let exported = Exported::read(file)?;
            let run = exported.run(setup, runs)?;
            let largest = exported.logits.floats().iter().fold(0.0, |m: f64, v| m.max(v.abs()));
            ensure!(
                run.error <= LIMIT * largest,
                "a logit is off by {:e}, more than 1/64 of the largest, {largest}",
                run.error
            );
            case.run_by(&run.names).network(setup.network).threads(setup.threads);
            case.size("1x3x224x224").timing(run.timing).max_abs_error(run.error);
            case.bytes_per_party(run.bytes).rounds(run.rounds);
            Ok(())
        })?;
    }
    Ok(())
}

/// A network with an input and onnxruntime's logits for it.
struct Exported {
    compiled: Compiled,
    input: HostTensor,
    logits: HostTensor,
}

/// The measurements of all parties together.
struct Run {
    timing: Timing,
    error: f64,
    bytes: u64,
    rounds: u64,
    names: [String; 2],
}

/// The measurements of one party.
struct Seen {
    seconds: Vec<f64>,
    bytes: u64,
    depth: [u32; 2],
    logits: HostTensor,
    names: [String; 2],
}

impl Exported {
    fn read(file: PathBuf) -> Result<Exported> {
        let mut tensors = weights::read_safetensors(&file.with_extension("safetensors"))?;
        let mut tensor = |name: &str| tensors.remove(name).with_context(|| format!("no {name}"));
        let (input, logits) = (tensor("in.0")?, tensor("out.0")?);
        let graph = onnx::import_file(&file, &Default::default())?;
        let compiled = Compiled::new(&graph, &PlanOptions::default())?;
        Ok(Exported { compiled, input, logits })
    }

    fn run(&self, setup: Setup, runs: usize) -> Result<Run> {
        let party = |session| self.party(session, &setup, runs);
        let job = party::job("onnx", &setup)?;
        let all = launch::threads_over(party::link(setup.network), 3, &job, party)?;
        let all = all.into_iter().collect::<Result<Vec<_>>>()?;
        // A run lasts until the last party is done.
        let slowest = |run: usize| all.iter().map(|seen| seen.seconds[run]).fold(0.0, f64::max);
        let depth = |at: usize| all.iter().map(|seen| seen.depth[at]).max().unwrap_or(0);
        let pairs = (all[0].logits.floats(), self.logits.floats());
        ensure!(pairs.0.len() == pairs.1.len(), "as many logits as onnxruntime's");
        let error = pairs.0.iter().zip(pairs.1.iter()).map(|(a, b)| (a - b).abs());
        Ok(Run {
            timing: Timing::from_runs((0..runs).map(slowest).collect(), None),
            error: error.fold(0.0, f64::max),
            bytes: all.iter().map(|seen| seen.bytes).max().unwrap_or(0),
            rounds: u64::from(depth(1) - depth(0)),
            names: all[0].names.clone(),
        })
    }

    fn party(&self, session: Session, setup: &Setup, runs: usize) -> Result<Seen> {
        let (mut mpc, meter) = party::join(session, setup)?;
        let (plan, first) = (&self.compiled.plan, mpc.me() == Party(0));
        let values = if first { plan.encode_weights(&self.compiled.weights)? } else { Vec::new() };
        let shapes: Vec<_> = plan.weights().into_iter().map(|weight| weight.shape).collect();
        let weights = party::input(&mut mpc, &shapes, first.then_some(&values[..]))?;
        drop(values);
        let input = if first { vec![plan.encode_input(0, 1, &self.input)?] } else { Vec::new() };
        let shapes = plan.input_shapes(1)?;
        let input = party::input(&mut mpc, &shapes, first.then_some(&input[..]))?;
        let weights: Vec<Operand<Mpc>> = plan.secret_weights(weights);

        let (mut seconds, mut bytes, mut depth) = (Vec::with_capacity(runs), 0, [0; 2]);
        let mut results: Vec<SecretTensor<Mpc>> = Vec::new();
        for _ in 0..runs {
            barrier(&mut mpc)?;
            let (before, clock) = (meter.stats(), Instant::now());
            let input = plan.secret_inputs(input.clone());
            results = plan.run(&mut mpc, &weights, &input, &mut ())?;
            seconds.push(clock.elapsed().as_secs_f64());
            let after = meter.stats();
            bytes = after.bytes_sent() - before.bytes_sent();
            depth = [before.depth, after.depth];
        }
        let shares: Vec<&Share<AnyTensor>> = results.iter().map(SecretTensor::share).collect();
        let logits = plan.decode_output(0, &party::open(&mut mpc, &shares)?[0])?;
        let names = party::names(&mpc);
        mpc.close()?;
        Ok(Seen { seconds, bytes, depth, logits, names })
    }
}
