//! The values that the servers compare before a job, and after it.

use mpc_core::{
    Sharing,
    sharing::{Component, suspects},
};
use net::{PairKey, Traffic};
use serde::{Deserialize, Serialize};

use super::{cache::Hashes, tapes::Candidate};
use crate::{
    base::{Digest, Id, PROGRAM},
    wire::VERSION,
};

/// All that is public and that the streams and messages of a job depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Terms {
    wire: u32,
    program: String,
    /// The options of the protocol on shares.
    options: String,
    /// The number of the job in this session.
    number: u64,
    /// The request with its shapes, the client, and what followed in the clear: a new model's plan.
    request: Digest,
    /// The model to run: its version, and its plan with truncations, formats and shapes.
    model: Option<(Id, Digest)>,
}

/// The message of a server before a job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposal {
    pub(super) terms: Terms,
    /// Why this server cannot run the job.
    pub(super) against: Option<String>,
    /// Marks of the client's shares.
    pub(super) parts: Marks,
    /// Marks of the stored shares of the model to run.
    pub(super) stored: Marks,
    /// Tapes that the answer could come from, where answers do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tapes: Option<Vec<Candidate>>,
    /// For a run, the step before which metrics have left this server.
    #[serde(default)]
    pub(super) opened: u32,
}

/// Hashes of a server's components that another server holds too, one for each pair of a sharing's twins, under the key
/// that the two servers have in common. They are equal if both hold the same words, and random to others; where a server
/// holds neither of a pair its mark is empty.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Marks(Vec<Digest>);

/// The counts of a server during a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tally {
    operations: u64,
    /// Messages and bytes, by peer.
    sent: Vec<(u64, u64)>,
    received: Vec<(u64, u64)>,
}

impl Terms {
    pub(super) fn new(
        options: String,
        number: u64,
        request: Digest,
        model: Option<(Id, Digest)>,
    ) -> Self {
        let program = PROGRAM.to_owned();
        Self { wire: VERSION, program, options, number, request, model }
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::of(&[&serde_json::to_vec(self).unwrap_or_default()])
    }

    /// The names of the fields and this party's values.
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
    /// Marks of what server `me` holds, for one job and one purpose, from hashes of its components.
    pub(super) fn new(
        Hashes { sharing, of: hashes }: &Hashes,
        me: usize,
        keys: &[Option<PairKey>],
        job: &Digest,
        purpose: &str,
    ) -> Self {
        if hashes.is_empty() {
            return Self::default();
        }
        let purpose: &[&[u8]] = &[job.as_bytes(), purpose.as_bytes()];
        let mark = |pair: &[Component; 2]| {
            let mine = pair.iter().position(|(server, _)| *server == me)?;
            let (other, _) = pair[1 - mine];
            let key = keys.get(other)?.as_ref()?;
            Some(hashes.get(pair[mine].1)?.under(&key.0, purpose))
        };
        Self(sharing.twins().iter().map(|pair| mark(pair).unwrap_or_default()).collect())
    }

    /// For each pair of a sharing's twins, true if the two holders differ.
    fn differ<'a>(sharing: &dyn Sharing, all: impl Fn(usize) -> &'a Self) -> Vec<bool> {
        let of = |pair: usize, (party, _): Component| all(party).0.get(pair);
        let twins = sharing.twins().iter().enumerate();
        twins.map(|(pair, &[one, other])| of(pair, one) != of(pair, other)).collect()
    }
}

impl Proposal {
    /// Why the job cannot run, the same at all servers: their reasons first, then what they do not agree on. The client's
    /// parts and what is stored of a model may have come to the servers in two ways.
    pub(super) fn verdict([parts, stored]: [&dyn Sharing; 2], all: &[Self]) -> Option<String> {
        let against = all.iter().enumerate().find_map(|(party, one)| {
            one.against.as_ref().map(|reason| format!("party {party}: {reason}"))
        });
        against
            .or_else(|| Self::unlike_terms(all))
            .or_else(|| {
                let differ = Marks::differ(parts, |party| &all[party].parts);
                let [(one, _), (other, _)] = parts.twins()[differ.iter().position(|&it| it)?];
                Some(format!(
                    "the parts of the client do not fit together: party {one} and party {other} \
                     got different words of what both must know; send the job again with an \
                     unchanged program"
                ))
            })
            .or_else(|| {
                let differ = Marks::differ(stored, |party| &all[party].stored);
                let suspects = suspects(stored.twins(), &differ)?;
                Some(format!(
                    "the store of {suspects} was changed since the model was put: what two \
                     servers must hold alike differs; put the model again with --replace"
                ))
            })
            .or_else(|| Self::tape(all)?.err())
    }

    /// The tape from which the answer comes, if answers do; the reason if no tape fits all.
    pub(super) fn tape(all: &[Self]) -> Option<Result<Id, String>> {
        let tapes: Option<Vec<_>> = all.iter().map(|one| one.tapes.as_deref()).collect();
        Some(Candidate::choose(&tapes?))
    }

    fn unlike_terms(all: &[Self]) -> Option<String> {
        let fields: Vec<_> = all.iter().map(|one| one.terms.fields()).collect();
        let differ = |at: &usize| fields.iter().any(|other| other[*at] != fields[0][*at]);
        let at = (0..fields.first()?.len()).find(differ)?;
        let said = fields.iter().enumerate();
        let said: Vec<_> =
            said.map(|(party, fields)| format!("party {party} has {}", fields[at].1)).collect();
        let what = fields[0][at].0;
        let advice = "run the same program on all servers, then try again";
        Some(format!("the servers differ in {what}: {}; {advice}", said.join(", ")))
    }
}

