//! Runs: trainings and analyses on data that servers keep, with the consent of those whose data it is.

use serde::{Deserialize, Serialize};

use super::{Course, DataSet, Join, Openings, Planned, RowTensor, Spent, Work};
use crate::{
    base::{Digest, Error, Id, Result, check::check_name},
    model::{About, Column, Preprocess, check_alike},
};
use nn_layers::train::TrainPlan;

/// The most data sets of a run, and most recipients.
const SETS: usize = 256;

/// A client's order of a training or an analysis. All of it is public.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The data sets, each with its place among the rows of those before it.
    pub data: Vec<Used>,
    /// The training or the analysis.
    pub task: Task,
    /// The steps after which weights or results, and metrics, leave the servers.
    pub openings: Openings,
    /// Clients that get the trained weights or the results as its owner does.
    #[serde(default)]
    pub recipients: Vec<String>,
}

/// The task of a run on its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Task {
    /// A network is trained.
    Training {
        /// The course.
        course: Course,
        /// The preparation of images for the trained model.
        preprocess: Preprocess,
        /// Names of the classes, or none.
        labels: Vec<String>,
    },
    /// Functions are called on all rows.
    Analysis,
}

/// A data set that a run uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Used {
    /// Its name.
    pub name: String,
    /// Its version: another one is other data.
    pub version: Id,
    /// Its place among the data of the run.
    #[serde(default)]
    pub position: Position,
}

/// The place of a data set among the data of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Position {
    /// Its rows follow those of the sets before it.
    #[default]
    After,
    /// It holds further columns of the same rows as the set before it, in the same order.
    Beside,
    /// It holds columns of rows with the same keys as those of the set before it.
    Joined(Join),
}

/// The public description of a run, beside its plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The order.
    pub spec: RunSpec,
    /// Rows of all data sets together.
    pub rows: usize,
    /// Steps in all.
    pub steps: u32,
    /// The owner of each data set.
    pub owners: Vec<String>,
    /// The columns of each tensor of a row, none where they have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Vec<Column>>,
    /// The digest of the request: the network and how it is trained, or the steps of the analysis.
    pub request: Digest,
    /// The digest of what is derived from the request: plans, or shapes.
    pub plan: Digest,
    /// The digest of all that the owners of data consent to. Any change gives another fingerprint and needs new
    /// consent.
    pub fingerprint: Digest,
    /// Clients that have consented.
    pub approved: Vec<String>,
    /// True if its owner has stopped it.
    #[serde(default)]
    pub stopped: bool,
    /// True if its owner has found that its numbers left the range in which they are right.
    #[serde(default)]
    pub diverged: bool,
    /// Steps that are done.
    pub step: u32,
    /// The first step whose metrics are in the sums that are kept beside the state, if any are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums_from: Option<u32>,
}

/// A client's decision about a run, which holds once all servers agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// An owner of data: it may be used for this run, with everything that its fingerprint covers.
    Approve,
    /// The run's owner: the run continues.
    Resume,
}

impl Task {
    /// The name of the numbers that leave once it is done.
    #[must_use]
    pub fn leaves(&self) -> &'static str {
        match self {
            Self::Training { .. } => "weights",
            Self::Analysis => "results",
        }
    }
}

impl Decision {
    /// The name in logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Resume => "resume",
        }
    }
}

/// A decision that ends a run at each server that gets it, at once and without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Halt {
    /// An owner of data: it may not be used any more.
    Withdraw,
    /// The run's owner: it rests until it is resumed.
    Stop,
    /// The run's owner, to whom its guard has told it: its numbers have left their range, so it goes no further and no
    /// model is made of it.
    Diverge,
}

impl Halt {
    /// The name in logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Withdraw => "withdraw",
            Self::Stop => "stop",
            Self::Diverge => "diverge",
        }
    }
}

impl Position {
    /// The join of the rows, if there is one.
    #[must_use]
    pub fn join(self) -> Option<Join> {
        match self {
            Self::Joined(join) => Some(join),
            Self::After | Self::Beside => None,
        }
    }
}

