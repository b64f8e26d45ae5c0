//! Runs the commands of one Markdown file in one shell, as a reader would type them.
//!
//! They run as they are written, with three changes. The programs that the tests have built replace
//! `cargo run` and `cargo build`, since a release build takes minutes. `cargo xtask` only prints its
//! help, since it would run this check again. A new cluster listens on free ports.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::check::workspace::metadata;

use super::super::built::Executable;
use super::blocks::{self, Block};
use super::compare;

/// The time limit for all commands of one file together.
const LIMIT: Duration = Duration::from_secs(240);

/// The ports of a new cluster, as a README shows them.
const PORTS: [u16; 3] = [7100, 7101, 7102];

/// One thing to run.
pub(super) enum Step<'a> {
    Command(blocks::Command<'a>),
    Python(&'a Block<'a>),
}

/// A folder with the workspace's layout, and the programs in it.
pub(super) struct Session<'a> {
    folder: PathBuf,
    programs: &'a [Executable],
    ports: [u16; 3],
}

impl<'a> Session<'a> {
    /// Links the workspace's files into a fresh folder, with the programs where a release build leaves
    /// them.
    pub(super) fn new(root: &Path, files: &[PathBuf], programs: &'a [Executable]) -> Result<Self> {
        let folder = root.join("target/readme");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let release = folder.join("target/release");
        fs::create_dir_all(&release)?;
        fs::create_dir(folder.join(LOGS))?;
        for program in programs.iter().filter(|program| !program.is_example) {
            symlink(&program.path, release.join(&program.name))?;
        }
        let entries: BTreeSet<_> = files.iter().filter_map(|file| file.iter().next()).collect();
        for entry in entries {
            symlink(root.join(entry), folder.join(entry))?;
        }
        Ok(Self { folder, programs, ports: free_ports()? })
    }

