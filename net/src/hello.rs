//! The first frame each way: what a side was started for.

use crate::{Error, Party};

/// Version of the frames and of what is agreed at the start. Parties of one session run the same.
pub(crate) const VERSION: u16 = 3;

const MAGIC: [u8; 4] = *b"TRFL";

/// Longest list of generators.
pub(crate) const LONGEST_PRGS: usize = 64;

/// The hello that a side sends when a link opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    /// This side's number if it is a party.
    pub(crate) party: Option<u16>,
    pub(crate) job: Public,
    /// This side's contribution to the session's id and keys, fresh for each session.
    pub(crate) fresh: [u8; 32],
}

/// The public facts on which all parties of a session agree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Public {
    pub(crate) session: [u8; 16],
    /// The number of the workers in it, where each party has several.
    pub(crate) cell: Option<u16>,
    pub(crate) parties: u16,
    /// Names of generators with commas between them, best first.
    pub(crate) prgs: String,
    pub(crate) config: [u8; 32],
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.party.unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend(self.job.session);
        bytes.extend(self.job.cell.unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend(self.job.parties.to_le_bytes());
        bytes.extend(self.job.config);
        bytes.extend(self.fresh);
        bytes.push(self.job.prgs.len() as u8);
        bytes.extend(self.job.prgs.as_bytes());
        bytes
    }

    /// Reads a hello. One of another version has version and party right and all else unspecified.
    ///
    /// # Errors
    /// The fault in the bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = Rest(bytes);
        if rest.take::<4>()? != MAGIC {
            return Err("a hello of another program".to_owned());
        }
        let version = u16::from_le_bytes(rest.take()?);
        let party = u16::from_le_bytes(rest.take()?);
        let party = (party != u16::MAX).then_some(party);
        if version != VERSION {
            return Ok(Self { version, party, job: Public::default(), fresh: [0; 32] });
        }
        let session = rest.take()?;
        let cell = u16::from_le_bytes(rest.take()?);
        let cell = (cell != u16::MAX).then_some(cell);
        let parties = u16::from_le_bytes(rest.take()?);
        let config = rest.take()?;
        let fresh = rest.take()?;
        let [len] = rest.take()?;
        let prgs = rest.names(usize::from(len))?;
        let job = Public { session, cell, parties, prgs, config };
        Ok(Self { version, party, job, fresh })
    }
}

/// The unread rest of a frame's body.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or("a hello that ends early")?;
        self.0 = rest;
        Ok(*head)
    }

    /// The rest, which must be names of this length.
    fn names(&mut self, len: usize) -> Result<String, String> {
        let printable = self.0.iter().all(|byte| byte.is_ascii_graphic());
        if self.0.len() != len || len > LONGEST_PRGS || !printable {
            return Err("a hello with unusable generator names".to_owned());
        }
        Ok(String::from_utf8_lossy(self.0).into_owned())
    }
}

/// Two parties that were started for different jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) field: usize,
    pub(crate) sides: [(u16, String); 2],
}

const FIELDS: [&str; 6] = [
    "protocol version",
    "session id",
    "cell",
    "party count",
    "PRG choice",
    "public job configuration",
];

/// The place of a value in [`FIELDS`].
pub(crate) const SESSION_ID: usize = 1;

/// The place of the generators, where having one in common is enough.
const PRGS: usize = 4;

impl Difference {
    /// The first fact in which two hellos differ.
    pub(crate) fn between(me: u16, mine: &Hello, peer: u16, theirs: &Hello) -> Option<Self> {
        let differ = |field: &usize| match *field {
            PRGS => agreed([mine, theirs]).is_none(),
            field => mine.value(field) != theirs.value(field),
        };
        let field = (0..FIELDS.len()).find(differ)?;
        Some(Self { field, sides: [(me, mine.value(field)), (peer, theirs.value(field))] })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.field as u8];
        for (party, value) in &self.sides {
            bytes.extend(party.to_le_bytes());
            bytes.push(value.len() as u8);
            bytes.extend(value.as_bytes());
        }
        bytes
    }

    /// # Errors
    /// The fault in the bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = Rest(bytes);
        let [field] = rest.take()?;
        let field = usize::from(field);
        if field >= FIELDS.len() {
            return Err("a report of a difference in no known field".to_owned());
        }
        let mut side = || {
            let party = u16::from_le_bytes(rest.take()?);
            let [len] = rest.take()?;
            let short = || "a report of a difference that ends early".to_owned();
            let (value, left) = rest.0.split_at_checked(usize::from(len)).ok_or_else(short)?;
            rest.0 = left;
            let printable = |byte: &&u8| byte.is_ascii_graphic() || **byte == b' ';
            let value: Vec<u8> = value.iter().filter(printable).copied().collect();
            Ok::<_, String>((party, String::from_utf8_lossy(&value).into_owned()))
        };
        let sides = [side()?, side()?];
        match rest.0 {
            [] => Ok(Self { field, sides }),
            _ => Err("a report of a difference with bytes left over".to_owned()),
        }
    }

    /// The error for a party whose own hello is `mine`: names the value of the side that it does
    /// not agree with.
    pub(crate) fn error(&self, me: u16, mine: &Hello) -> Error {
        let own = mine.value(self.field);
        let differs = |(party, value): &&(u16, String)| *party != me && *value != own;
        let side = self.sides.iter().find(differs);
        let (party, theirs) = side.unwrap_or(&self.sides[0]).clone();
        let (peer, field) = (Party(usize::from(party)), FIELDS[self.field]);
        Error::Mismatch { peer, field, mine: own, theirs }
    }
}

