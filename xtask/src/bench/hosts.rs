//! Parties on other hosts: this program is copied to each and started there over ssh.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, exit};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use net::launch::{self, VARIABLE};
use trefoil::{cluster, protocols::ProtocolChoice};

use super::launch::PARTY;

/// First word of a party's arguments at a host.
pub(super) const JOB: &str = "host";

/// The port of a party, unless its host comes with one.
const PORT: u16 = 7200;

/// A host from which nothing comes for this time is given up.
const SILENCE: Duration = Duration::from_millis(4500);

/// The time between two signs of life.
const BEAT: Duration = Duration::from_secs(1);

/// A sign of life, which is no result.
const ALIVE: &str = ".";

/// The options that ssh gets: no questions, and no longer wait for a connection than for a sign of life.
const OPTIONS: [&str; 4] = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=4"];

/// The folder of this program at a host, below the home directory.
const FOLDER: &str = ".cache/trefoil-bench";

/// The hosts of a measurement, which have this program.
#[derive(Debug)]
pub(super) struct Hosts {
    hosts: Vec<Host>,
    ssh: Vec<String>,
    /// The name of this program in [`FOLDER`], which follows from its bytes.
    program: String,
}

#[derive(Debug, Clone)]
struct Host {
    /// `[USER@]HOST[:PORT]`, as given.
    name: String,
    /// The address for ssh.
    target: String,
    /// The address for the other parties.
    address: String,
}

/// News of a host: a line, or the end of ssh.
type Event = (usize, Option<String>);

impl Hosts {
    /// Copies this program to the hosts that do not have it.
    ///
    /// # Errors
    /// If there are not as many as the protocol has servers, or naming one that cannot be reached or used.
    pub(super) fn prepare(
        names: &[String],
        protocol: ProtocolChoice,
        ssh: &str,
        program: &Path,
    ) -> Result<Self> {
        let places = names.iter().map(|name| name.rsplit('@').next().unwrap_or(name).to_owned());
        let addresses = cluster::addresses(protocol, &places.collect::<Vec<_>>(), PORT)?;
        let hosts = names.iter().zip(addresses).map(|(name, address)| Host::new(name, address));
        let bytes = fs::read(program).with_context(|| program.display().to_string())?;
        let program = format!("bench-{}", &blake3::hash(&bytes).to_hex()[..32]);
        let ssh: Vec<_> = ssh.split_ascii_whitespace().map(str::to_owned).collect();
        ensure!(!ssh.is_empty(), "--ssh names no program");
        let hosts = Self { hosts: hosts.collect(), ssh, program };
        let copied = thread::scope(|scope| {
            let (hosts, bytes) = (&hosts, &bytes);
            let copy = |host| scope.spawn(move || hosts.copy(host, bytes));
            let running: Vec<_> = hosts.hosts.iter().map(copy).collect();
            running.into_iter().map(|it| it.join().expect("no panic")).collect::<Vec<_>>()
        });
        copied.into_iter().collect::<Result<()>>()?;
        Ok(hosts)
    }

    /// Copies the program to a host that does not have it.
    fn copy(&self, host: &Host, bytes: &[u8]) -> Result<()> {
        let program = &self.program;
        let look =
            format!("cd {FOLDER} 2>/dev/null && test -x {program} && echo there || echo missing");
        let said = self.one(host, &look, Vec::new())?;
        if said.iter().any(|line| line == "there") {
            return Ok(());
        }
        eprintln!("copying {:.0} MB to {}", bytes.len() as f64 / 1e6, host.name);
        let write = format!(
            "mkdir -p {FOLDER} && cd {FOLDER} && cat > {program}.$$ && chmod 755 {program}.$$ && \
             mv {program}.$$ {program}"
        );
        self.one(host, &write, bytes.to_vec()).map(drop)
    }

    /// Runs a command at one host. Returns what it prints.
    fn one(&self, host: &Host, command: &str, input: Vec<u8>) -> Result<Vec<String>> {
        let hosts = std::slice::from_ref(host);
        // A copy may take long on a slow link, and says nothing meanwhile.
        let silence = if input.is_empty() { SILENCE } else { Duration::from_secs(3600) };
        let mut running = Running::default();
        running.start(self.command(host, &format!("sh -c {}", quoted(command))), host, input)?;
        Ok(running.results(hosts, silence)?.remove(0))
    }