impl Tally {
    pub(super) fn new(operations: u64, sent: &[Traffic], received: &[Traffic]) -> Self {
        let counts =
            |all: &[Traffic]| all.iter().map(|traffic| (traffic.messages, traffic.bytes)).collect();
        Self { operations, sent: counts(sent), received: counts(received) }
    }

    /// The first counters of the servers that do not fit together.
    pub(super) fn difference(all: &[Self]) -> Option<String> {
        let servers = all.len();
        if all.iter().any(|other| other.operations != all[0].operations) {
            let counted = all.iter().enumerate();
            let counted =
                counted.map(|(party, one)| format!("party {party} counted {}", one.operations));
            let counted: Vec<_> = counted.collect();
            return Some(format!("{} operations", counted.join(", ")));
        }
        if all.iter().any(|one| one.sent.len() != servers || one.received.len() != servers) {
            return Some("a server counted what it sent to others than the servers".to_owned());
        }
        let links = (0..servers).flat_map(|from| (0..servers).map(move |to| (from, to)));
        links.filter(|(from, to)| from != to).find_map(|(from, to)| {
            let (sent, bytes) = all[from].sent[to];
            let (came, of) = all[to].received[from];
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
    use cluster_protocols::ProtocolChoice;
    use rss_protocols::Replicated;

    use super::*;

    const PARTIES: usize = 3;

    fn verdict(all: &[Proposal]) -> Option<String> {
        Proposal::verdict([&Replicated; 2], all)
    }

    fn terms(number: u64, request: u8) -> Terms {
        Terms::new("default".to_owned(), number, Digest::of(&[&[request]]), None)
    }

    fn proposals(terms: [Terms; PARTIES]) -> [Proposal; PARTIES] {
        terms.map(|terms| Proposal { terms, ..Proposal::default() })
    }

    #[test]
    fn each_field_of_the_terms_is_compared_and_named() {
        let same = terms(4, 1);
        assert_eq!(verdict(&proposals([same.clone(), same.clone(), same.clone()])), None);
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
                let text = verdict(&proposals(all)).unwrap();
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
            let mut all = sound.clone();
            all[odd].operations += 1;
            assert!(Tally::difference(&all).unwrap().contains("operations"));
            let mut all = sound.clone();
            all[odd].received[(odd + 2) % 3].1 -= 8;
            assert!(Tally::difference(&all).unwrap().contains("56 bytes"));
            let mut all = sound.clone();
            all[odd].sent[(odd + 1) % 3].0 += 1;
            assert!(Tally::difference(&all).unwrap().contains("3 messages"));
        }
    }

    #[test]
    fn marks_are_equal_where_holders_agree_and_new_for_each_job() {
        // The key of two servers is called after the sum of their numbers.
        let of = |party: usize| {
            [0, 1, 2].map(|peer| (peer != party).then(|| PairKey([(peer + party) as u8; 32])))
        };
        let held = [1u8, 2, 3].map(|byte| Digest::of(&[&[byte]]));
        let marks = |job: u8| {
            [0, 1, 2].map(|party: usize| {
                let of_components = vec![held[party], held[(party + 1) % 3]];
                let hashes = Hashes { sharing: &Replicated, of: of_components };
                Marks::new(&hashes, party, &of(party), &Digest::of(&[&[job]]), "parts")
            })
        };
        let (one, two) = (marks(1), marks(2));
        let differ = |all: &[Marks; 3]| Marks::differ(&Replicated, |party| &all[party]);
        assert_eq!(differ(&one), [false; 3]);
        for (pair, components) in Replicated.twins().iter().enumerate() {
            let [a, b] = components.map(|(party, _)| party);
            let neither = 3 - a - b;
            assert_eq!(one[neither].0[pair], Digest::default());
            assert_ne!(one[a].0[pair], two[a].0[pair]);
            let mut wrong = one.clone();
            wrong[b].0[pair] = Digest::default();
            assert_eq!(differ(&wrong), [0, 1, 2].map(|other| other == pair));
        }
    }

    #[test]
    fn marks_tell_which_of_several_holders_of_a_component_differs() {
        let sharing: &'static dyn Sharing = "dealt-3".parse::<ProtocolChoice>().unwrap().sharing();
        let of = |party: usize| {
            [0, 1, 2, 3].map(|peer| (peer != party).then(|| PairKey([(peer + party) as u8; 32])))
        };
        let marks = |words: [u8; 4]| {
            [0, 1, 2, 3].map(|party: usize| {
                // The mask's addend is each server's own.
                let of_components = [party as u8, words[party]].map(|byte| Digest::of(&[&[byte]]));
                let hashes = Hashes { sharing, of: of_components.to_vec() };
                Marks::new(&hashes, party, &of(party), &Digest::default(), "parts")
            })
        };
        let differ = |words| {
            let marks = marks(words);
            Marks::differ(sharing, |party| &marks[party])
        };
        assert_eq!(differ([7, 7, 7, 0]), [false, false]);
        assert_eq!(differ([7, 8, 7, 0]), [true, false]);
        assert_eq!(differ([7, 7, 8, 0]), [false, true]);
        assert_eq!(differ([8, 7, 7, 0]), [true, true]);
    }
}
