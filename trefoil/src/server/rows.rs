//! The rows of a training at one server: shares of all its data sets, brought together.

use mpc_core::{
    Error as Mpc, Format, Protocol, SecretTensor, ServerProtocol, ShareTensor,
    functions::{JOIN_KEY_BITS, JoinKind, Joined, Table, join, view},
};
use ring_arith::{Engine, Shape, View};

use super::{Core, cache::Hashes};
use crate::{
    base::{Error, Result, Shares},
    model::shapes_of,
    training::{Budget, DataSet, Join, Position, Run, Used},
};

/// The data sets of a run.
pub(super) struct Loaded<P: ServerProtocol> {
    pub(super) rows: Rows<P>,
    /// Hashes of all components of the sets that this server holds.
    pub(super) hashes: Hashes,
    /// Owner, name and privacy budget of each set.
    pub(super) budgets: Vec<(String, String, Option<Budget>)>,
}

/// The rows of a run's data sets.
pub(super) enum Rows<P: ServerProtocol> {
    /// The sets as their owners put them, until the servers have joined them.
    Apart(Vec<Set<P>>),
    /// All rows of each tensor of a batch.
    Whole(Vec<P::Share>),
}

/// A data set, or several whose columns are together already.
pub(super) struct Set<P: ServerProtocol> {
    used: Used,
    about: DataSet,
    /// All rows of each tensor, and the keys behind them if there are some.
    shares: Vec<P::Share>,
}

/// Why sets cannot be joined: the same reason at all servers.
pub(super) type Unjoined = String;

impl<P: ServerProtocol> Loaded<P> {
    /// Reads the sets of a client's run from this server's store.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the set that is not there any more, or is not as its description says.
    pub(super) fn read(core: &Core, mpc: &mut P, client: &str, run: &Run) -> Result<Self> {
        let mut stored = Shares::new();
        let mut sets = Vec::new();
        let mut budgets = Vec::new();
        for used in &run.spec.data {
            let manifest = core.usable_data(client, used)?;
            let shares = core.store.shares(&used.name, &manifest)?;
            let about = manifest.data()?.clone();
            check_shapes(&used.name, &shares, &about.shapes()?)?;
            budgets.push((manifest.owner.clone(), used.name.clone(), about.conditions.privacy));
            sets.push((used.clone(), about, shares.len()));
            stored.extend(shares);
        }
        let hashes = Hashes::new(mpc.sharing(), &stored);
        let mut shares = mpc.accept(&shapes_of(&stored)?, stored)?.into_iter();
        let sets = sets.into_iter().map(|(used, about, count)| {
            let shares = shares.by_ref().take(count).collect();
            Set { used, about, shares }
        });
        let mut rows = Rows::Apart(sets.collect());
        if run.spec.data.iter().all(|used| used.position.join().is_none()) {
            // Nothing is sent for that.
            rows.bring_together(mpc)?.map_err(Error::Internal)?;
        }
        Ok(Self { rows, hashes, budgets })
    }
}

impl<P: ServerProtocol> Rows<P> {
    /// The number of words that are shared.
    pub(super) fn words(&self) -> u64 {
        let of = |shares: &[P::Share]| shares.iter().map(|share| share.shape().len() as u64).sum();
        match self {
            Self::Apart(sets) => sets.iter().map(|set| of(&set.shares)).sum(),
            Self::Whole(shares) => of(shares),
        }
    }

    /// The bits that joins open which are still to be made: whether a set has a key twice, and of an inner one whether
    /// there are as many pairs as it asks for.
    pub(super) fn join_bits(&self) -> u64 {
        let Self::Apart(sets) = self else { return 0 };
        let bits = sets.iter().filter_map(|set| match set.used.position.join()? {
            Join::Inner { .. } => Some(2),
            Join::Left => Some(1),
        });
        bits.sum()
    }

    /// All rows of each tensor of a batch.
    ///
    /// # Errors
    /// [`Error::Internal`] before they have been brought together.
    pub(super) fn whole(&self) -> Result<&[P::Share]> {
        match self {
            Self::Whole(shares) => Ok(shares),
            Self::Apart(_) => Err(Error::Internal("data sets are not joined yet".to_owned())),
        }
    }

    /// Joins the sets that are joined by key, and puts all rows one after the other. The inner result is the reason why
    /// that is not possible, at all servers alike.
    ///
    /// # Cost
    /// That of [`join`] for each pair of sets, and one word that is opened. Else nothing is sent.
    ///
    /// # Errors
    /// Those of the protocol.
    pub(super) fn bring_together(&mut self, mpc: &mut P) -> Result<Result<(), Unjoined>> {
        let Self::Apart(sets) = self else { return Ok(Ok(())) };
        let mut parts: Vec<Set<P>> = Vec::new();
        for set in std::mem::take(sets) {
            match (parts.last_mut(), set.used.position) {
                (Some(before), Position::Beside) => {
                    before.shares.truncate(before.about.tensors.len());
                    before.about.beside(&set.about)?;
                    before.add_columns(mpc, &set)?;
                }
                (Some(left), Position::Joined(how)) => {
                    if let Err(reason) = left.join(mpc, set, how)? {
                        return Ok(Err(reason));
                    }
                }
                _ => parts.push(set),
            }
        }
        let tensors = parts.iter().map(|set| set.about.tensors.len()).min().unwrap_or(0);
        let mut whole = Vec::with_capacity(tensors);
        for at in 0..tensors {
            let rows: Vec<_> = parts.iter().map(|set| &set.shares[at]).collect();
            whole.push(mpc.concat(&rows, 0)?);
        }
        *self = Self::Whole(whole);
        Ok(Ok(()))
    }
}

