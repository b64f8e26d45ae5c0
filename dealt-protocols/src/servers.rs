//! The protocol at servers: those that compute for clients, and the dealer after them.

use mpc_core::{
    Deal, Held, Parcel, Profile, Protocol, Result, Security, ServerProtocol, Settings, Sharing,
    sharing::{
        CommonKey, Component, Contents, Released, add_up, check_words, expand, fresh_key,
        incomplete, remainders,
    },
};
use net::Session;
use ring_arith::{Engine, EngineTensor, Shape, Tensor};

use crate::{
    Dealt, MOST_PARTIES, Share, invalid,
    open::Addend,
    share::{Form, Group},
};

/// The clients' side: each server that computes gets the key of its addend of the mask, and the masked words; the dealer,
/// as the last server, gets the keys of all addends.
#[derive(Debug, PartialEq, Eq)]
pub struct MaskedSharing {
    computing: usize,
    name: &'static str,
}

/// The names of the sharings among 2, 3, .. servers that compute.
const NAMES: [&str; MOST_PARTIES - 1] = [
    "dealt-2", "dealt-3", "dealt-4", "dealt-5", "dealt-6", "dealt-7", "dealt-8", "dealt-9",
    "dealt-10", "dealt-11", "dealt-12", "dealt-13", "dealt-14", "dealt-15", "dealt-16",
];

/// The sharings among 2, 3, .. servers that compute.
static SHARINGS: [MaskedSharing; MOST_PARTIES - 1] = {
    let mut sharings = [const { MaskedSharing { computing: 0, name: "" } }; MOST_PARTIES - 1];
    let mut i = 0;
    while i < sharings.len() {
        sharings[i] = MaskedSharing { computing: i + 2, name: NAMES[i] };
        i += 1;
    }
    sharings
};

/// The masked words are the same at all servers that compute.
const TWINS: [[Component; 2]; MOST_PARTIES - 1] = {
    let mut twins = [[(0, 1), (0, 1)]; MOST_PARTIES - 1];
    let mut i = 0;
    while i < twins.len() {
        twins[i][1].0 = i + 1;
        i += 1;
    }
    twins
};

impl MaskedSharing {
    /// The sharing among `computing` servers that compute, 2 to [`MOST_PARTIES`], and their dealer.
    ///
    /// # Errors
    /// [`mpc_core::Error::Invalid`] if there is none for that number.
    pub fn among(computing: usize) -> Result<&'static Self> {
        let sharing = computing.checked_sub(2).and_then(|i| SHARINGS.get(i));
        let reason = || format!("2 to {MOST_PARTIES} parties compute, and not {computing}");
        sharing.ok_or_else(|| invalid("masked sharing", reason()))
    }

    /// As [`MaskedSharing::among`] of two servers that compute.
    #[must_use]
    pub fn two() -> &'static Self {
        &SHARINGS[0]
    }

    /// As [`MaskedSharing::among`] of three servers that compute.
    #[must_use]
    pub fn three() -> &'static Self {
        &SHARINGS[1]
    }
}

impl Sharing for MaskedSharing {
    fn name(&self) -> &'static str {
        self.name
    }

    fn servers(&self) -> usize {
        self.computing + 1
    }

    fn components(&self) -> usize {
        2
    }

    fn twins(&self) -> &'static [[Component; 2]] {
        const { &TWINS }.get(..self.computing - 1).unwrap_or_default()
    }

    fn contents(&self, server: usize) -> Contents {
        if server == self.computing {
            Contents { keys: self.computing, words: false }
        } else {
            Contents { keys: 1, words: true }
        }
    }

    fn deal(&self, secrets: Vec<Tensor>) -> Result<Vec<Parcel>> {
        let keys = (0..self.computing).map(|_| fresh_key()).collect::<Result<Vec<_>>>()?;
        let masked = remainders(secrets, &keys)?;
        let mut parcels = Vec::with_capacity(self.servers());
        for key in &keys {
            parcels.push(Parcel { keys: vec![key.clone()], words: masked.clone() });
        }
        parcels.push(Parcel { keys, words: Vec::new() });
        Ok(parcels)
    }

    fn accept(&self, server: usize, parcel: Parcel, shapes: &[Shape]) -> Result<Vec<Held>> {
        let Contents { keys, words } = self.contents(server);
        if server > self.computing || parcel.keys.len() != keys {
            return Err(incomplete());
        }
        let masked = if words {
            check_words(&parcel.words, shapes)?;
            parcel.words
        } else if parcel.words.is_empty() {
            shapes.iter().cloned().map(Tensor::zeros).collect()
        } else {
            return Err(incomplete());
        };
        let mut masks: Vec<_> = shapes.iter().cloned().map(Tensor::zeros).collect();
        for key in &parcel.keys {
            for (mask, addend) in masks.iter_mut().zip(expand(key, shapes)?) {
                *mask = Group::WORDS.add(mask, &addend)?;
            }
        }
        Ok(masks.into_iter().zip(masked).map(|(mask, masked)| vec![mask, masked]).collect())
    }

    fn reveal(&self, released: &[Released]) -> Result<Tensor> {
        if released.len() != self.servers() {
            return Err(incomplete());
        }
        add_up(released)
    }
}

