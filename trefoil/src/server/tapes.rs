//! Answers from a dealer's tapes, at one of two servers.

use cluster_protocols::{Tape, TapePlayer, start_with_tape};
use mpc_core::{Deal, Operand, Protocol, Released, ServerProtocol};
use net::Session;
use nn_layers::Observer;
use serde::{Deserialize, Serialize};

use super::{Core, cache::Loaded};
use crate::{
    base::{Digest, Error, Id, Result, Shares},
    model::Program,
    store::{Manifest, TAPES},
    tapes::{Labelled, Shelf, TapeState, digest, shown_name},
    wire::Watched,
};

/// The most tapes whose model stays shared under their masks between jobs.
const KEPT: usize = 4;

/// A tape that a server could play for a job, as it offers it to the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Candidate {
    /// The name of both tapes of a pair.
    id: Id,
    /// The first place that this server has not used.
    next: u64,
    /// Places in all.
    answers: u64,
    /// Examples of each place, at most.
    examples: u64,
    /// The dealer who made it.
    dealer: String,
}

/// The tapes that are played in a session; the one used last stands last.
pub(super) struct Players {
    /// All of the session but its transport.
    keys: Vec<Option<net::PairKey>>,
    id: [u8; 16],
    open: Vec<Player>,
}

/// A share at one of two servers that play tapes.
pub(super) type TapeShare = <TapePlayer as Protocol>::Share;

/// A tape, and the protocol that plays it.
pub(super) struct Player {
    tape: Tape,
    version: Id,
    mpc: TapePlayer,
    weights: Vec<Operand<TapePlayer>>,
}

impl Candidate {
    /// Examples of each place, at most.
    pub(super) fn examples(&self) -> usize {
        self.examples as usize
    }

    /// The tape that all servers can play, if they agree on it; else the reason.
    pub(super) fn choose(all: &[&[Self]]) -> Result<Id, String> {
        let [first, others @ ..] = all else { return Err("there is no server".to_owned()) };
        let mut common = false;
        for candidate in *first {
            let same: Vec<_> = others
                .iter()
                .filter_map(|other| other.iter().find(|it| it.id == candidate.id))
                .collect();
            if same.len() < others.len() {
                continue;
            }
            if let Some(other) = same.iter().find(|it| it.dealer != candidate.dealer) {
                return Err(format!(
                    "the servers' tapes are signed by different dealers, {} and {}: both must be of one making",
                    candidate.dealer, other.dealer
                ));
            }
            common = true;
            let next = same.iter().map(|it| it.next).max().unwrap_or(0).max(candidate.next);
            if next < candidate.answers {
                return Ok(candidate.id);
            }
        }
        if common {
            return Err(SPENT.to_owned());
        }
        let said = all.iter().enumerate().map(|(party, tapes)| {
            let names: Vec<_> = tapes.iter().map(|it| shown_name(&it.id.bytes())).collect();
            format!("party {party} has {}", names.join(" and "))
        });
        let said: Vec<_> = said.collect();
        Err(format!(
            "the servers' tapes for this model are not of one pair: {}; both must be of one making",
            said.join(", ")
        ))
    }
}

/// The reason why a tape gives no more answers.
const SPENT: &str = "the tape for this model is spent: have another one made (`trefoil tape make`) and give each \
                     server its part (`trefoil tape add`)";

