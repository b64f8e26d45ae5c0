//! The counts that a server keeps for good, in small files apart from what clients put, replace and
//! remove.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Mutex,
    sync::{MutexGuard, PoisonError},
};

use nn_layers::train::Accountant;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::manifest::{read_sealed, write_sealed};
use crate::{
    base::{
        Digest, Error, Result,
        files::{files_in, sync_folder},
    },
    training::{Budget, Spent},
};

/// The folder of all counts.
const FOLDER: &str = "counts";

/// The parts of a run that have left this server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// The last step after which weights have left or a model was made, if any has.
    pub weights: u32,
    /// The metrics of steps before this one have left, and what the guard found there, or never will.
    pub metrics: u32,
}

impl Opened {
    /// The larger of both counts.
    fn max(&self, other: &Self) -> Self {
        let weights = self.weights.max(other.weights);
        Self { weights, metrics: self.metrics.max(other.metrics) }
    }
}

/// The privacy that a data set has spent, and the runs that spent it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Privacy {
    spent: Spent,
    /// Fingerprints of the runs that are counted.
    runs: BTreeSet<String>,
}

/// The cost of a run for a data set.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'a> {
    /// The client that owns the data set.
    pub owner: &'a str,
    /// Its name. A set that is put again continues the count of its name.
    pub set: &'a str,
    /// The budget that its owner allows.
    pub budget: Option<&'a Budget>,
    /// The run's fingerprint.
    pub run: Digest,
    /// The privacy cost for a row; none of a run without privacy.
    pub cost: Option<&'a Accountant>,
}

/// Counts by what they are of. A change is on the disk when it returns, so that a crash never leaves a count that is
/// too low.
#[derive(Debug)]
pub struct Ledger {
    root: PathBuf,
    /// Held while a count is changed.
    change: Mutex<()>,
}

/// Counts of a server, for another one that has lost its own. Tapes' places are not in it: they are of one server.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    opened: BTreeMap<String, Opened>,
    privacy: BTreeMap<String, Privacy>,
    revoked: u64,
}

impl Privacy {
    /// The count of two servers together, never less than that of either.
    fn with(self, other: Self) -> Self {
        let (more, less) =
            if other.runs.is_subset(&self.runs) { (self, other) } else { (other, self) };
        let mut spent = more.spent;
        if !less.runs.is_subset(&more.runs) {
            // Runs that both have count twice then.
            spent.accountant.add(&less.spent.accountant);
        }
        spent.unprotected |= less.spent.unprotected;
        Self { spent, runs: more.runs.union(&less.runs).cloned().collect() }
    }
}