impl RunSpec {
    /// Checks a spec that a client sent.
    ///
    /// # Errors
    /// [`Error::Refused`] that states what is not sound.
    pub fn check(&self) -> Result<()> {
        let bad = |reason: String| Err(Error::refused("run", reason));
        if !(1..=SETS).contains(&self.data.len()) {
            return bad(format!("{} data sets; 1 to {SETS} can be used", self.data.len()));
        }
        if self.data[0].position != Position::After {
            return bad(format!("no data set stands before `{}`", self.data[0].name));
        }
        for both in self.data.windows(2) {
            let [before, used] = both else { continue };
            let joins =
                [before.position, used.position].iter().any(|position| position.join().is_some());
            if joins && before.position != Position::After && used.position != Position::After {
                return bad(format!(
                    "`{}` is added to `{}`, which is part of other rows already: a join brings two data sets together, \
                     and nothing stands beside them",
                    used.name, before.name
                ));
            }
        }
        for (at, used) in self.data.iter().enumerate() {
            check_name("data set", &used.name).map_err(|reason| Error::refused("run", reason))?;
            if self.data[..at].iter().any(|known| known.name == used.name) {
                return bad(format!("data set `{}` is named twice", used.name));
            }
        }
        if self.recipients.len() > SETS {
            return bad(format!("{} recipients; up to {SETS} can be named", self.recipients.len()));
        }
        for name in &self.recipients {
            check_name("client", name).map_err(|reason| Error::refused("run", reason))?;
        }
        Ok(())
    }
}

impl Run {
    /// A run that has not begun. `start` is the job that brings its weights, `owner` the client that gets the
    /// results, `sets` are the data sets with their owners. The work `planned` was derived from the request of that
    /// digest.
    ///
    /// # Errors
    /// [`Error::Refused`] if a data set does not fit the work, there are too few rows, or the run does what the owner
    /// of a data set does not allow.
    pub fn new(
        name: &str,
        owner: &str,
        start: Id,
        spec: RunSpec,
        request: Digest,
        planned: &Planned,
        sets: &[(DataSet, String)],
    ) -> Result<Self> {
        let wanted = planned.tensors()?;
        let whole = together(&spec.data, sets.iter().map(|(set, _)| set))?;
        for (name, set) in &whole {
            set.check_like(name, &wanted)?;
        }
        let columns = common_columns(&whole)?;
        let left = spec.data.iter().find(|used| used.position == Position::Joined(Join::Left));
        if let Some(used) = left.filter(|_| planned.standardizes()) {
            let reason = format!(
                "the rows are standardised, and those without a partner in `{}` would count with zeros: ask for an inner \
                 join, or let the owners scale their columns by a schema",
                used.name
            );
            return Err(Error::refused("run", reason));
        }
        let rows = whole.iter().map(|(_, set)| set.rows).sum();
        let work = Work::new(planned.clone(), &spec, rows)?;
        let flow = work.flow()?;
        for (used, (set, _)) in spec.data.iter().zip(sets) {
            set.conditions.allow(&used.name, work.rows_together(), &flow)?;
            if let Some(budget) = &set.conditions.privacy {
                budget.allow(&used.name, &Spent::default(), work.privacy()?.as_ref())?;
            }
        }
        let plan = planned.digest()?;
        let owners: Vec<String> = sets.iter().map(|(_, owner)| owner.clone()).collect();
        let public = serde_json::to_vec(&(
            name, owner, start, &spec, rows, &owners, &columns, request, plan,
        ))
        .map_err(|cause| Error::Internal(format!("run `{name}`: {cause}")))?;
        let fingerprint = Digest::of(&[b"run", &public]);
        Ok(Self {
            spec,
            rows,
            steps: work.steps(),
            owners,
            columns,
            request,
            plan,
            fingerprint,
            approved: Vec::new(),
            stopped: false,
            diverged: false,
            step: 0,
            sums_from: None,
        })
    }

    /// Gives the trained model the columns of the rows that it was trained on, and the names of their classes unless
    /// the order has some.
    pub fn describe(&self, about: &mut About) {
        if let Some((labels, inputs)) = self.columns.split_last() {
            about.describe(inputs.to_vec(), labels.first().cloned());
        }
    }

    /// The columns of each tensor of a row that stay as they are where rows are standardised, those of categories: true for
    /// each of their numbers. Empty for a tensor whose columns have no names.
    #[must_use]
    pub fn categories(&self) -> Vec<Vec<bool>> {
        let each = |column: &Column| vec![!column.categories.is_empty(); column.width()];
        let of = |columns: &Vec<Column>| columns.iter().flat_map(each).collect();
        self.columns.iter().map(of).collect()
    }

    /// The same after a client's decision.
    pub fn decide(&mut self, client: &str, decision: Decision) {
        match decision {
            Decision::Approve if !self.approved.iter().any(|known| known == client) => {
                self.approved.push(client.to_owned());
            }
            Decision::Approve => {}
            Decision::Resume => self.stopped = false,
        }
    }

    /// The same after a client has halted it.
    pub fn halt(&mut self, client: &str, halt: Halt) {
        match halt {
            Halt::Withdraw => self.approved.retain(|known| known != client),
            Halt::Stop => self.stopped = true,
            Halt::Diverge => self.diverged = true,
        }
    }

