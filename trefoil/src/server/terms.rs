//! What the servers compare before a job, and after it.

use net::{PairKey, Traffic};
use serde::{Deserialize, Serialize};

use crate::{Digest, Id, answer::suspects, config::PARTIES, wire::VERSION};

/// All that is public and that the streams and messages of a job depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Terms {
    wire: u32,
    program: String,
    /// Of the protocol on shares.
    options: String,
    /// Which job of the session this is.
    number: u64,
    /// The request with its shapes, the client, and what followed in the clear: a new model's plan.
    request: Digest,
    /// The model to run: its version, and its plan with truncations, formats and shapes.
    model: Option<(Id, Digest)>,
}

/// What a server says before a job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposal {
    pub(super) terms: Terms,
    /// Why this server cannot run the job.
    pub(super) against: Option<String>,
    /// What the client shared.
    pub(super) parts: Marks,
    /// What the store holds of the model to run.
    pub(super) stored: Marks,
}

/// Hashes of a server's component and of the next one's, each under the key that the component's two
/// holders have in common: equal if they hold the same words, and random to the third.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Marks {
    mine: Digest,
    next: Digest,
}

/// What a server counted during a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tally {
    operations: u64,
    /// Messages and bytes, by peer.
    sent: [(u64, u64); PARTIES],
    received: [(u64, u64); PARTIES],
}

impl Terms {
    pub(super) fn new(
        options: String,
        number: u64,
        request: Digest,
        model: Option<(Id, Digest)>,
    ) -> Self {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { wire: VERSION, program, options, number, request, model }
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::of(&[&serde_json::to_vec(self).unwrap_or_default()])
    }

    /// What each party says of each field.
    fn fields(&self) -> [(&'static str, String); 6] {
        let model = self.model.map(|(version, plan)| format!("version {version}, plan {plan}"));
        [
            ("the version of messages", self.wire.to_string()),
            ("the version of the program", self.program.clone()),
            ("the protocol's options", self.options.clone()),
            ("the number of the job", self.number.to_string()),
            ("the request with its plan and shapes", self.request.to_string()),
            ("the model", model.unwrap_or_else(|| "none".to_owned())),
        ]
    }
}

impl Marks {
    /// Marks of what a server holds, for one job and one purpose.
    pub(super) fn new(
        [next, previous]: &[PairKey; 2],
        job: &Digest,
        purpose: &str,
        [mine, after]: [Digest; 2],
    ) -> Self {
        let purpose: &[&[u8]] = &[job.as_bytes(), purpose.as_bytes()];
        Self { mine: mine.under(&previous.0, purpose), next: after.under(&next.0, purpose) }
    }

    /// Of which components the two holders do not agree.
    fn differ(all: &[Self; PARTIES]) -> [bool; PARTIES] {
        [0, 1, 2].map(|party: usize| all[party].mine != all[(party + 2) % PARTIES].next)
    }
}

impl Proposal {
    /// Why the job cannot run, the same at all servers: their reasons first, then what they do not agree
    /// on.
    pub(super) fn verdict(all: &[Self; PARTIES]) -> Option<String> {
        let against = all.iter().enumerate().find_map(|(party, one)| {
            one.against.as_ref().map(|reason| format!("party {party}: {reason}"))
        });
        against
            .or_else(|| Self::unlike_terms(all))
            .or_else(|| {
                let differ = Marks::differ(&all.each_ref().map(|one| one.parts));
                let component = differ.iter().position(|&differs| differs)?;
                let (one, other) = ((component + 2) % PARTIES, component);
                Some(format!(
                    "the parts of the client do not fit together: party {one} and party {other} \
                     got different words of what both must know; send the job again with an \
                     unchanged program"
                ))
            })
            .or_else(|| {
                let suspects = suspects(Marks::differ(&all.each_ref().map(|one| one.stored)))?;
                Some(format!(
                    "the store of {suspects} was changed since the model was put: what two \
                     servers must hold alike differs; put the model again with --replace"
                ))
            })
    }

    fn unlike_terms(all: &[Self; PARTIES]) -> Option<String> {
        let fields = all.each_ref().map(|one| one.terms.fields());
        let [zero, one, two] = &fields;
        let at = (0..zero.len()).find(|&at| zero[at] != one[at] || one[at] != two[at])?;
        let said: Vec<_> = (0..PARTIES)
            .map(|party| format!("party {party} has {}", fields[party][at].1))
            .collect();
        let what = zero[at].0;
        let advice = "run the same program on all three servers, then try again";
        Some(format!("the servers differ in {what}: {}; {advice}", said.join(", ")))
    }
}

impl Tally {
    pub(super) fn new(operations: u64, sent: &[Traffic], received: &[Traffic]) -> Self {
        let counts = |all: &[Traffic]| {
            [0, 1, 2].map(|party: usize| {
                all.get(party).map_or((0, 0), |traffic| (traffic.messages, traffic.bytes))
            })
        };
        Self { operations, sent: counts(sent), received: counts(received) }
    }