impl Ledger {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.join(FOLDER), change: Mutex::default() }
    }

    /// The parts that have left of the run with this fingerprint.
    ///
    /// # Errors
    /// [`Error::Refused`] if the file is damaged: how much has left is not known then.
    pub fn opened(&self, run: Digest) -> Result<Opened> {
        self.read("opened", &run.letters())
    }

    /// Notes that something leaves, before it does. Counts only grow. Returns what had left before.
    ///
    /// # Errors
    /// As [`Ledger::opened`]; [`Error::File`] if it cannot be written, and nothing may leave then.
    pub fn open(&self, run: Digest, weights: u32, metrics: u32) -> Result<Opened> {
        let _change = self.lock();
        let before = self.opened(run)?;
        let now = before.max(&Opened { weights, metrics });
        if now != before {
            self.write("opened", &run.letters(), &now)?;
        }
        Ok(before)
    }

    /// The privacy of a row of a data set that runs have spent.
    ///
    /// # Errors
    /// As [`Ledger::opened`].
    pub fn spent(&self, owner: &str, set: &str) -> Result<Spent> {
        Ok(self.read::<Privacy>("privacy", &key(owner, set))?.spent)
    }

    /// Checks that a run keeps within the budget of a data set; one that is counted already does.
    ///
    /// # Errors
    /// [`Error::Refused`] that states by how much it does not; as [`Ledger::opened`].
    pub fn affords(&self, charge: &Charge<'_>) -> Result<()> {
        let counted: Privacy = self.read("privacy", &key(charge.owner, charge.set))?;
        match charge.budget {
            Some(budget) if !counted.runs.contains(&charge.run.letters()) => {
                budget.allow(charge.set, &counted.spent, charge.cost)
            }
            _ => Ok(()),
        }
    }

    /// Counts the whole privacy cost of a run for a data set, before its first step and once: a count is never too
    /// low.
    ///
    /// # Errors
    /// As [`Ledger::affords`]; [`Error::File`] if it cannot be written, and no step may be done then.
    pub fn spend(&self, charge: &Charge<'_>) -> Result<()> {
        let _change = self.lock();
        self.affords(charge)?;
        let key = key(charge.owner, charge.set);
        let mut counted: Privacy = self.read("privacy", &key)?;
        if !counted.runs.insert(charge.run.letters()) {
            return Ok(());
        }
        counted.spent.add(charge.cost);
        self.write("privacy", &key, &counted)
    }

    /// The highest number of a list of revoked certificates that this server has used, or 0.
    ///
    /// # Errors
    /// As [`Ledger::opened`].
    pub(crate) fn revoked(&self) -> Result<u64> {
        self.read("revoked", "number")
    }

    /// Notes the number of a list of revoked certificates. Returns the highest that was used.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub(crate) fn revoke(&self, number: u64) -> Result<u64> {
        let _change = self.lock();
        let known = self.revoked()?;
        if number > known {
            self.write("revoked", "number", &number)?;
        }
        Ok(known.max(number))
    }

    /// Everything that was counted.
    ///
    /// # Errors
    /// As [`Ledger::opened`].
    pub(crate) fn counts(&self) -> Result<Counts> {
        let _change = self.lock();
        Ok(Counts {
            opened: self.all("opened")?,
            privacy: self.all("privacy")?,
            revoked: self.revoked()?,
        })
    }

    /// Takes over what another server has counted. No count of this server's gets lower.
    ///
    /// # Errors
    /// As [`Ledger::open`]; [`Error::Refused`] if it is not what a server counts.
    pub(crate) fn take(&self, counts: Counts) -> Result<()> {
        self.revoke(counts.revoked)?;
        let _change = self.lock();
        for (key, opened) in counts.opened {
            check_key(&key)?;
            let own: Opened = self.read("opened", &key)?;
            self.write("opened", &key, &own.max(&opened))?;
        }
        for (key, privacy) in counts.privacy {
            check_key(&key)?;
            let own: Privacy = self.read("privacy", &key)?;
            self.write("privacy", &key, &own.with(privacy))?;
        }
        Ok(())
    }

    /// All counts of a kind.
    fn all<T: Default + DeserializeOwned>(&self, kind: &str) -> Result<BTreeMap<String, T>> {
        let mut keys = files_in(&self.root.join(kind))?;
        keys.retain(|key| check_key(key).is_ok());
        keys.into_iter().map(|key| Ok((key.clone(), self.read(kind, &key)?))).collect()
    }

    /// A count, or what it is before anything was counted.
    pub(crate) fn read<T: Default + DeserializeOwned>(&self, kind: &str, key: &str) -> Result<T> {
        match read_sealed(&self.path(kind, key)) {
            Ok(found) => Ok(found),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(T::default()),
            Err(cause) => {
                let advice = "its operator must restore the folder `counts` from a backup";
                let reason = format!("{cause}; {advice}");
                Err(Error::refused(format_args!("what this server has counted ({kind})"), reason))
            }
        }
    }

    /// Writes a count, on the disk when this returns.
    pub(crate) fn write(&self, kind: &str, key: &str, count: &impl Serialize) -> Result<()> {
        let path = self.path(kind, key);
        let folder = self.root.join(kind);
        if !folder.is_dir() {
            fs::create_dir_all(&folder).map_err(|cause| Error::file(&folder, cause))?;
            sync_folder(&self.root)?;
        }
        write_sealed(&path, count)?;
        sync_folder(&folder)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        // A file is replaced as a whole, so a panic leaves the old count or the new one.
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, kind: &str, key: &str) -> PathBuf {
        self.root.join(kind).join(key)
    }
}

/// Checks that a key is the letters of a digest, so that it names a file of its folder.
fn check_key(key: &str) -> Result<()> {
    let letter = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if key.len() == 64 && key.bytes().all(letter) {
        return Ok(());
    }
    Err(Error::refused("a count", "its key is not the letters of a digest"))
}

