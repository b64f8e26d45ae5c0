//! The counts that a server keeps for good, in small files apart from what clients put, replace and
//! remove.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use nn_layers::train::Accountant;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    backing::Backing,
    manifest::{parse_sealed, sealed},
};
use crate::{
    base::{Digest, Error, Result},
    training::{Budget, Spent},
};

/// The folder of all counts.
const FOLDER: &str = "counts";

/// The kinds of counts: of what has left runs, of the privacy of data sets, of lists of revoked certificates, of the used
/// places of tapes, and of what clients have used of their allowances, in a folder for each day.
const OPENED: &str = "opened";
const PRIVACY: &str = "privacy";
const REVOKED: &str = "revoked";
pub(crate) const TAPES: &str = "tapes";
pub(super) const DAYS: &str = "days";

/// The letters of a digest, and of a tape's name, which counts are kept under.
const DIGEST: usize = 64;
const TAPE: usize = 12;

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

/// Counts by what they are of, which all workers of a party share. A change is on the disk when it returns, so that a
/// crash never leaves a count that is too low. Clones are the same counts.
#[derive(Debug, Clone)]
pub struct Ledger {
    backing: Arc<dyn Backing>,
}

/// Counts of a server, for another one that has lost its own. Tapes' places are not in it: they are of one server.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    opened: BTreeMap<String, Opened>,
    privacy: BTreeMap<String, Privacy>,
    revoked: u64,
}

/// All that a server has counted, for itself after a restore.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AllCounts {
    counts: Counts,
    /// Places that were used, by tape.
    tapes: BTreeMap<String, u64>,
    /// The used parts of clients' allowances, by day.
    days: BTreeMap<u64, BTreeMap<String, u64>>,
}

impl Privacy {
    /// Checks that a run keeps within the budget of a data set; one that is counted already does.
    fn affords(&self, charge: &Charge<'_>) -> Result<()> {
        match charge.budget {
            Some(budget) if !self.runs.contains(&charge.run.letters()) => {
                budget.allow(charge.set, &self.spent, charge.cost)
            }
            _ => Ok(()),
        }
    }

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
    pub(super) fn new(backing: Arc<dyn Backing>) -> Self {
        Self { backing }
    }

    /// The parts that have left of the run with this fingerprint.
    ///
    /// # Errors
    /// [`Error::Refused`] if the file is damaged: how much has left is not known then.
    pub fn opened(&self, run: Digest) -> Result<Opened> {
        self.read(OPENED, &run.letters())
    }

    /// Notes that something leaves, before it does. Counts only grow. Returns what had left before.
    ///
    /// # Errors
    /// As [`Ledger::opened`]; [`Error::File`] if it cannot be written, and nothing may leave then.
    pub fn open(&self, run: Digest, weights: u32, metrics: u32) -> Result<Opened> {
        self.update(OPENED, &run.letters(), |opened: &mut Opened| {
            let before = opened.clone();
            *opened = before.max(&Opened { weights, metrics });
            Ok(before)
        })
    }

    /// The privacy of a row of a data set that runs have spent.
    ///
    /// # Errors
    /// As [`Ledger::opened`].
    pub fn spent(&self, owner: &str, set: &str) -> Result<Spent> {
        Ok(self.read::<Privacy>(PRIVACY, &key(owner, set))?.spent)
    }

    /// Checks that a run keeps within the budget of a data set; one that is counted already does.
    ///
    /// # Errors
    /// [`Error::Refused`] that states by how much it does not; as [`Ledger::opened`].
    pub fn affords(&self, charge: &Charge<'_>) -> Result<()> {
        let counted: Privacy = self.read(PRIVACY, &key(charge.owner, charge.set))?;
        counted.affords(charge)
    }

    /// Counts the whole privacy cost of a run for a data set, before its first step and once: a count is never too
    /// low.
    ///
    /// # Errors
    /// As [`Ledger::affords`]; [`Error::File`] if it cannot be written, and no step may be done then.
    pub fn spend(&self, charge: &Charge<'_>) -> Result<()> {
        self.update(PRIVACY, &key(charge.owner, charge.set), |counted: &mut Privacy| {
            counted.affords(charge)?;
            if counted.runs.insert(charge.run.letters()) {
                counted.spent.add(charge.cost);
            }
            Ok(())
        })
    }