    /// Which counters of the three servers do not fit together.
    pub(super) fn difference(all: &[Self; PARTIES]) -> Option<String> {
        let operations = all.map(|one| one.operations);
        if operations != [operations[0]; PARTIES] {
            let [a, b, c] = operations;
            return Some(format!("parties 0, 1 and 2 counted {a}, {b} and {c} operations"));
        }
        let links = (0..PARTIES).flat_map(|from| (0..PARTIES).map(move |to| (from, to)));
        links.filter(|(from, to)| from != to).find_map(|(from, to)| {
            let ((sent, bytes), (came, of)) = (all[from].sent[to], all[to].received[from]);
            ((sent, bytes) != (came, of)).then(|| {
                format!(
                    "party {from} sent {sent} messages of {bytes} bytes to party {to}, which \
                     received {came} of {of} bytes"
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(number: u64, request: u8) -> Terms {
        Terms::new("default".to_owned(), number, Digest::of(&[&[request]]), None)
    }

    fn proposals(terms: [Terms; PARTIES]) -> [Proposal; PARTIES] {
        terms.map(|terms| Proposal { terms, ..Proposal::default() })
    }

    #[test]
    fn each_field_of_the_terms_is_compared_and_named() {
        let same = terms(4, 1);
        assert_eq!(Proposal::verdict(&proposals([same.clone(), same.clone(), same.clone()])), None);
        let plan = Some((Id::from([1; 16]), Digest::default()));
        for (other, named) in [
            (terms(5, 1), "number of the job"),
            (terms(4, 2), "plan and shapes"),
            (Terms { model: plan, ..same.clone() }, "the model"),
            (Terms { options: "six parts".to_owned(), ..same.clone() }, "options"),
            (Terms { program: "9.9".to_owned(), ..same.clone() }, "version of the program"),
            (Terms { wire: 99, ..same.clone() }, "version of messages"),
        ] {
            assert_ne!(other.digest(), same.digest());
            for odd in 0..PARTIES {
                let mut all = [same.clone(), same.clone(), same.clone()];
                all[odd] = other.clone();
                let text = Proposal::verdict(&proposals(all)).unwrap();
                assert!(
                    text.contains(named) && text.contains(&format!("party {odd} has")),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn counters_that_do_not_fit_together_are_found() {
        let traffic = |messages, bytes| Traffic { messages, bytes };
        let ring = |me: usize| {
            let (mut sent, mut received) = ([Traffic::default(); 3], [Traffic::default(); 3]);
            sent[(me + 1) % 3] = traffic(2, 64);
            received[(me + 2) % 3] = traffic(2, 64);
            Tally::new(7, &sent, &received)
        };
        let sound = [ring(0), ring(1), ring(2)];
        assert_eq!(Tally::difference(&sound), None);
        for odd in 0..PARTIES {
            let mut all = sound;
            all[odd].operations += 1;
            assert!(Tally::difference(&all).unwrap().contains("operations"));
            let mut all = sound;
            all[odd].received[(odd + 2) % 3].1 -= 8;
            assert!(Tally::difference(&all).unwrap().contains("56 bytes"));
            let mut all = sound;
            all[odd].sent[(odd + 1) % 3].0 += 1;
            assert!(Tally::difference(&all).unwrap().contains("3 messages"));
        }
    }

    #[test]
    fn marks_are_equal_where_holders_agree_and_new_for_each_job() {
        let keys = [1, 2, 3].map(|byte| PairKey([byte; 32]));
        // Key i is common to parties i and i + 1.
        let of = |party: usize| [keys[party].clone(), keys[(party + 2) % 3].clone()];
        let held = [1u8, 2, 3].map(|byte| Digest::of(&[&[byte]]));
        let marks = |job: u8| {
            [0, 1, 2].map(|party: usize| {
                let hashes = [held[party], held[(party + 1) % 3]];
                Marks::new(&of(party), &Digest::of(&[&[job]]), "parts", hashes)
            })
        };
        let (one, two) = (marks(1), marks(2));
        assert_eq!(Marks::differ(&one), [false; 3]);
        assert!((0..3).all(|party| one[party].mine != two[party].mine));
        let mut wrong = one;
        wrong[1].mine = Digest::default();
        assert_eq!(Marks::differ(&wrong), [false, true, false]);
    }
}