impl<P: ServerProtocol> Set<P> {
    /// The shares of the tensors, without the keys.
    fn tensors(&self) -> &[P::Share] {
        &self.shares[..self.about.tensors.len()]
    }

    /// Puts the columns of another set beside these, as this set's description has them already.
    fn add_columns(&mut self, mpc: &P, other: &Self) -> Result<()> {
        let places = self.about.places(&other.about);
        for (place, more) in places.into_iter().zip(other.tensors()) {
            match place.and_then(|at| self.shares.get_mut(at)) {
                Some(held) => *held = mpc.concat(&[held, more], 1)?,
                None => self.shares.push(more.clone()),
            }
        }
        Ok(())
    }

    /// Joins the rows of another set to these.
    fn join(&mut self, mpc: &mut P, mut other: Self, how: Join) -> Result<Result<(), Unjoined>> {
        let names = [self.used.name.clone(), other.used.name.clone()];
        let [left_keys, right_keys] = [self.keys()?, other.keys()?];
        let [left, right] = [self.columns(), other.columns()];
        let [left, right] = [left.iter().collect::<Vec<_>>(), right.iter().collect::<Vec<_>>()];
        let left = Table { keys: &left_keys, columns: &left };
        let right = Table { keys: &right_keys, columns: &right };
        let (kind, at_most) = match how {
            Join::Inner { rows } => (JoinKind::Inner, Some(rows)),
            Join::Left => (JoinKind::Left, None),
        };
        let joined = match join(mpc, &left, &right, kind, at_most) {
            Ok(joined) => joined,
            // The protocol is sound: an opened bit says that an owner has put a key twice.
            Err(Mpc::Invalid { op: "join", reason }) => return Ok(Err(unjoined(&names, &reason))),
            Err(error) => return Err(error.into()),
        };
        if let Join::Inner { rows } = how
            && !fills(mpc, &joined, rows)?
        {
            let reason = format!(
                "fewer than {rows} of their rows have a partner: ask for fewer `rows`. If there should be more, the \
                 owners have hashed their keys under different secrets (--key-secret), or have written them differently"
            );
            return Ok(Err(unjoined(&names, &reason)));
        }
        let shares = |columns: Vec<SecretTensor<P>>| {
            columns.iter().map(|column| column.share().clone()).collect::<Vec<_>>()
        };
        self.shares = shares(joined.left);
        other.shares = shares(joined.right);
        self.about.join(&other.about, how, [&names[0], &names[1]])?;
        self.add_columns(mpc, &other)?;
        Ok(Ok(()))
    }

    fn keys(&self) -> Result<SecretTensor<P>> {
        let keys = self.shares.get(self.about.tensors.len());
        let keys = keys.ok_or_else(|| Error::Internal("a data set has no keys".to_owned()))?;
        Ok(SecretTensor::new(keys.clone(), Format::integer(JOIN_KEY_BITS + 1)))
    }

    fn columns(&self) -> Vec<SecretTensor<P>> {
        let tensors = self.tensors().iter().zip(&self.about.tensors);
        tensors
            .map(|(share, about)| {
                SecretTensor::new(share.clone(), Format::words(about.fraction_bits))
            })
            .collect()
    }
}

/// Opens whether all rows of an inner join are pairs: the bit of the last one says it, since pairs come first.
fn fills<P: Protocol>(mpc: &mut P, joined: &Joined<P>, rows: usize) -> Result<bool> {
    let last = View::Slice { axis: 0, start: rows - 1, end: rows, step: 1 };
    let last = view(mpc, &joined.matched, &last)?;
    let opened = mpc.open(&[last.share()])?;
    let opened = opened.first().map(|opened| mpc.engine().download(opened)).transpose()?;
    Ok(opened.is_some_and(|opened| opened.words() == [1]))
}

fn unjoined(names: &[String; 2], reason: &str) -> Unjoined {
    format!("data sets `{}` and `{}` are not joined: {reason}", names[0], names[1])
}

fn check_shapes(name: &str, shares: &Shares, wanted: &[Shape]) -> Result<()> {
    if shapes_of(shares)? == wanted {
        return Ok(());
    }
    let reason = "its rows are not as its description says; put it again with --replace";
    Err(Error::refused(format_args!("data set `{name}`"), reason))
}
