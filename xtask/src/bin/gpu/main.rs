//! The program behind `cargo xtask gpu`, one file that can be copied to a machine with a GPU. It compares
//! every kernel of the CUDA engine with the CPU engine, then measures it.
//!
//! Parts run one after the other; one that fails is named, and the rest still run. A watchdog ends the
//! program when its time is over and names the running part, so that a kernel that hangs cannot block
//! it.
#![forbid(unsafe_code)]

mod measure;
mod parties;
mod sanitizer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{process, thread};

use anyhow::{Result, bail};
use clap::Parser;
use gpu_kernels::{
    CudaEngine,
    check::{CHECKS, Extent},
};
use ring_arith::Engine;

use xtask::bench::{Bench, Case, Options, Timing};

/// The exit code of a run whose time was over.
const OUT_OF_TIME: i32 = 2;

/// Checks every CUDA kernel against the CPU engine, then measures; one line of JSON per part.
#[derive(Parser, Clone, Debug)]
#[command(name = "cargo xtask gpu", bin_name = "cargo xtask gpu")]
struct Arguments {
    /// The device, numbered from 0
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Append one JSON object per part to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only this part, or the parts below it: `check` includes `check/streams`
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Fewer and shorter runs: to see that it works, not to quote
    #[arg(long)]
    quick: bool,
    /// Small operands: every path, few words
    #[arg(long)]
    small: bool,
    /// On the emulator instead of a device, with small operands: shows that this command works
    #[arg(long)]
    emulated: bool,
    /// cuBLAS's library, where the system's loader does not find it: for products by limbs of f64
    #[arg(long, value_name = "FILE")]
    cublas: Option<PathBuf>,
    /// Seconds after which everything has ended
    #[arg(long, value_name = "SECONDS", default_value_t = 470)]
    limit: u64,
}

fn main() -> process::ExitCode {
    match run() {
        Ok(()) => process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            process::ExitCode::FAILURE
        }
    }
}

/// Checks and measures. It fails without a device, or if parts fail: the error names them.
fn run() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.emulated {
        ptx_emu_driver::stand_in();
    }
    let engine = with_cublas(CudaEngine::open(arguments.device)?, &arguments)?;
    println!("{}, methods {:?}", engine.name(), engine.methods());
    let small = arguments.small || arguments.emulated;
    let options = Options {
        only: arguments.only.clone(),
        quick: arguments.quick || small,
        json: arguments.json.clone(),
        ..Options::default()
    };
    let mut bench = Bench::new(options);
    bench.start_suite("gpu");
    let limit = Duration::from_secs(arguments.limit);
    let mut run = Run {
        ordinal: arguments.device,
        engine,
        bench,
        small,
        end: Instant::now() + limit,
        current: Arc::default(),
        failed: Vec::new(),
    };
    run.watch();
    run.checks();
    measure::run(&mut run);
    parties::run(&mut run);
    if !small {
        sanitizer::run(&mut run);
    }
    run.finish()
}

/// The engine with cuBLAS if it is installed; an error if a given path does not have it.
fn with_cublas(engine: CudaEngine, arguments: &Arguments) -> Result<CudaEngine> {
    let library = match &arguments.cublas {
        None if arguments.emulated => Some(ptx_emu_driver::library()),
        path => path.clone(),
    };
    match engine.clone().with_cublas(library.as_deref()) {
        Err(error) if library.is_none() => {
            println!("products by limbs of f64 are left out: {error}");
            Ok(engine)
        }
        found => Ok(found?),
    }
}

/// A run under way.
struct Run {
    ordinal: usize,
    engine: CudaEngine,
    bench: Bench,
    small: bool,
    end: Instant,
    /// The part that runs now.
    current: Arc<Mutex<String>>,
    /// Names of the parts that failed, and why.
    failed: Vec<(String, String)>,
}

impl Run {
    /// Ends the program when its time is over.
    fn watch(&self) {
        let (current, end) = (Arc::clone(&self.current), self.end);
        thread::spawn(move || {
            thread::sleep(end.saturating_duration_since(Instant::now()));
            let part = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
            eprintln!("error: out of time in part {part}; raise --limit, or the device hangs");
            process::exit(OUT_OF_TIME);
        });
    }

    /// The number of times that an operation is queued before a wait: one on the emulator.
    fn times(&self, times: usize) -> usize {
        if self.small { 1 } else { times }
    }

    /// Runs one part; a failure is noted and printed.
    fn part(&mut self, name: &str, work: impl FnOnce(&mut Case) -> Result<()>) {
        name.clone_into(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner));
        if let Err(error) = self.bench.case(name, work) {
            println!("FAILED {name}: {error:#}");
            self.failed.push((name.to_owned(), format!("{error:#}")));
        }
    }

    fn checks(&mut self) {
        let extent = if self.small { Extent::Small } else { Extent::Full };
        for check in CHECKS {
            let engine = self.engine.clone();
            self.part(&format!("check/{}", check.name), |case| {
                let clock = Instant::now();
                check.run(&engine, extent)?;
                let timing = Timing::from_runs(vec![clock.elapsed().as_secs_f64()], None);
                case.engine(&engine.name()).timing(timing);
                Ok(())
            });
        }
    }

    fn finish(self) -> Result<()> {
        let names: Vec<&str> = self.failed.iter().map(|(name, _)| name.as_str()).collect();
        if !names.is_empty() {
            bail!("{} parts failed: {}", names.len(), names.join(", "));
        }
        self.bench.finish()?;
        println!("every part passed");
        Ok(())
    }
}
