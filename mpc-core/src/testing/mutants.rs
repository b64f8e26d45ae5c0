//! Mutation tests: mutants that a crate's own tests make in its code, to see that they notice them.
//!
//! A line `mutant!("name", variable = value)` makes a mutant: in the mutant of that name the variable has the other
//! value from there on. In every build but the crate's own unit tests the line does nothing. A test's process runs at
//! most one mutant, named by an environment variable, so that all its threads agree.

use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

/// Gives a variable another value in a mutant.
#[macro_export]
macro_rules! mutant {
    ($mutant:literal, $name:ident = $value:expr) => {
        #[cfg(test)]
        let $name = if $crate::testing::mutants::is_active($mutant) { $value } else { $name };
    };
}

/// Names the mutant of a process.
const VARIABLE: &str = "TREFOIL_MUTANT";

/// Longest time in which a mutant must be noticed.
const LIMIT: Duration = Duration::from_secs(100);

/// A mutant, and the check that must fail in it.
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// The check's name.
    pub check: &'static str,
}

fn active() -> Option<&'static str> {
    static ACTIVE: OnceLock<Option<String>> = OnceLock::new();
    ACTIVE.get_or_init(|| env::var(VARIABLE).ok()).as_deref()
}

/// True if this process runs the mutant of that name.
pub fn is_active(mutant: &str) -> bool {
    active() == Some(mutant)
}

/// Runs each mutant's check in a separate process and expects it to fail. Runs all checks in this process, on unchanged
/// code, and expects them to pass. `test` is the name of the calling test, and `source` the crate's source folder. The
/// mutants `in_code` come from `mutant!` lines there, the `others` from the crate's tests. `check` runs the check of a
/// name.
///
/// # Panics
/// If a check does not notice its mutant, or fails without one; or if the mutants in the code are others than `in_code`.
pub fn every_mutant_is_noticed(
    test: &str,
    source: &Path,
    in_code: &[Mutant],
    others: &[Mutant],
    check: impl Fn(&str),
) {
    let mutants: Vec<&Mutant> = in_code.iter().chain(others).collect();
    if let Some(name) = active() {
        let mutant = mutants.iter().find(|mutant| mutant.name == name);
        return check(mutant.expect("only mutants of the list are run").check);
    }
    let mut places = places(source);
    let mut names: Vec<_> = in_code.iter().map(|mutant| mutant.name.to_owned()).collect();
    places.sort();
    names.sort();
    assert_eq!(places, names, "the mutants in the code are those of the list");
    let mut checks: Vec<_> = mutants.iter().map(|mutant| mutant.check).collect();
    checks.sort_unstable();
    checks.dedup();
    checks.into_iter().for_each(check);
    let mut survivors = Vec::new();
    let mut waiting = mutants.iter().copied();
    let mut running: Vec<(&Mutant, Child, Instant)> = Vec::new();
    let most = thread::available_parallelism().map_or(2, usize::from).min(4);
    loop {
        while running.len() < most
            && let Some(mutant) = waiting.next()
        {
            running.push((mutant, start(test, mutant.name), Instant::now()));
        }
        if running.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(5));
        running.retain_mut(|(mutant, child, since)| {
            let how = match child.try_wait().expect("a child can be waited for") {
                None if since.elapsed() < LIMIT => return true,
                None => {
                    child.kill().expect("a child can be ended");
                    child.wait().expect("a child can be waited for");
                    "hangs: not noticed"
                }
                Some(status) if status.success() => "survives",
                Some(_) => "noticed",
            };
            println!("{how} by `{}`: {}", mutant.check, mutant.name);
            if how != "noticed" {
                survivors.push(mutant.name);
            }
            false
        });
    }
    println!("{} of {} mutants are noticed", mutants.len() - survivors.len(), mutants.len());
    assert!(survivors.is_empty(), "mutants that no check notices: {survivors:#?}");
}

fn start(test: &str, mutant: &str) -> Child {
    let program = env::current_exe().expect("a test knows its program");
    let mut command = Command::new(program);
    command.args(["--exact", test]).env(VARIABLE, mutant);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("a test can start itself again")
}

/// The names of all mutants in a folder's files.
fn places(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).expect("the crate's sources are there") {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            names.extend(places(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file is text");
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let code = code.map(str::trim).collect::<Vec<_>>().concat();
            let quoted = code.split("mutant!(\"").skip(1);
            names.extend(quoted.filter_map(|rest| Some(rest.split_once("\",")?.0.to_owned())));
        }
    }
    names
}