/// The key of a data set's count.
fn key(owner: &str, set: &str) -> String {
    Digest::of(&[b"data set", owner.as_bytes(), set.as_bytes()]).letters()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::folder;

    #[test]
    fn counts_only_grow_and_outlive_the_server() {
        let root = folder("ledger");
        let run = Digest::of(&[b"run"]);
        let ledger = Ledger::new(&root);
        assert_eq!(ledger.opened(run).unwrap(), Opened::default());
        assert_eq!(ledger.open(run, 0, 8).unwrap(), Opened::default());
        assert_eq!(ledger.open(run, 20, 4).unwrap(), Opened { weights: 0, metrics: 8 });
        let again = Ledger::new(&root);
        assert_eq!(again.opened(run).unwrap(), Opened { weights: 20, metrics: 8 });
        assert_eq!(again.opened(Digest::of(&[b"another"])).unwrap(), Opened::default());
    }

    #[test]
    fn a_run_is_charged_once_and_none_beyond_the_budget() {
        let root = folder("ledger-privacy");
        let mut cost = Accountant::default();
        cost.add_known(2.0, 1).unwrap();
        let budget = Budget { epsilon: 3.0, delta: 1e-5 };
        let charge = |run: &[u8], set: &'static str| Charge {
            owner: "hospital",
            set,
            budget: Some(&budget),
            run: Digest::of(&[run]),
            cost: Some(&cost),
        };
        for _ in 0..5 {
            // A server that was killed and started again counts on.
            Ledger::new(&root).spend(&charge(b"one", "rows")).unwrap();
        }
        let ledger = Ledger::new(&root);
        assert_eq!(ledger.spent("hospital", "rows").unwrap().accountant, cost);
        assert_eq!(ledger.spent("another", "rows").unwrap(), Spent::default());
        ledger.spend(&charge(b"two", "rows")).unwrap();
        let before = ledger.spent("hospital", "rows").unwrap();
        let text = ledger.spend(&charge(b"three", "rows")).unwrap_err().to_string();
        assert!(text.contains("its owner allows 3"), "{text}");
        assert_eq!(ledger.spent("hospital", "rows").unwrap(), before);
        ledger.affords(&charge(b"two", "rows")).unwrap();
        ledger.spend(&charge(b"three", "others")).unwrap();
        let open = Charge { cost: None, budget: None, ..charge(b"four", "rows") };
        ledger.spend(&open).unwrap();
        assert!(ledger.spent("hospital", "rows").unwrap().unprotected);
    }

    #[test]
    fn counts_of_another_server_are_taken_over_and_never_lower_ones() {
        let (run, other) = (Digest::of(&[b"run"]), Digest::of(&[b"other"]));
        let mut cost = Accountant::default();
        cost.add_known(2.0, 1).unwrap();
        let spend = |ledger: &Ledger, run: Digest| {
            let cost = Some(&cost);
            ledger.spend(&Charge { owner: "alice", set: "rows", budget: None, run, cost }).unwrap();
        };
        let [mine, theirs] = ["mine", "theirs"].map(|name| Ledger::new(&folder(name)));
        mine.open(run, 5, 9).unwrap();
        theirs.open(run, 7, 3).unwrap();
        theirs.open(other, 1, 1).unwrap();
        theirs.revoke(4).unwrap();
        spend(&theirs, run);
        mine.take(theirs.counts().unwrap()).unwrap();
        assert_eq!(mine.opened(run).unwrap(), Opened { weights: 7, metrics: 9 });
        assert_eq!(mine.opened(other).unwrap(), Opened { weights: 1, metrics: 1 });
        assert_eq!(mine.revoked().unwrap(), 4);
        assert_eq!(mine.spent("alice", "rows").unwrap().accountant, cost);
        // The same again changes nothing; runs that only one of both has counted are added.
        mine.take(theirs.counts().unwrap()).unwrap();
        assert_eq!(mine.spent("alice", "rows").unwrap().accountant, cost);
        let third = Ledger::new(&folder("third"));
        spend(&third, other);
        mine.take(third.counts().unwrap()).unwrap();
        let mut both = cost.clone();
        both.add(&cost);
        assert_eq!(mine.spent("alice", "rows").unwrap().accountant, both);
        for key in ["../../models/m/manifest".to_owned(), "A".repeat(64)] {
            let opened = BTreeMap::from([(key, Opened::default())]);
            mine.take(Counts { opened, ..Counts::default() }).unwrap_err();
        }
    }

    #[test]
    fn a_damaged_count_is_an_error_and_not_nothing() {
        let root = folder("ledger-damaged");
        let run = Digest::of(&[b"run"]);
        let ledger = Ledger::new(&root);
        ledger.open(run, 1, 1).unwrap();
        fs::write(ledger.path("opened", &run.letters()), "{}").unwrap();
        let text = ledger.opened(run).unwrap_err().to_string();
        assert!(text.contains("restore the folder `counts`"), "{text}");
        ledger.open(run, 2, 2).unwrap_err();
    }
}