    /// The highest number of a list of revoked certificates that this server has used, or 0.
    ///
    /// # Errors
    /// As [`Ledger::opened`].
    pub(crate) fn revoked(&self) -> Result<u64> {
        self.read(REVOKED, "number")
    }

    /// Notes the number of a list of revoked certificates. Returns the highest that was used.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub(crate) fn revoke(&self, number: u64) -> Result<u64> {
        self.update(REVOKED, "number", |known: &mut u64| {
            *known = number.max(*known);
            Ok(*known)
        })
    }

    /// Everything that was counted.
    ///
    /// # Errors
    /// As [`Ledger::opened`].
    pub(crate) fn counts(&self) -> Result<Counts> {
        Ok(Counts {
            opened: self.all(OPENED, DIGEST)?,
            privacy: self.all(PRIVACY, DIGEST)?,
            revoked: self.revoked()?,
        })
    }

    /// Takes over what another server has counted. No count of this server's gets lower.
    ///
    /// # Errors
    /// As [`Ledger::open`]; [`Error::Refused`] if it is not what a server counts.
    pub(crate) fn take(&self, counts: Counts) -> Result<()> {
        self.revoke(counts.revoked)?;
        for (key, opened) in counts.opened {
            check_key(&key, DIGEST)?;
            self.update(OPENED, &key, |own: &mut Opened| {
                *own = own.max(&opened);
                Ok(())
            })?;
        }
        for (key, privacy) in counts.privacy {
            check_key(&key, DIGEST)?;
            self.update(PRIVACY, &key, |own: &mut Privacy| {
                *own = own.clone().with(privacy.clone());
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Everything that was counted, that of this server alone included.
    ///
    /// # Errors
    /// As [`Ledger::opened`].
    pub(super) fn all_counts(&self) -> Result<AllCounts> {
        let mut days = BTreeMap::new();
        for day in self.backing.list(&format!("{FOLDER}/{DAYS}"))? {
            if let Ok(number) = day.parse() {
                days.insert(number, self.all(&format!("{DAYS}/{day}"), DIGEST)?);
            }
        }
        Ok(AllCounts { counts: self.counts()?, tapes: self.all(TAPES, TAPE)?, days })
    }

    /// Takes back what this server has counted before. No count gets lower.
    ///
    /// # Errors
    /// As [`Ledger::take`].
    pub(super) fn take_back(&self, all: AllCounts) -> Result<()> {
        let raise = |kind: &str, key: &str, before: u64| {
            self.update(kind, key, |count: &mut u64| {
                *count = before.max(*count);
                Ok(())
            })
        };
        self.take(all.counts)?;
        for (tape, used) in all.tapes {
            check_key(&tape, TAPE)?;
            raise(TAPES, &tape, used)?;
        }
        for (day, counts) in all.days {
            for (key, used) in counts {
                check_key(&key, DIGEST)?;
                raise(&format!("{DAYS}/{day}"), &key, used)?;
            }
        }
        Ok(())
    }

    /// The counts that cannot be read: their places, and why.
    ///
    /// # Errors
    /// [`Error::File`] if the store cannot be read.
    pub fn damage(&self) -> Result<Vec<(String, String)>> {
        let mut kinds = [OPENED, PRIVACY, REVOKED, TAPES].map(str::to_owned).to_vec();
        let days = self.backing.list(&format!("{FOLDER}/{DAYS}"))?;
        kinds.extend(days.into_iter().map(|day| format!("{DAYS}/{day}")));
        let mut found = Vec::new();
        for kind in kinds {
            for key in self.backing.list(&format!("{FOLDER}/{kind}"))? {
                let place = place(&kind, &key);
                let object = self.backing.read(&place)?;
                let read =
                    object.map(|object| parse_sealed::<serde::de::IgnoredAny>(&object.bytes));
                if let Some(Err(reason)) = read {
                    found.push((self.backing.place(&place), reason));
                }
            }
        }
        Ok(found)
    }

    /// All counts of a kind, under keys of this many letters.
    fn all<T: Default + DeserializeOwned>(
        &self,
        kind: &str,
        letters: usize,
    ) -> Result<BTreeMap<String, T>> {
        let mut keys = self.backing.list(&format!("{FOLDER}/{kind}"))?;
        keys.retain(|key| check_key(key, letters).is_ok());
        keys.into_iter().map(|key| Ok((key.clone(), self.read(kind, &key)?))).collect()
    }

    /// A count, or what it is before anything was counted.
    pub(crate) fn read<T: Default + DeserializeOwned>(&self, kind: &str, key: &str) -> Result<T> {
        let object = self.backing.read(&place(kind, key))?;
        object.map_or_else(|| Ok(T::default()), |object| parse(kind, &object.bytes))
    }

    /// Changes a count, on the disk when this returns. The change is made again if another worker made one meanwhile.
    pub(crate) fn update<T, R>(
        &self,
        kind: &str,
        key: &str,
        change: impl Fn(&mut T) -> Result<R>,
    ) -> Result<R>
    where
        T: Default + Clone + PartialEq + Serialize + DeserializeOwned,
    {
        let place = place(kind, key);
        loop {
            let object = self.backing.read(&place)?;
            let before = match &object {
                Some(object) => parse(kind, &object.bytes)?,
                None => T::default(),
            };
            let mut count = before.clone();
            let outcome = change(&mut count)?;
            let was = object.as_ref().map(|object| &object.tag);
            if count == before || self.backing.swap(&place, &sealed(&count)?, was)? {
                return Ok(outcome);
            }
        }
    }

    /// Removes the groups of counts of a kind that are old.
    pub(super) fn forget(&self, kind: &str, is_old: impl Fn(&str) -> bool) -> Result<()> {
        let folder = format!("{FOLDER}/{kind}");
        for group in self.backing.list(&folder)?.into_iter().filter(|group| is_old(group)) {
            let group = format!("{folder}/{group}");
            for key in self.backing.list(&group)? {
                self.backing.remove(&format!("{group}/{key}"), None)?;
            }
            self.backing.prune(&group);
        }
        Ok(())
    }
}

/// The place of a count.
fn place(kind: &str, key: &str) -> String {
    format!("{FOLDER}/{kind}/{key}")
}

fn parse<T: DeserializeOwned>(kind: &str, bytes: &[u8]) -> Result<T> {
    parse_sealed(bytes).map_err(|cause| {
        let advice = "its operator must restore the folder `counts` from a backup";
        let reason = format!("{cause}; {advice}");
        Error::refused(format_args!("what this server has counted ({kind})"), reason)
    })
}

/// Checks that a key is this many letters of a digest, so that it names a file of its folder.
fn check_key(key: &str, letters: usize) -> Result<()> {
    let letter = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if key.len() == letters && key.bytes().all(letter) {
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
    use std::{fs, path::Path};

    use crate::{
        store::{Worker, backing::Files},
        testing::folder,
    };

    fn ledger(root: &Path) -> Ledger {
        Ledger::new(Arc::new(Files::open(root, Worker::Cell(0)).unwrap()))
    }

    #[test]
    fn counts_only_grow_and_outlive_the_server() {
        let root = folder("ledger");
        let run = Digest::of(&[b"run"]);
        let counted = ledger(&root);
        assert_eq!(counted.opened(run).unwrap(), Opened::default());
        assert_eq!(counted.open(run, 0, 8).unwrap(), Opened::default());
        assert_eq!(counted.open(run, 20, 4).unwrap(), Opened { weights: 0, metrics: 8 });
        drop(counted);
        let again = ledger(&root);
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
            ledger(&root).spend(&charge(b"one", "rows")).unwrap();
        }
        let ledger = ledger(&root);
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
        let [mine, theirs] = ["mine", "theirs"].map(|name| ledger(&folder(name)));
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
        let third = ledger(&folder("third"));
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
        let ledger = ledger(&root);
        ledger.open(run, 1, 1).unwrap();
        fs::write(root.join(place(OPENED, &run.letters())), "{}").unwrap();
        let text = ledger.opened(run).unwrap_err().to_string();
        assert!(text.contains("restore the folder `counts`"), "{text}");
        ledger.open(run, 2, 2).unwrap_err();
    }
}