    /// Takes over what was decided about another version of the same run. Returns true if that changes anything.
    pub fn take_decisions(&mut self, from: &Self) -> bool {
        let same = (&self.approved, self.stopped, self.diverged)
            == (&from.approved, from.stopped, from.diverged);
        if same || self.fingerprint != from.fingerprint {
            return false;
        }
        self.approved.clone_from(&from.approved);
        (self.stopped, self.diverged) = (from.stopped, from.diverged);
        true
    }

    /// Keeps only the decisions that another server has as well: clients that have consented at both, and that the
    /// run is stopped or has diverged if it is so at either. Returns true if both are otherwise the same.
    pub fn agree(&mut self, other: &Self) -> bool {
        self.approved.retain(|client| other.approved.contains(client));
        self.stopped |= other.stopped;
        self.diverged |= other.diverged;
        let mut other = other.clone();
        other.take_decisions(self);
        *self == other
    }

    /// Owners of data that have not consented. The run's owner has, by making it.
    #[must_use]
    pub fn missing(&self, owner: &str) -> Vec<&str> {
        let mut missing: Vec<&str> = self.owners.iter().map(String::as_str).collect();
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|name| *name != owner && !self.approved.iter().any(|known| known == name));
        missing
    }
}

/// The data sets of a run as their rows follow each other, each with those whose columns stand beside it or are joined to
/// it, and with their names.
///
/// # Errors
/// [`Error::Refused`] if two do not go together.
pub fn together<'a>(
    data: &[Used],
    sets: impl IntoIterator<Item = &'a DataSet>,
) -> Result<Vec<(String, DataSet)>> {
    let mut whole: Vec<(String, DataSet)> = Vec::new();
    for (used, set) in data.iter().zip(sets) {
        match (whole.last_mut(), used.position) {
            (Some((name, columns)), Position::Beside) => {
                *name += &format!("` beside `{}", used.name);
                columns.beside(set)?;
            }
            (Some((name, columns)), Position::Joined(join)) => {
                columns.join(set, join, [name, &used.name])?;
                *name += &format!("` joined with `{}", used.name);
            }
            _ => whole.push((used.name.clone(), set.clone())),
        }
    }
    Ok(whole)
}

/// The columns of the rows of data sets that follow each other, by tensor: they mean the same in all of them. A column
/// has the range that holds its numbers in all sets, if each states one.
///
/// # Errors
/// [`Error::Refused`] that names the sets that differ, and the column.
fn common_columns(sets: &[(String, DataSet)]) -> Result<Vec<Vec<Column>>> {
    let Some(((first, set), others)) = sets.split_first() else { return Ok(Vec::new()) };
    let mut common: Vec<Vec<Column>> =
        set.tensors.iter().map(|tensor| tensor.columns.clone()).collect();
    for (name, set) in others {
        for (mine, tensor) in common.iter_mut().zip(&set.tensors) {
            check_alike(mine, &tensor.columns).map_err(|reason| {
                let reason = format!("its rows are not those of data set `{first}`: {reason}");
                Error::refused(format_args!("data set `{name}`"), reason)
            })?;
            for (mine, other) in mine.iter_mut().zip(&tensor.columns) {
                let both = mine.range.zip(other.range);
                mine.range = both.map(|(a, b)| (a.0.min(b.0), a.1.max(b.1)));
            }
        }
    }
    Ok(common)
}

/// The digest of the plans of a training, which servers and clients compare after deriving them.
///
/// # Errors
/// [`Error::Internal`] if they cannot be written, which does not happen.
pub fn plan_digest(plan: &TrainPlan) -> Result<Digest> {
    let written = serde_json::to_vec(plan)
        .map_err(|cause| Error::Internal(format!("the plan of a training: {cause}")))?;
    Ok(Digest::of(&[b"training plan", &written]))
}

/// The tensors that a plan takes of each row, the labels last.
///
/// # Errors
/// [`Error::Nn`] if it takes no batch, which does not happen.
pub fn tensors(plan: &TrainPlan) -> Result<Vec<RowTensor>> {
    let step = plan.step_plan();
    let shapes = plan.batch_shapes()?;
    let each = step.inputs().iter().zip(&shapes).enumerate();
    let tensor =
        |(at, (input, shape)): (usize, (&nn_layers::InputSpec, &ring_arith::Shape))| RowTensor {
            name: input.name.clone(),
            dims: shape.dims()[1..].to_vec(),
            fraction_bits: step.input_frac(at),
            columns: Vec::new(),
        };
    Ok(each.map(tensor).collect())
}
