//! All orders in which messages of the flow can arrive, with honest parties and with one that does what it likes.
//!
//! The programs of honest parties are recorded from a run: what they send and wait for, which depends on public shapes
//! alone. A state is how far each party is, and how much a liar has sent to each; a liar sends at any time, or never.

use std::collections::HashSet;

use net::{Error, Party, Transport, launch};

use super::recorder::{Event, Log, Recorder, batch, proofs, statements};
use crate::{Verdict, keys::Draw};

/// Batches of the run.
const BATCHES: usize = 2;

/// The meaning of a message, by its length.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Says {
    Announcement,
    Challenge,
    Verdict,
    Other,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Send(usize, Says),
    Receive(usize),
}

/// The steps of each party, and where each batch ends.
fn programs() -> Vec<(Vec<Step>, Vec<usize>)> {
    let statements = statements(&mut Draw::for_test(70));
    let programs = launch::threads(3, 8, |session| {
        let mut proofs = proofs(&session)?;
        let log = Log::default();
        let batch = batch(&statements, session.transport.me());
        let mut transport = Recorder { inner: session.transport, log: log.clone() };
        let mut ends = Vec::new();
        for _ in 0..BATCHES {
            assert_eq!(proofs.run(&mut transport, batch)?, Verdict::Accepted);
            ends.push(log.lock().expect("no thread panics while it holds it").len());
        }
        Box::new(transport).close()?;
        let log = log.lock().expect("no thread panics while it holds it");
        let step = |event: &Event| match event {
            Event::Received(from) => Step::Receive(from.0),
            Event::Sent(to, body) => Step::Send(
                to.0,
                match body.len() {
                    48 => Says::Announcement,
                    32 => Says::Challenge,
                    8 => Says::Verdict,
                    _ => Says::Other,
                },
            ),
        };
        Ok::<_, Error>((log.iter().map(step).collect::<Vec<_>>(), ends))
    });
    programs.into_iter().map(|program| program.expect("all are honest")).collect()
}

/// How many steps each party has made. Of a liar: how many messages it has sent to each.
type State = [usize; 4];

struct Model {
    programs: Vec<(Vec<Step>, Vec<usize>)>,
    liar: Option<usize>,
}

impl Model {
    /// Messages from a party to another so far.
    fn sent(&self, state: &State, from: usize, to: usize) -> usize {
        if Some(from) == self.liar {
            return state[if (to + 3 - from) % 3 == 1 { from } else { 3 }];
        }
        let made = &self.programs[from].0[..state[from]];
        made.iter().filter(|step| matches!(step, Step::Send(party, _) if *party == to)).count()
    }

    fn received(&self, state: &State, from: usize, to: usize) -> usize {
        let made = &self.programs[to].0[..state[to]];
        made.iter().filter(|step| matches!(step, Step::Receive(party) if *party == from)).count()
    }

    fn next(&self, state: &State) -> Vec<State> {
        let mut next = Vec::new();
        let mut advance = |at: usize| {
            let mut state = *state;
            state[at] += 1;
            next.push(state);
        };
        for party in 0..3 {
            let (program, _) = &self.programs[party];
            if Some(party) == self.liar {
                // As many messages as the other waits for in all: more change nothing.
                for (place, to) in [(party, (party + 1) % 3), (3, (party + 2) % 3)] {
                    let waits =
                        |step: &&Step| matches!(step, Step::Receive(from) if *from == party);
                    if state[place] < self.programs[to].0.iter().filter(waits).count() {
                        advance(place);
                    }
                }
                continue;
            }
            match program.get(state[party]) {
                Some(Step::Send(..)) => advance(party),
                Some(Step::Receive(from))
                    if self.received(state, *from, party) < self.sent(state, *from, party) =>
                {
                    advance(party);
                }
                _ => {}
            }
        }
        next
    }

    /// Messages of a kind that a party has sent to another.
    fn said(&self, state: &State, from: usize, to: usize, what: Says) -> usize {
        let made = &self.programs[from].0[..state[from]];
        made.iter()
            .filter(|step| matches!(step, Step::Send(party, says) if *party == to && *says == what))
            .count()
    }

    /// Batches that an honest party has begun or ended.
    fn ended(&self, state: &State, party: usize) -> usize {
        self.programs[party].1.iter().filter(|&&end| end <= state[party]).count()
    }

    fn check(&self, state: &State, rounds: usize) {
        for prover in 0..3 {
            let [left, right] = [(prover + 1) % 3, (prover + 2) % 3];
            if self.liar.is_some_and(|liar| liar != prover) {
                continue;
            }
            // A challenge of a batch is out only if the left verifier has announced that it has the batch's messages, and
            // only so many as the prover has sent messages before.
            let challenges = self.said(state, right, prover, Says::Challenge);
            let announced = self.said(state, left, right, Says::Announcement);
            assert!(challenges <= announced * rounds, "a challenge before all messages: {state:?}");
            let proofs = self.received(state, prover, right);
            assert!(
                challenges <= proofs + 1,
                "a challenge before the message before it: {state:?}"
            );
        }
        // A party ends a batch only if the others have said twice what they found.
        for party in (0..3).filter(|party| Some(*party) != self.liar) {
            for other in (0..3).filter(|other| *other != party && Some(*other) != self.liar) {
                let verdicts = self.said(state, other, party, Says::Verdict);
                assert!(
                    2 * self.ended(state, party) <= verdicts,
                    "an end without verdicts: {state:?}"
                );
            }
        }
    }

    /// Visits all states, and returns those from which there is no step.
    fn explore(&self, rounds: usize) -> (usize, Vec<State>) {
        let mut seen = HashSet::from([[0; 4]]);
        let mut waiting = vec![[0; 4]];
        let mut last = Vec::new();
        while let Some(state) = waiting.pop() {
            self.check(&state, rounds);
            let next = self.next(&state);
            if next.is_empty() {
                last.push(state);
            }
            waiting.extend(next.into_iter().filter(|next| seen.insert(*next)));
        }
        (seen.len(), last)
    }
}

#[test]
fn no_order_of_messages_breaks_the_rules_or_blocks_honest_parties() {
    let programs = programs();
    let lengths: Vec<usize> = programs.iter().map(|(program, _)| program.len()).collect();
    let challenges =
        programs[0].0.iter().filter(|step| matches!(step, Step::Send(_, Says::Challenge)));
    let rounds = challenges.count() / BATCHES;
    let [next, previous] = [Party(0).after(1, 3), Party(0).after(2, 3)];
    assert!(matches!(programs[0].0[0], Step::Send(to, Says::Announcement) if Party(to) == next));
    assert!(matches!(programs[0].0[1], Step::Receive(from) if Party(from) == previous));
    for liar in [None, Some(0), Some(1), Some(2)] {
        let model = Model { programs: programs.clone(), liar };
        let (states, last) = model.explore(rounds);
        println!("liar {liar:?}: {states} states");
        // If all messages arrive, honest parties come to their end.
        for state in last {
            for party in (0..3).filter(|party| Some(*party) != liar) {
                assert_eq!(state[party], lengths[party], "party {party} waits for ever: {state:?}");
            }
        }
    }
}