/// The tapes, at least one, that this server could play for a job on this many examples.
pub(super) fn candidates(
    core: &Core,
    shelf: &Shelf,
    manifest: &Manifest,
    program: &Program,
    examples: usize,
) -> Result<Vec<Candidate>> {
    let version = manifest.version;
    let refused = |reason: String| Err(Error::refused("tapes", reason));
    let (tapes, mut damaged) = shelf.tapes()?;
    let Core { computing, me, .. } = core;
    let (mut spent, mut sizes, mut bound) = (false, Vec::new(), false);
    let mut found = Vec::new();
    for Labelled { tape, dealer } in tapes {
        if tape.digest() != *digest(program, &computing.settings, tape.examples()).as_bytes() {
            continue;
        }
        if tape.party().0 != *me {
            damaged.push(format!(
                "a tape of {} lies at party {me}: give each server its own with `trefoil tape add`",
                tape.party()
            ));
            continue;
        }
        let used = used_places(core, &tape)?;
        if tape.next() < used {
            damaged.push(format!(
                "tape {} was put back from a backup: {used} of its answers were used, and it says {}; used twice they \
                 would tell secrets, so remove it and have another one made",
                shown_name(&tape.id()),
                tape.next()
            ));
            continue;
        }
        if core.may_see_answers(&dealer, manifest) {
            damaged.push(format!(
                "dealer {dealer} made it, and may see answers of this model as client {dealer}: from an answer a dealer \
                 could learn an input; take the client's right away (`trefoil model share`, or `[access]` in \
                 party.toml), or have tapes made by another dealer"
            ));
            continue;
        }
        if !fits(program, examples, tape.examples()) {
            sizes.push(tape.examples().to_string());
        } else if tape.left()[0] == 0 {
            spent = true;
        } else if tape.bound()?.is_some_and(|bound| bound != version_hash(version)) {
            bound = true;
        } else {
            let [_, answers] = tape.left();
            let (id, next) = (Id::from(tape.id()), tape.next());
            found.push(Candidate { id, next, answers, examples: tape.examples(), dealer });
        }
    }
    if !found.is_empty() {
        // Those that were begun first, and in an order that all servers share.
        found.sort_by_key(|candidate| (candidate.next == 0, candidate.id));
        return Ok(found);
    }
    if spent {
        return refused(SPENT.to_owned());
    }
    if bound {
        return refused(
            "the tape was begun with another version of the model: have one made for this version"
                .to_owned(),
        );
    }
    if !sizes.is_empty() {
        sizes.sort();
        sizes.dedup();
        return refused(format!(
            "the tapes for this model are for {} examples at once, and the job has {examples}; \
             `trefoil infer --batch N` sends fewer at once",
            sizes.join(" or ")
        ));
    }
    let damaged = damaged.into_iter().map(|reason| format!("; one cannot be used: {reason}"));
    refused(format!(
        "there is no tape for this model here: a dealer makes one with `trefoil tape make`, for the same plan, \
         rounding and version of the program, and `trefoil tape add` takes it in{}",
        damaged.collect::<String>()
    ))
}

/// The number of places of a tape that were used here, as is written down apart from it.
fn used_places(core: &Core, tape: &Tape) -> Result<u64> {
    core.store.ledger().read(TAPES, &shown_name(&tape.id()))
}

/// True if a job on `examples` examples can be run on a tape for `tape` examples.
fn fits(program: &Program, examples: usize, tape: u64) -> bool {
    examples as u64 == tape || (examples as u64) < tape && program.keeps_examples_apart()
}

/// The hash of the version that a tape is bound to.
fn version_hash(version: Id) -> [u8; 32] {
    *Digest::of(&[b"version", &version.bytes()]).as_bytes()
}

impl Players {
    pub(super) fn new(session: &Session) -> Self {
        Self { keys: session.pair_keys.clone(), id: session.id, open: Vec::new() }
    }

    /// The player of a tape for a model. If that has not been done in this session, it first shares the weights under
    /// the tape's masks: one round, 8 bytes a weight to the other server.
    pub(super) fn player<P: Protocol>(
        &mut self,
        core: &Core,
        control: &Watched,
        tape: Id,
        model: &Loaded<P>,
    ) -> Result<&mut Player> {
        let known = |player: &Player| player.tape.id() == tape.bytes();
        let player = match self.open.iter().position(known) {
            Some(at) => self.open.remove(at),
            None => self.start(core, control, tape, model)?,
        };
        if player.version != model.version {
            return Err(Error::Internal("a tape is played for another version".to_owned()));
        }
        if self.open.len() >= KEPT {
            self.open.remove(0);
        }
        self.open.push(player);
        self.open.last_mut().ok_or_else(|| Error::Internal("no tape is played".to_owned()))
    }

    fn start<P: Protocol>(
        &self,
        core: &Core,
        control: &Watched,
        tape: Id,
        model: &Loaded<P>,
    ) -> Result<Player> {
        let shelf = core.shelf.as_ref().ok_or_else(|| Error::Internal("no tapes".to_owned()))?;
        let (tapes, _) = shelf.tapes()?;
        let tape = tapes.into_iter().map(|it| it.tape).find(|it| it.id() == tape.bytes());
        let tape = tape.ok_or_else(|| Error::refused("tapes", "the tape was taken away"))?;
        let session = Session {
            transport: Box::new(control.hand()),
            pair_keys: self.keys.clone(),
            id: self.id,
            prg: None,
        };
        let settings = core.computing.settings;
        let mut mpc = start_with_tape(tape.session(session)?, core.engine.clone(), settings)?;
        tape.set_up(&mut mpc, &version_hash(model.version))?;
        let weights = model.program.weights(&mut mpc, model.held()?.clone())?;
        Ok(Player { tape, version: model.version, mpc, weights })
    }
}

