//! Faults that a crate's own tests plant into it, to see that its tests notice them.
//!
//! `planted!("name", variable = value)` stands where the fault is made: while the fault of that name is planted, the
//! variable has the other value from there on. In every build but the crate's own unit tests the line is nothing.
//! A test's process plants at most one fault, named by an environment variable, so that all its threads agree.

/// Gives a variable another value while a fault is planted.
macro_rules! planted {
    ($fault:literal, $name:ident = $value:expr) => {
        #[cfg(test)]
        let $name = if $crate::fault::is_planted($fault) { $value } else { $name };
    };
}

#[cfg(test)]
pub(crate) use planting::{Fault, every_fault_is_noticed, is_planted};

#[cfg(test)]
mod planting {
    use std::{
        env, fs,
        path::Path,
        process::{Child, Command, Stdio},
        sync::OnceLock,
        thread,
        time::{Duration, Instant},
    };

    /// Names the fault of a process.
    const VARIABLE: &str = "TREFOIL_FAULT";

    /// Longest time in which a fault must be noticed.
    const LIMIT: Duration = Duration::from_secs(100);

    /// A fault, and what must fail while it is planted.
    pub(crate) struct Fault {
        pub name: &'static str,
        pub check: &'static str,
    }

    fn planted_here() -> Option<&'static str> {
        static PLANTED: OnceLock<Option<String>> = OnceLock::new();
        PLANTED.get_or_init(|| env::var(VARIABLE).ok()).as_deref()
    }

    pub(crate) fn is_planted(fault: &str) -> bool {
        planted_here() == Some(fault)
    }

    /// Runs each fault's check in a process of its own, in which the fault is planted, and expects it to fail; and all
    /// checks here, where nothing is planted, and expects them to pass. `test` is the name of the calling test, `source`
    /// the crate's folder of sources, in which the faults `planted` are; the crate's tests make the `others`. `check`
    /// runs the check of a name.
    pub(crate) fn every_fault_is_noticed(
        test: &str,
        source: &Path,
        planted: &[Fault],
        others: &[Fault],
        check: impl Fn(&str),
    ) {
        let faults: Vec<&Fault> = planted.iter().chain(others).collect();
        if let Some(name) = planted_here() {
            let fault = faults.iter().find(|fault| fault.name == name);
            return check(fault.expect("only faults of the list are planted").check);
        }
        let mut places = places(source);
        let mut names: Vec<_> = planted.iter().map(|fault| fault.name.to_owned()).collect();
        places.sort();
        names.sort();
        assert_eq!(places, names, "the places where faults are planted are those of the list");
        let mut checks: Vec<_> = faults.iter().map(|fault| fault.check).collect();
        checks.sort_unstable();
        checks.dedup();
        checks.into_iter().for_each(check);
        let mut survivors = Vec::new();
        let mut waiting = faults.iter().copied();
        let mut running: Vec<(&Fault, Child, Instant)> = Vec::new();
        let most = thread::available_parallelism().map_or(2, usize::from).min(4);
        loop {
            while running.len() < most
                && let Some(fault) = waiting.next()
            {
                running.push((fault, start(test, fault.name), Instant::now()));
            }
            if running.is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(5));
            running.retain_mut(|(fault, child, since)| {
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
                println!("{how} by `{}`: {}", fault.check, fault.name);
                if how != "noticed" {
                    survivors.push(fault.name);
                }
                false
            });
        }
        println!("{} of {} faults are noticed", faults.len() - survivors.len(), faults.len());
        assert!(survivors.is_empty(), "faults that no check notices: {survivors:#?}");
    }

    fn start(test: &str, fault: &str) -> Child {
        let program = env::current_exe().expect("a test knows its program");
        let mut command = Command::new(program);
        command.args(["--exact", test]).env(VARIABLE, fault);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("a test can start itself again")
    }

    /// The names of all faults that are planted in a folder's files.
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
                let quoted = code.split("planted!(\"").skip(1);
                names.extend(quoted.filter_map(|rest| Some(rest.split_once("\",")?.0.to_owned())));
            }
        }
        names
    }
}