impl<E: Engine> Deal for Dealt<E> {
    fn sharing(&self) -> &'static dyn Sharing {
        SHARINGS.get(self.computing() - 2).unwrap_or(MaskedSharing::two())
    }

    /// The dealer sends a fresh key to each party, once a session: 32 bytes each, one round.
    fn agree(&mut self) -> Result<()> {
        if self.common.is_known() {
            return Ok(());
        }
        self.step("agree on a key");
        let forms = [Form::words(&Shape::new([CommonKey::WORDS])?)];
        if self.deals() {
            let words = [self.common.draw()?];
            for party in self.peers() {
                self.send(party, &forms, &words)?;
            }
            return Ok(());
        }
        let words = self.receive(self.dealer(), &forms)?;
        self.common.take(&words[0])
    }

    fn seed(&mut self) -> Result<u64> {
        self.agree()?;
        let stream = self.next_stream();
        self.common.seed("trefoil dealt-protocols 2026 a common seed", self.jobs, stream)
    }

    /// Nothing is sent.
    fn accept(&mut self, shapes: &[Shape], held: Vec<Held>) -> Result<Vec<Self::Share>> {
        let mut masks = Vec::with_capacity(shapes.len());
        let mut masked = Vec::with_capacity(shapes.len());
        for held in held {
            let [mask, public] = <[Tensor; 2]>::try_from(held).map_err(|_| incomplete())?;
            masks.push(mask);
            masked.push(public);
        }
        check_words(&masks, shapes)?;
        check_words(&masked, shapes)?;
        let parts = masks.into_iter().zip(masked);
        let shares = parts.map(|(mask, masked)| {
            Ok(Share { mask: self.upload(mask)?, masked: self.upload(masked)? })
        });
        shares.collect()
    }

    fn hold(&self, shares: &[&Self::Share]) -> Result<Vec<Held>> {
        let mut held = Vec::with_capacity(shares.len());
        for share in shares {
            // What the dealer has besides the mask means nothing.
            let mask = self.download(&share.mask)?;
            let masked = if self.deals() {
                Tensor::zeros(mask.shape().clone())
            } else {
                self.download(&share.masked)?
            };
            held.push(vec![mask, masked]);
        }
        Ok(held)
    }

    /// Nothing is sent between servers. The dealer releases zeros.
    fn release(&mut self, shares: &[&Self::Share]) -> Result<Vec<Released>> {
        let mut released = Vec::with_capacity(shares.len());
        for share in shares {
            let addend = Addend::words(self.download(&self.addend_of(share)?)?);
            let blinded = self.blind(&addend)?;
            let words = if self.deals() { Tensor::zeros(blinded.shape().clone()) } else { blinded };
            released.push(Released { words, vouched: None });
        }
        Ok(released)
    }
}

impl<E: Engine> ServerProtocol for Dealt<E> {
    fn start(session: Session, engine: E, settings: Settings) -> Result<Self> {
        let mut party = Self::new(session, engine)?;
        let Settings { truncation, profile, security } = settings;
        let refused = |what: &str| Err(invalid("masked sharing", format!("has no {what}")));
        if security != Security::SemiHonest {
            return refused("proofs of messages: the one security is semi-honest");
        }
        if profile == Profile::SlowLinks {
            return refused("profile for slow links");
        }
        if !party.info().modes.contains(&truncation) {
            return refused(&format!("truncation {truncation:?}"));
        }
        party.truncation = truncation;
        Ok(party)
    }

    /// All streams are keyed by the session, the number of jobs begun in it and `digest`.
    fn begin_job(&mut self, digest: &[u8; 32]) -> Result<()> {
        self.jobs += 1;
        self.streams = 0;
        self.derive_keys(digest);
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.streams
    }

    fn described(&self) -> String {
        format!("{}, truncation {:?}, {:?}", self.sharing().name(), self.truncation, self.generator)
    }
}