impl Player {
    /// Agrees with the other server on the next place of the tape, and spends it. That it was used is written down
    /// apart from the tape as well, so that a tape which comes back from a backup is known.
    pub(super) fn take_place(&mut self, core: &Core) -> Result<()> {
        self.mpc.step("next place of the tape");
        let place = self.tape.begin(&mut self.mpc)?;
        core.store.ledger().update(TAPES, &shown_name(&self.tape.id()), |used: &mut u64| {
            *used = place.saturating_add(1).max(*used);
            Ok(())
        })
    }

    /// Runs the model, at the place that was taken, on the inputs of each caller. Returns this server's shares of what
    /// each gets.
    pub(super) fn run<P: Protocol>(
        &mut self,
        model: &Loaded<P>,
        callers: Vec<Shares>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Vec<TapeShare>>> {
        let program = &model.program;
        let shapes = program.plan().input_shapes(self.tape.examples() as usize)?;
        program.run_place(&mut self.mpc, &self.weights, &shapes, callers, observer)
    }

    /// Operations of the last run.
    pub(super) fn operations(&self) -> u64 {
        self.mpc.operations()
    }

    /// This server's part of a caller's results.
    pub(super) fn release(&mut self, results: &[TapeShare]) -> Result<Vec<Released>> {
        Ok(self.mpc.release(&results.iter().collect::<Vec<_>>())?)
    }

    /// Bytes of the tape that the last run took.
    pub(super) fn played(&self) -> u64 {
        self.tape.played()
    }
}

impl Core {
    /// The tapes that are here, as far as they are for models that a client may see.
    pub(super) fn tape_states(&self, told: impl Fn(&str) -> bool) -> Result<Vec<TapeState>> {
        let Some(shelf) = &self.shelf else { return Ok(Vec::new()) };
        let (tapes, _) = shelf.tapes()?;
        if tapes.is_empty() {
            return Ok(Vec::new());
        }
        let mut programs = Vec::new();
        for name in self.store.names()?.into_iter().filter(|name| told(name)) {
            let Ok(manifest) = self.store.entry(&name).usable(&name) else { continue };
            if manifest.model().is_ok() {
                let program = self.programs.get(&self.store, &name, &manifest)?;
                programs.push((name, program));
            }
        }
        let state = |Labelled { tape, dealer }: &Labelled| {
            let is_for = |program: &Program| {
                tape.digest()
                    == *digest(program, &self.computing.settings, tape.examples()).as_bytes()
            };
            let model = programs.iter().find(|(_, program)| is_for(program));
            let [left, answers] = tape.left();
            TapeState {
                tape: shown_name(&tape.id()),
                model: model.map(|(name, _)| name.clone()),
                dealer: dealer.clone(),
                examples: tape.examples(),
                left,
                answers,
            }
        };
        Ok(tapes.iter().map(state).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tape(id: u8, next: u64) -> Candidate {
        let dealer = "maker".to_owned();
        Candidate { id: Id::from([id; 16]), next, answers: 3, examples: 1, dealer }
    }

    #[test]
    fn the_first_pair_is_chosen_that_neither_server_has_spent() {
        let chosen = |zero: &[Candidate], one: &[Candidate]| Candidate::choose(&[zero, one]);
        let [a, b] = [Id::from([1; 16]), Id::from([2; 16])];
        assert_eq!(chosen(&[tape(1, 0), tape(2, 0)], &[tape(2, 2), tape(1, 2)]), Ok(a));
        assert_eq!(chosen(&[tape(1, 0), tape(2, 0)], &[tape(1, 3), tape(2, 0)]), Ok(b));
        assert_eq!(chosen(&[tape(1, 0), tape(2, 0)], &[tape(2, 0)]), Ok(b));
        let forged = Candidate { dealer: "other".to_owned(), ..tape(1, 0) };
        let unlike = chosen(&[tape(1, 0)], &[forged]).unwrap_err();
        assert!(unlike.contains("different dealers, maker and other"), "{unlike}");
        assert!(chosen(&[tape(1, 0)], &[tape(1, 3)]).unwrap_err().contains("is spent"));
        let other = chosen(&[tape(1, 0)], &[tape(2, 0)]).unwrap_err();
        let names = [a, b].map(|id| shown_name(&id.bytes()));
        assert!(other.contains("not of one pair") && names.iter().all(|name| other.contains(name)));
    }
}
