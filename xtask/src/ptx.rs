//! `cargo xtask ptx`: compiles the CUDA kernels to PTX, without a GPU and without an installed toolkit.
//!
//! The compiler is four Python wheels of one fixed version, whose output is the same on every
//! machine; they are installed into a virtual environment under the target folder.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

/// CUDA 13.0, which driver 580 supports. Newer wheels write PTX that it does not support.
const WHEELS: [&str; 4] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
];
/// The architecture that modules are compiled for, and the devices for which registers are counted.
struct Family {
    arch: &'static str,
    targets: &'static [&'static str],
}
/// The oldest devices; the driver translates for newer ones.
const COMMON: Family = Family { arch: "compute_80", targets: &["sm_80", "sm_90", "sm_100"] };
/// Hopper alone: `wgmma` exists on no other device.
const HOPPER: Family = Family { arch: "compute_90a", targets: &["sm_90a"] };
/// Sources that are compiled for [`HOPPER`].
const HOPPER_SOURCES: [&str; 1] = ["wgmma"];
/// Columns of the list of registers.
const TARGETS: [&str; 4] = ["sm_80", "sm_90", "sm_100", "sm_90a"];
/// The list of registers of each kernel on each target, in the compiled kernels' folder.
const REGISTERS: &str = "registers.tsv";

/// Compiles every `gpu-kernels/cuda/*.cu`. With `check`, compares with the existing files instead
/// of replacing them.
///
/// # Errors
/// If the compiler cannot be installed or fails, a kernel spills, or, with `check`, something differs.
pub fn run(check: bool) -> Result<()> {
    let tools = Tools::install()?;
    let sources = sources()?;
    let mut registers = format!("kernel\t{}\n", TARGETS.join("\t"));
    let mut stale = Vec::new();
    for source in &sources {
        let name =
            source.file_stem().context("a source has a name")?.to_string_lossy().into_owned();
        let family = if HOPPER_SOURCES.contains(&name.as_str()) { HOPPER } else { COMMON };
        let text = tools.compile(source, &family)?;
        for (kernel, counts) in tools.registers(&name, &text, &family)? {
            let count = |target: &&str| counts.get(*target).map_or("-", String::as_str);
            let row: Vec<&str> = TARGETS.iter().map(count).collect();
            writeln!(registers, "{kernel}\t{}", row.join("\t"))?;
        }
        settle(&format!("{name}.ptx"), &text, check, &mut stale)?;
    }
    settle(REGISTERS, &registers, check, &mut stale)?;
    ensure!(
        stale.is_empty(),
        "{} differ from their sources; run `cargo xtask ptx`",
        stale.join(", ")
    );
    println!("{} modules, no spills on {}", sources.len(), TARGETS.join(", "));
    Ok(())
}

/// Writes a file of `gpu-kernels/ptx`, or notes that it differs.
fn settle(name: &str, text: &str, check: bool, stale: &mut Vec<String>) -> Result<()> {
    let path = Path::new("gpu-kernels/ptx").join(name);
    if fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if check {
        stale.push(path.display().to_string());
        return Ok(());
    }
    println!("{}", path.display());
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn sources() -> Result<Vec<PathBuf>> {
    let folder = "gpu-kernels/cuda";
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {folder}"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "cu") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Registers of each kernel on each target.
type Registers = BTreeMap<String, BTreeMap<&'static str, String>>;

/// The compiler and the assembler.
struct Tools {
    bin: PathBuf,
    scratch: PathBuf,
}

impl Tools {
    fn install() -> Result<Self> {
        let folder = PathBuf::from("target/cuda-compiler");
        let marker = folder.join("installed.txt");
        let wanted = WHEELS.join("\n");
        if !fs::read_to_string(&marker).is_ok_and(|have| have == wanted) {
            println!("installing {}", WHEELS.join(", "));
            execute(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
            let mut pip = Command::new(folder.join("bin/pip"));
            execute(pip.args(["install", "--quiet", "--no-deps"]).args(WHEELS))?;
            fs::write(&marker, wanted)?;
        }
        let python =
            fs::read_dir(folder.join("lib"))?.next().context("the environment has a Python")??;
        let bin = python.path().join("site-packages/nvidia/cu13/bin");
        Ok(Self { bin, scratch: folder })
    }

    /// The PTX of one source.
    fn compile(&self, source: &Path, family: &Family) -> Result<String> {
        let out = self.scratch.join("kernel.ptx");
        let mut nvcc = Command::new(self.bin.join("nvcc"));
        // The long form of `-arch`, which also knows the architectures of one family.
        let code = format!("-gencode=arch={0},code={0}", family.arch);
        nvcc.args(["-std=c++17", "-ptx", &code]).arg(source).arg("-o").arg(&out);
        execute(&mut nvcc)?;
        Ok(fs::read_to_string(out)?)
    }

    /// Registers of each kernel on each target; an error if one spills.
    fn registers(&self, module: &str, text: &str, family: &Family) -> Result<Registers> {
        let ptx = self.scratch.join("kernel.ptx");
        fs::write(&ptx, text)?;
        let mut counts = Registers::new();
        for &target in family.targets {
            let mut ptxas = Command::new(self.bin.join("ptxas"));
            ptxas.args(["-v", &format!("-arch={target}")]).arg(&ptx);
            let report = execute(ptxas.arg("-o").arg(self.scratch.join("kernel.cubin")))?;
            let mut kernel = String::new();
            for line in report.lines() {
                if let Some((_, rest)) = line.split_once("entry function '") {
                    kernel = rest.split('\'').next().unwrap_or_default().to_string();
                } else if line.contains("are serialized") {
                    bail!("{module}: matrix products wait for one another on {target}: {line}");
                } else if line.contains("bytes spill stores") {
                    let clean = line.contains(" 0 bytes spill stores, 0 bytes spill loads");
                    ensure!(clean, "{module}: `{kernel}` spills on {target}: {}", line.trim());
                } else if let Some((_, rest)) = line.split_once("Used ") {
                    let count = rest.split(' ').next().unwrap_or_default().to_string();
                    counts.entry(kernel.clone()).or_default().insert(target, count);
                }
            }
        }
        let complete = counts.values().all(|c| c.len() == family.targets.len());
        ensure!(
            complete && !counts.is_empty(),
            "{module}: the assembler's report is not understood"
        );
        Ok(counts)
    }
}

/// Runs a command; returns its output, or an error with it.
fn execute(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().with_context(|| format!("cannot start {name}"))?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        bail!("{name} failed:\n{text}");
    }
    Ok(text)
}