    /// Runs a party of the arguments at each of the first hosts, with files of this machine at the same paths, and reads
    /// their output.
    ///
    /// # Errors
    /// Naming a host that is lost or whose party fails.
    pub(super) fn processes<R>(
        &self,
        network: launch::Network,
        parties: usize,
        args: &[String],
        files: &[PathBuf],
        read: impl Fn(&str) -> Option<R>,
    ) -> Result<Vec<R>> {
        let hosts = &self.hosts[..parties];
        let addresses: Vec<_> = hosts.iter().map(|host| host.address.clone()).collect();
        let files = written(files)?;
        let mut running = Running::default();
        for (party, (host, brief)) in
            hosts.iter().zip(launch::inputs(network, &addresses)?).enumerate()
        {
            let words = [PARTY, JOB].into_iter().chain(args.iter().map(String::as_str));
            let words: Vec<_> = words.map(quoted).collect();
            let words = words.join(" ");
            let program = &self.program;
            let command = format!(
                "echo {ALIVE}; exec env {VARIABLE}={party} \"$HOME\"/{FOLDER}/{program} {words}"
            );
            let input = [&files[..], brief.as_bytes()].concat();
            running.start(self.command(host, &command), host, input)?;
        }
        let lines = running.results(hosts, SILENCE)?;
        let results = lines.iter().zip(hosts).map(|(lines, host)| {
            let result = lines.iter().find_map(|line| read(line));
            result.with_context(|| format!("{} gave no result: {lines:?}", host.name))
        });
        results.collect()
    }

    fn command(&self, host: &Host, line: &str) -> Command {
        let mut command = Command::new(&self.ssh[0]);
        command.args(&self.ssh[1..]).args(OPTIONS).args([&host.target, line]);
        command
    }
}

impl Host {
    fn new(name: &str, address: String) -> Self {
        let (user, place) = name.rsplit_once('@').map_or(("", name), |(user, place)| (user, place));
        let place = match place.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(rest),
            None => place.split(':').next().unwrap_or(place),
        };
        let target = if user.is_empty() { place.to_owned() } else { format!("{user}@{place}") };
        Self { name: name.to_owned(), target, address }
    }
}

/// A word for a shell of any kind.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The started ssh of each host. Dropping this ends those that still run; the parties notice it at their next sign of life.
struct Running {
    started: Vec<Child>,
    events: Receiver<Event>,
    sender: Sender<Event>,
}

impl Default for Running {
    fn default() -> Self {
        let (sender, events) = mpsc::channel();
        Self { started: Vec::new(), events, sender }
    }
}

