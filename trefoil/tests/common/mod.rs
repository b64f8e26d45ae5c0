//! A cluster of real processes on this machine, for tests.

#![allow(dead_code)] // not every test uses all of it

use std::{
    env, fs,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU16, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use serde_json::Value;

/// The shipped model of handwritten digits.
pub const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/data/digits.onnx");

/// How long servers may take to find each other.
const LIMIT: Duration = Duration::from_secs(60);

/// How many times as long as usual tests of faults are to be: the variable `TREFOIL_FAULTS`.
pub fn faults() -> usize {
    env::var("TREFOIL_FAULTS").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Servers and their clients' files. Dropping it ends the servers.
pub struct Cluster {
    pub folder: PathBuf,
    parties: Vec<Option<Child>>,
}

/// A finished run of the program.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Starts the server of a folder by the program that a command begins with. Its log goes on in the folder.
pub fn launch(folder: &Path, mut command: Command, options: &[&str]) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    command
        .args(["party", "--config"])
        .arg(folder.join("party.toml"))
        .args(options)
        .env("TREFOIL_LOG", "info")
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Cluster {
    /// Makes a cluster and starts its servers.
    pub fn start(name: &str, clients: &str) -> Self {
        let mut cluster = Self::make(name, clients);
        (0..3).for_each(|party| cluster.start_party(party));
        cluster.wait_until_up(clients.split(',').next().unwrap());
        cluster
    }

    /// Makes the files of a cluster of two servers, who answer from tapes.
    pub fn make_dealt(name: &str, clients: &str) -> Self {
        Self::make_with(name, clients, &["--protocol", "rss-dealt"], &own_addresses::<2>())
    }

    /// Makes the files of a cluster of servers that prove their messages and keep an audit log.
    #[cfg(feature = "liar")]
    pub fn make_checked(name: &str, clients: &str) -> Self {
        let cluster =
            Self::make_with(name, clients, &["--security", "checked"], &own_addresses::<3>());
        for party in 0..3 {
            let path = cluster.folder.join(format!("party-{party}/party.toml"));
            let file = fs::read_to_string(&path).unwrap();
            fs::write(&path, file + "\n[audit]\nfile = \"audit.log\"\n").unwrap();
        }
        cluster
    }

    /// Makes a cluster of three servers with these options of `cluster init`, and starts them.
    pub fn start_with(name: &str, clients: &str, options: &[&str]) -> Self {
        Self::start_servers::<3>(name, clients, options)
    }

    /// Makes a cluster of `N` servers with these options of `cluster init`, and starts them.
    pub fn start_servers<const N: usize>(name: &str, clients: &str, options: &[&str]) -> Self {
        let mut cluster = Self::make_with(name, clients, options, &own_addresses::<N>());
        (0..N).for_each(|party| cluster.start_party(party));
        cluster.wait_until_up(clients.split(',').next().unwrap());
        cluster
    }

    /// Makes a cluster's files on free ports.
    pub fn make(name: &str, clients: &str) -> Self {
        Self::make_with(name, clients, &[], &own_addresses::<3>())
    }

    fn make_with(name: &str, clients: &str, options: &[&str], hosts: &[String]) -> Self {
        let folder = folder(name);
        let dir = folder.to_str().unwrap();
        let joined = hosts.join(",");
        let init = ["cluster", "init", dir, "--hosts", &joined, "--clients", clients];
        let made = trefoil(&[&init[..], options].concat());
        assert_eq!(made.code, 0, "{}", made.err);
        Self { folder, parties: hosts.iter().map(|_| None).collect() }
    }

    pub fn start_party(&mut self, party: usize) {
        self.start_party_with(party, &[]);
    }

    /// Starts a server with these variables in its environment.
    pub fn start_party_with(&mut self, party: usize, variables: &[(&str, &str)]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil"));
        command.envs(variables.iter().copied());
        self.launch(party, command);
    }

    /// Starts a server to which the system gives so many KiB of addresses and no more.
    pub fn start_party_within(&mut self, party: usize, kib: u64) {
        let mut command = Command::new("sh");
        let limited = r#"ulimit -v "$0" && exec "$@""#;
        command.args(["-c", limited, &kib.to_string(), env!("CARGO_BIN_EXE_trefoil")]);
        self.launch(party, command);
    }

    fn launch(&mut self, party: usize, command: Command) {
        let folder = self.folder.join(format!("party-{party}"));
        self.parties[party] = Some(launch(&folder, command, &[]));
    }

    /// Ends a server as `kill -9` does.
    pub fn kill(&mut self, party: usize) {
        let mut child = self.parties[party].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends a server's process a signal, `STOP` or `CONT`.
    pub fn signal(&self, party: usize, signal: &str) {
        let id = self.parties[party].as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until a server has ended by itself. Says how.
    pub fn wait(&mut self, party: usize) -> ExitStatus {
        let (mut child, began) = (self.parties[party].take().unwrap(), Instant::now());
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if began.elapsed() > LIMIT {
                child.kill().unwrap();
                panic!("party {party} does not end\n{}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether a server still runs.
    pub fn runs(&mut self, party: usize) -> bool {
        self.parties[party].as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// Sets a key in the file of one server.
    pub fn set(&self, party: usize, key: &str, value: &str) {
        let path = self.folder.join(format!("party-{party}/party.toml"));
        let mut file: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        file.insert(key.to_owned(), value.into());
        fs::write(&path, file.to_string()).unwrap();
    }

    /// Replaces limits in the files of all servers.
    pub fn set_limits(&self, limits: &[(&str, u64)]) {
        for party in 0..self.parties.len() {
            let path = self.folder.join(format!("party-{party}/party.toml"));
            let mut file: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
            let table = file["limits"].as_table_mut().unwrap();
            for (key, value) in limits {
                table[*key] = toml::Value::Integer(*value as i64);
            }
            fs::write(&path, file.to_string()).unwrap();
        }
    }

    /// How many descriptors a server has open, and its resident memory in KiB.
    pub fn holds(&self, party: usize) -> (usize, u64) {
        let id = self.parties[party].as_ref().unwrap().id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        let resident = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        (fs::read_dir(format!("/proc/{id}/fd")).unwrap().count(), resident)
    }

    pub fn client_config(&self, client: &str) -> PathBuf {
        self.folder.join(format!("client-{client}/client.toml"))
    }

    /// Runs the program as a client.
    pub fn run(&self, client: &str, arguments: &[&str]) -> Run {
        let config = self.client_config(client);
        let mut all = vec!["--config", config.to_str().unwrap()];
        all.extend(arguments);
        trefoil(&all)
    }

    /// Runs the program as a client; it must succeed and print JSON.
    pub fn json(&self, client: &str, arguments: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(arguments);
        let run = self.run(client, &all);
        assert_eq!(run.code, 0, "{arguments:?}: {}\n{}", run.err, self.logs());
        serde_json::from_str(&run.out).unwrap()
    }

    /// Waits until a client sees all linked.
    pub fn wait_until_up(&self, client: &str) {
        let began = Instant::now();
        while self.run(client, &["--quiet", "status"]).code != 0 {
            assert!(began.elapsed() < LIMIT, "the servers do not find each other\n{}", self.logs());
        }
    }

    pub fn logs(&self) -> String {
        let log = |party| {
            let path = self.folder.join(format!("party-{party}/log"));
            format!("-- party {party}\n{}", fs::read_to_string(path).unwrap_or_default())
        };
        (0..self.parties.len()).map(log).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.parties.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Runs the program.
pub fn trefoil(arguments: &[&str]) -> Run {
    trefoil_with(&[], arguments)
}

/// Runs the program with these variables in its environment.
pub fn trefoil_with(variables: &[(&str, &str)], arguments: &[&str]) -> Run {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_trefoil"))
        .args(arguments)
        .env_remove("TREFOIL_CONFIG")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run {
        code: output.status.code().expect("it was not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// A fresh folder.
pub fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("trefoil-e2e-{name}-{}-{count}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

/// `N` addresses that no other process uses: Linux answers under all of 127.0.0.0/8, and the
/// number of this process picks a host there.
fn own_addresses<const N: usize>() -> [String; N] {
    static NEXT: AtomicU16 = AtomicU16::new(7100);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    [(); N].map(|()| format!("127.{a}.{b}.{c}:{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// A line of text per test image: 64 numbers from 0 to 16 and the digit.
pub fn digits() -> Vec<String> {
    let all = all_digits();
    all[all.len() - 360..].to_vec()
}

/// A line of text per image, the test images last.
pub fn all_digits() -> Vec<String> {
    let path = Path::new(DIGITS).with_file_name("digits.csv.gz");
    let mut text = String::new();
    let mut file = flate2::read::GzDecoder::new(File::open(path).unwrap());
    std::io::Read::read_to_string(&mut file, &mut text).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// PyTorch's ten logits for each test image.
pub fn logits() -> Vec<Vec<f32>> {
    let bytes = fs::read(Path::new(DIGITS).with_file_name("digits-logits.npy")).unwrap();
    let data = &bytes[bytes.len() - 360 * 10 * 4..];
    let words = data.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
    words.collect::<Vec<_>>().chunks(10).map(<[f32]>::to_vec).collect()
}