    /// Runs the steps one after the other and names them.
    ///
    /// # Errors
    /// The first step that fails or whose output differs from the file's.
    pub(super) fn run(&self, steps: &[Step<'_>]) -> Result<Vec<String>> {
        let has_torch = python(&self.folder, &["-c", "import torch, onnx"]);
        let mut script = String::from(PRELUDE);
        for (number, step) in steps.iter().enumerate() {
            let command = match step {
                Step::Command(command) => self.runnable(&command.text)?,
                Step::Python(block) => self.python_command(number, block, has_torch)?,
            };
            writeln!(
                script,
                "{{ {command}\n}} >{LOGS}/{number}.out 2>{LOGS}/{number}.err || exit 1\necho >{LOGS}/{number}.done"
            )?;
        }
        fs::write(self.folder.join(LOGS).join("script"), &script)?;
        let status = self.shell()?;
        for (number, step) in steps.iter().enumerate() {
            self.judge(number, step).with_context(|| {
                let end = match status {
                    Some(status) => format!("the shell ended with {status}"),
                    None => format!("stopped after {} s", LIMIT.as_secs()),
                };
                end + &self.errors_in_the_background(&steps[..number])
            })?;
        }
        let scripts = steps.iter().filter(|step| matches!(step, Step::Python(_))).count();
        let mut told = vec![format!("{} commands", steps.len() - scripts)];
        match (scripts, has_torch) {
            (0, _) => {}
            (_, true) => told.push(format!("{scripts} Python scripts")),
            (_, false) => told.push(format!("{scripts} Python scripts read only: no PyTorch here")),
        }
        Ok(told)
    }

    /// Runs the script, and ends whatever it has started. `None` if it took too long.
    fn shell(&self) -> Result<Option<ExitStatus>> {
        let mut shell = Command::new("bash")
            .arg(format!("{LOGS}/script"))
            .current_dir(&self.folder)
            .env_remove("TREFOIL_CONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start bash")?;
        // The script's watchdog ends the whole group as soon as this is closed.
        let alive = shell.stdin.take();
        let began = Instant::now();
        while shell.try_wait()?.is_none() && began.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(20));
        }
        let status = shell.try_wait()?;
        drop(alive);
        shell.wait()?;
        Ok(status)
    }

    /// Checks that a step succeeded and printed the expected lines.
    fn judge(&self, number: usize, step: &Step<'_>) -> Result<()> {
        let (name, prints) = match step {
            Step::Command(command) => (command.text.clone(), &command.prints[..]),
            Step::Python(block) => (format!("the script in line {}", block.line), &[][..]),
        };
        let log =
            |kind| fs::read_to_string(self.folder.join(LOGS).join(format!("{number}.{kind}")));
        let out = self.with_documented_ports(log("out").unwrap_or_default());
        if log("done").is_err() {
            bail!("`{name}` failed:\n{out}{}", log("err").unwrap_or_default());
        }
        match compare::differ(prints, &out) {
            Some(fault) if !prints.is_empty() => {
                bail!("`{name}` does not print what the file says: {fault}\nin all:\n{out}")
            }
            _ => Ok(()),
        }
    }

    /// The errors of commands in the background: often why a later one failed.
    fn errors_in_the_background(&self, steps: &[Step<'_>]) -> String {
        let mut told = String::new();
        for (number, step) in steps.iter().enumerate() {
            let Step::Command(command) = step else { continue };
            let log = self.folder.join(LOGS).join(format!("{number}.err"));
            let errors = fs::read_to_string(log).unwrap_or_default();
            if command.text.ends_with('&') && !errors.is_empty() {
                told += &format!("; `{}` says:\n{}", command.text, errors.trim_end());
            }
        }
        told
    }

    fn with_documented_ports(&self, mut text: String) -> String {
        for (free, documented) in self.ports.iter().zip(PORTS) {
            text = text.replace(&format!("127.0.0.1:{free}"), &format!("127.0.0.1:{documented}"));
        }
        text
    }

    /// The form in which a command runs here.
    fn runnable(&self, command: &str) -> Result<String> {
        if let Some(arguments) = command.strip_prefix("cargo ") {
            return self.without_cargo(arguments);
        }
        let hosts = || self.ports.map(|port| format!("127.0.0.1:{port}")).join(",");
        if command.starts_with("trefoil cluster init ") && !command.contains("--") {
            return Ok(format!("{command} --hosts {}", hosts()));
        }
        // It makes a cluster that is not there, on the documented ports: those may still be held by the
        // servers of the file before, or by something else.
        if let Some(folder) = command.strip_prefix("trefoil cluster up ") {
            let folder = folder.trim_end_matches('&').trim_end();
            let init = format!("trefoil cluster init {folder} --hosts {} >/dev/null", hosts());
            return Ok(format!("test -d {folder} || {init} || exit 1; {command}"));
        }
        Ok(command.to_owned())
    }

    /// The replacement for a cargo command.
    fn without_cargo(&self, arguments: &str) -> Result<String> {
        // Arguments added here must not become part of a comment.
        let arguments = arguments.split(" #").next().unwrap_or(arguments).trim_end();
        let (own, passed_on) = match arguments.split_once(" -- ") {
            Some((own, passed_on)) => (own, passed_on),
            None => (arguments, ""),
        };
        let words: Vec<&str> = own.split_ascii_whitespace().collect();
        let value = |flags: [&str; 2]| {
            let at = words.iter().position(|word| flags.contains(word))?;
            words.get(at + 1).copied()
        };
        let example = value(["--example", "--example"]);
        let name = example.or(value(["-p", "--package"]));
        match words.first().copied() {
            Some("run") => {
                let name = name.with_context(|| format!("`cargo {arguments}` names no package"))?;
                let wanted = |built: &&Executable| {
                    built.name == name && built.is_example == example.is_some()
                };
                let built = self.programs.iter().find(wanted);
                let built = built.with_context(|| format!("no crate builds `{name}`"))?;
                Ok(format!("'{}' {passed_on}", built.path.display()))
            }
            Some("build") => Ok("true".to_owned()),
            // The check runs all tests; here the crate must be there.
            Some("nextest") => {
                let name = name.with_context(|| format!("`cargo {arguments}` names no package"))?;
                let metadata = metadata(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
                let known = metadata.packages.iter().any(|package| package.name == name);
                ensure!(known, "there is no package `{name}`");
                Ok("true".to_owned())
            }
            // Tests of the benchmarks cover their arguments: they are not built here.
            Some("xtask") if words.get(1) == Some(&"bench") => Ok("true".to_owned()),
            Some("xtask") => Ok(format!("target/release/xtask {} --help", words[1..].join(" "))),
            _ => bail!("it is not known how to try `cargo {arguments}`"),
        }
    }

    /// Runs a script where its packages are installed; else only parses it, and runs its comment's
    /// command.
    fn python_command(&self, number: usize, block: &Block<'_>, run: bool) -> Result<String> {
        let file = format!("{LOGS}/{number}.py");
        fs::write(self.folder.join(&file), block.lines.join("\n"))?;
        let read = format!("import ast; ast.parse(open('{file}').read())");
        let instead = block.instead.unwrap_or("true");
        // Scripts that need the package run in its own tests, which build it.
        let run = run && !block.lines.iter().any(|line| line.starts_with("import trefoil"));
        Ok(match (run, python(&self.folder, &["--version"])) {
            (true, _) => format!("python3 {file}"),
            (false, true) => format!("python3 -c \"{read}\" && {instead}"),
            (false, false) => instead.to_owned(),
        })
    }
}

/// The folder in which a session keeps its steps' output.
const LOGS: &str = "logs";

/// Ends the shell's process group, servers in the background included, when standard input does: after
/// the last step, after too long, or when the check is interrupted.
const PRELUDE: &str = "{ read -r _; kill -KILL 0; } <&0 &\n";

fn python(folder: &Path, arguments: &[&str]) -> bool {
    let mut python = Command::new("python3");
    python.args(arguments).current_dir(folder).stdin(Stdio::null());
    python.output().is_ok_and(|output| output.status.success())
}

/// Three free ports.
fn free_ports() -> Result<[u16; 3]> {
    let mut listeners = Vec::with_capacity(3);
    for _ in 0..3 {
        listeners.push(TcpListener::bind("127.0.0.1:0").context("no free port")?);
    }
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(programs: &[Executable]) -> Session<'_> {
        Session { folder: PathBuf::new(), programs, ports: [1, 2, 3] }
    }

    /// Runs a file's blocks in a workspace of one file, without programs.
    fn session_of(name: &str, text: &str) -> Result<Vec<String>> {
        let root = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&root)?;
        fs::write(root.join("data.txt"), "3\n")?;
        let blocks = blocks::blocks(text)?;
        let session = Session::new(&root, &[PathBuf::from("data.txt")], &[])?;
        let outcome = session.run(&super::super::steps(&blocks)?);
        fs::remove_dir_all(&root)?;
        outcome
    }

    #[test]
    fn commands_share_a_shell_and_background_ones_end_with_it() {
        let text = "```console\n$ x=2\n$ sleep 300 &\n$ echo $! > sleeper; cat data.txt | tail -1\n3\n\
                    $ echo $((x * 2)) images in 1.5 ms\n4 images in 9 s\n```\n";
        assert_eq!(session_of("session", text).unwrap(), ["4 commands"]);
    }

    #[test]
    fn a_command_that_fails_or_prints_something_else_is_named() {
        let fault = |text: &str| format!("{:#}", session_of("faults", text).unwrap_err());
        let failed = fault("```console\n$ echo before\n$ cat nothing.txt\n```\n");
        assert!(failed.contains("`cat nothing.txt` failed") && failed.contains("No such file"));
        let other = fault("```console\n$ echo 2\n3\n```\n");
        assert!(other.contains("expected `3`, got `2`"), "{other}");
        let behind = fault("```console\n$ cat nowhere.txt &\n$ sleep 0.1; cat nothing.txt\n```\n");
        assert!(behind.contains("`cat nowhere.txt &` says:\ncat: nowhere.txt"), "{behind}");
    }

    #[test]
    fn cargo_gives_way_to_what_is_built() {
        let built = |name: &str, is_example| Executable {
            name: name.to_owned(),
            is_example,
            path: Path::new("bin").join(name),
        };
        let programs = [built("trefoil", false), built("client", true)];
        let session = session(&programs);
        let run = |command: &str| session.runnable(command).unwrap();
        assert_eq!(run("cargo run --release -p trefoil -- demo"), "'bin/trefoil' demo");
        assert_eq!(run("cargo run -p trefoil --example client -- a b"), "'bin/client' a b");
        assert_eq!(run("cargo build --release -p trefoil"), "true");
        assert_eq!(run("cargo xtask check"), "target/release/xtask check --help");
        assert!(session.runnable("cargo run -p trefoil --example nothing").is_err());
        assert!(session.runnable("cargo publish").is_err());
    }

    #[test]
    fn a_new_cluster_listens_on_free_ports_and_shows_the_documented_ones() {
        let session = session(&[]);
        assert_eq!(
            session.runnable("trefoil cluster init c").unwrap(),
            "trefoil cluster init c --hosts 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
        );
        assert_eq!(
            session.runnable("trefoil cluster up c &").unwrap(),
            "test -d c || trefoil cluster init c --hosts 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3 \
             >/dev/null || exit 1; trefoil cluster up c &"
        );
        assert_eq!(session.with_documented_ports("at 127.0.0.1:2".into()), "at 127.0.0.1:7101");
    }
}