impl Running {
    /// Starts ssh for the next host and gives it an input.
    fn start(&mut self, mut command: Command, host: &Host, input: Vec<u8>) -> Result<()> {
        let pipes = [Stdio::piped(), Stdio::piped(), Stdio::piped()];
        let [input_pipe, output_pipe, error_pipe] = pipes;
        command.stdin(input_pipe).stdout(output_pipe).stderr(error_pipe);
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut to = child.stdin.take().context("ssh has an input")?;
        let from = child.stdout.take().context("ssh has an output")?;
        let errors = child.stderr.take().context("ssh has an output of errors")?;
        // A host that is lost takes no input; its end says so.
        thread::spawn(move || drop(to.write_all(&input)));
        let (at, sender) = (self.started.len(), self.sender.clone());
        let name = host.name.clone();
        let show = thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                eprintln!("{name}: {line}");
            }
        });
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                let _ = sender.send((at, Some(line)));
            }
            let _ = show.join();
            let _ = sender.send((at, None));
        });
        self.started.push(child);
        Ok(())
    }

    /// Waits until all have ended. Returns their lines.
    fn results(&mut self, hosts: &[Host], silence: Duration) -> Result<Vec<Vec<String>>> {
        let mut lines = vec![Vec::new(); hosts.len()];
        let mut heard = vec![Instant::now(); hosts.len()];
        let mut left: VecDeque<usize> = (0..hosts.len()).collect();
        while !left.is_empty() {
            match self.events.recv_timeout(Duration::from_millis(100)) {
                Ok((at, Some(line))) => {
                    heard[at] = Instant::now();
                    if line != ALIVE {
                        lines[at].push(line);
                    }
                }
                Ok((at, None)) => {
                    let status = self.started[at].wait()?;
                    let name = &hosts[at].name;
                    ensure!(status.success(), "{name} ended with {status}: {:?}", lines[at]);
                    left.retain(|&other| other != at);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if let Some(&at) = left.iter().find(|&&at| heard[at].elapsed() > silence) {
                let (name, seconds) = (&hosts[at].name, silence.as_secs_f64());
                bail!("{name} is lost: nothing came from it for {seconds} seconds");
            }
        }
        Ok(lines)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.started {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Files as a party reads them from its input: their number, then path, length and bytes of each.
fn written(files: &[PathBuf]) -> Result<Vec<u8>> {
    let mut input = format!("{}\n", files.len()).into_bytes();
    for path in files {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        input.extend(format!("{}\n{}\n", path.display(), bytes.len()).into_bytes());
        input.extend(bytes);
    }
    Ok(input)
}

/// Files that a party has written; dropping this removes them.
struct Files(Vec<PathBuf>);

impl Files {
    /// Writes the files of the input that are not there. On the launcher's machine they are.
    fn read(input: &mut impl BufRead) -> Result<Self> {
        let mut files = Self(Vec::new());
        for _ in 0..line(input)?.parse::<usize>().context("a number of files")? {
            let path = PathBuf::from(line(input)?);
            let mut bytes = vec![0; line(input)?.parse().context("a file's length")?];
            input.read_exact(&mut bytes)?;
            if fs::read(&path).is_ok_and(|there| there == bytes) {
                continue;
            }
            path.parent().map(fs::create_dir_all).transpose()?;
            fs::write(&path, bytes).with_context(|| path.display().to_string())?;
            files.0.push(path);
        }
        Ok(files)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
            // Fails while another file is there.
            let _ = path.parent().map(fs::remove_dir);
        }
    }
}

fn line(input: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    ensure!(line.ends_with('\n'), "the launcher is gone");
    Ok(line.trim_end().to_owned())
}

/// Runs this process as a party at a host, with the arguments after [`JOB`]. It ends when its launcher does.
///
/// # Errors
/// If its files cannot be written, or the party fails.
pub(super) fn party(args: &[String]) -> Result<()> {
    thread::spawn(|| {
        loop {
            let mut out = stdout().lock();
            if writeln!(out, "{ALIVE}").and_then(|()| out.flush()).is_err() {
                exit(1);
            }
            drop(out);
            thread::sleep(BEAT);
        }
    });
    let files = Files::read(&mut stdin().lock())?;
    let done = super::launch::entry(args);
    drop(files);
    done
}

/// The program that reaches hosts: the one given, that of `TREFOIL_SSH`, or ssh.
pub(super) fn ssh(given: Option<&str>) -> String {
    let variable = || env::var("TREFOIL_SSH").ok();
    given.map(str::to_owned).or_else(variable).unwrap_or_else(|| "ssh".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_gets_no_port_and_the_parties_no_user() {
        let names = ["me@a.example:7", "b.example", "[::1]:9"].map(str::to_owned);
        let places = names.each_ref().map(|name| name.rsplit('@').next().unwrap().to_owned());
        let addresses = cluster::addresses(ProtocolChoice::Rss, &places, PORT).unwrap();
        let hosts = names.iter().zip(addresses).map(|(name, address)| Host::new(name, address));
        let hosts: Vec<_> = hosts.map(|host| (host.target, host.address)).collect();
        let wanted =
            [("me@a.example", "a.example:7"), ("b.example", "b.example:7200"), ("::1", "[::1]:9")];
        assert_eq!(hosts, wanted.map(|(target, address)| (target.to_owned(), address.to_owned())));
    }

    #[test]
    fn files_arrive_and_only_those_that_were_missing_are_removed() {
        let folder = env::temp_dir().join(format!("trefoil-bench-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let paths = ["plan", "tape"].map(|name| folder.join(name));
        paths.iter().for_each(|path| fs::write(path, path.to_str().unwrap().repeat(3)).unwrap());
        let input = [written(&paths).unwrap(), b"rest".to_vec()].concat();
        fs::remove_file(&paths[1]).unwrap();
        let mut input = &input[..];
        let files = Files::read(&mut input).unwrap();
        assert_eq!((input, files.0.len()), (&b"rest"[..], 1));
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), paths[1].to_str().unwrap().repeat(3));
        drop(files);
        assert_eq!(paths.each_ref().map(|path| path.exists()), [true, false]);
        fs::remove_dir_all(&folder).unwrap();
        assert!(Files::read(&mut &b"1\nplan\n"[..]).is_err());
    }
}