impl Hello {
    fn value(&self, field: usize) -> String {
        match field {
            0 => self.version.to_string(),
            1 => hex(&self.job.session),
            2 => self.job.cell.map_or_else(|| "none".to_owned(), |cell| cell.to_string()),
            3 => self.job.parties.to_string(),
            PRGS => self.job.prgs.clone(),
            _ => hex(&self.job.config),
        }
    }
}

/// The generator that parties agree on: the first of the first party's list that all others list too. Empty if no
/// party names any.
pub(crate) fn agreed<'a>(hellos: impl IntoIterator<Item = &'a Hello>) -> Option<&'a str> {
    let mut lists = hellos.into_iter().map(|hello| hello.job.prgs.as_str());
    let (first, others) = (lists.next()?, lists.collect::<Vec<_>>());
    first.split(',').find(|name| others.iter().all(|list| list.split(',').any(|n| n == *name)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let prgs = "aes-128-ctr,chacha20".to_owned();
        let job = Public { session: [7; 16], cell: Some(4), parties: 3, prgs, config: [9; 32] };
        Hello { version: VERSION, party: Some(2), job, fresh: [1; 32] }
    }

    #[test]
    fn a_hello_survives_its_encoding() {
        assert_eq!(Hello::decode(&hello().encode()).unwrap(), hello());
        let client = Hello { party: None, ..hello() };
        assert_eq!(Hello::decode(&client.encode()).unwrap(), client);
    }

    #[test]
    fn a_hello_cut_anywhere_or_lengthened_is_refused() {
        let bytes = hello().encode();
        for len in 0..bytes.len() {
            assert!(Hello::decode(&bytes[..len]).is_err(), "{len}");
        }
        assert!(Hello::decode(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn each_fact_that_differs_is_named_with_both_values() {
        let mut others: [Hello; 6] = std::array::from_fn(|_| hello());
        others[0].version = VERSION + 1;
        others[1].job.session = [8; 16];
        others[2].job.cell = None;
        others[3].job.parties = 4;
        others[4].job.prgs = "chacha12".to_owned();
        others[5].job.config = [3; 32];
        for (field, other) in others.iter().enumerate() {
            let difference = Difference::between(2, &hello(), 1, other).unwrap();
            assert_eq!(Difference::decode(&difference.encode()).unwrap(), difference);
            let text = difference.error(2, &hello()).to_string();
            for part in [FIELDS[field], &hello().value(field), &other.value(field), "party 1"] {
                assert!(text.contains(part), "{text}");
            }
        }
        assert_eq!(Difference::between(2, &hello(), 1, &hello()), None);
    }

    #[test]
    fn a_party_told_of_a_difference_names_the_side_it_disagrees_with() {
        let mut odd = hello();
        odd.job.prgs = "chacha12".to_owned();
        let difference = Difference::between(2, &hello(), 0, &odd).unwrap();
        let told = |mine: &Hello| match difference.error(1, mine) {
            Error::Mismatch { peer, .. } => peer,
            error => panic!("{error}"),
        };
        assert_eq!(told(&hello()), Party(0));
        assert_eq!(told(&odd), Party(2));
    }

    #[test]
    fn the_first_generator_that_all_name_is_agreed_on() {
        let with =
            |prgs: &str| Hello { job: Public { prgs: prgs.to_owned(), ..hello().job }, ..hello() };
        let agree = |lists: [&str; 3]| {
            let hellos = lists.map(with);
            agreed(&hellos).map(str::to_owned)
        };
        assert_eq!(agree(["a,b,c", "c,b", "b,c"]).as_deref(), Some("b"));
        assert_eq!(agree(["a", "a", "a"]).as_deref(), Some("a"));
        assert_eq!(agree(["a,b", "b,c", "c,a"]), None, "no pair differs, but all three do");
        assert_eq!(agree(["ab,b", "a", "a"]), None, "a part of a name is no name");
        assert_eq!(agree(["", "", ""]).as_deref(), Some(""));
        assert_eq!(agree(["", "a", "a"]), None);
        let (one, other) = (with("a,b"), with("c,b"));
        assert_eq!(Difference::between(0, &one, 1, &other), None);
        assert!(Difference::between(0, &one, 1, &with("c")).is_some());
    }
}
