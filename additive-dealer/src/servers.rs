//! The protocol at three servers: two that compute for clients, and the dealer.

use mpc_core::{
    Deal, Error, Held, Parcel, Profile, Protocol, Result, Security, ServerProtocol, Settings,
    Sharing,
    sharing::{
        CommonKey, Component, Contents, Released, add_up, check_words, expand, fresh_key,
        incomplete, remainders,
    },
};
use net::Session;
use ring_arith::{Engine, Shape, Tensor};

use crate::{Additive, Share, share::Group};

/// Two servers with an addend of each secret, and the dealer as server 2. Its addends are 0.
#[derive(Debug)]
pub struct TwoAndDealer;

/// The number of servers that compute.
const COMPUTING: usize = 2;

impl Sharing for TwoAndDealer {
    fn name(&self) -> &'static str {
        "additive"
    }

    fn servers(&self) -> usize {
        COMPUTING + 1
    }

    fn components(&self) -> usize {
        1
    }

    fn twins(&self) -> &'static [[Component; 2]] {
        &[]
    }

    /// The first server gets the key of its addend, the second the words of the other.
    fn contents(&self, server: usize) -> Contents {
        Contents { keys: usize::from(server == 0), words: server == 1 }
    }

    fn deal(&self, secrets: Vec<Tensor>) -> Result<Vec<Parcel>> {
        let keys = [fresh_key()?];
        let words = remainders(secrets, &keys)?;
        let nothing = Parcel { keys: Vec::new(), words: Vec::new() };
        let second = Parcel { keys: Vec::new(), words };
        Ok(vec![Parcel { keys: keys.into(), words: Vec::new() }, second, nothing])
    }

    fn accept(&self, server: usize, parcel: Parcel, shapes: &[Shape]) -> Result<Vec<Held>> {
        let addends = match (server, &parcel.keys[..]) {
            (0, [key]) if parcel.words.is_empty() => expand(key, shapes)?,
            (1, []) => {
                check_words(&parcel.words, shapes)?;
                parcel.words
            }
            (COMPUTING, []) if parcel.words.is_empty() => {
                shapes.iter().cloned().map(Tensor::zeros).collect()
            }
            _ => return Err(incomplete()),
        };
        Ok(addends.into_iter().map(|addend| vec![addend]).collect())
    }

    fn reveal(&self, released: &[Released]) -> Result<Tensor> {
        if released.len() != self.servers() {
            return Err(incomplete());
        }
        add_up(released)
    }
}

impl<E: Engine> Deal for Additive<E> {
    fn sharing(&self) -> &'static dyn Sharing {
        &TwoAndDealer
    }

    /// The dealer sends a fresh key to each party, once a session: 32 bytes each, one round.
    fn agree(&mut self) -> Result<()> {
        if self.common.is_known() {
            return Ok(());
        }
        self.step("agree on a key");
        if self.deals() {
            let words = self.engine.upload(self.common.draw()?)?;
            for party in self.peers().collect::<Vec<_>>() {
                self.send(party, &words)?;
            }
            return Ok(());
        }
        let words = self.receive(self.dealer(), &Shape::new([CommonKey::WORDS])?)?;
        self.common.take(&self.engine.download(&words)?)
    }

    fn seed(&mut self) -> Result<u64> {
        self.agree()?;
        let stream = self.next_stream();
        self.common.seed("trefoil additive-dealer 2026 a common seed", self.jobs, stream)
    }

    /// Nothing is sent.
    fn accept(&mut self, shapes: &[Shape], held: Vec<Held>) -> Result<Vec<Self::Share>> {
        let addends: Vec<_> = held.into_iter().flatten().collect();
        check_words(&addends, shapes)?;
        addends.into_iter().map(|addend| Ok(Share(self.engine.upload(addend)?))).collect()
    }

    fn hold(&self, shares: &[&Self::Share]) -> Result<Vec<Held>> {
        shares.iter().map(|share| Ok(vec![self.engine.download(&share.0)?])).collect()
    }

    /// Nothing is sent between servers.
    fn release(&mut self, shares: &[&Self::Share]) -> Result<Vec<Released>> {
        let released = shares.iter().map(|share| {
            let masked = self.masked(Group::Words, &share.0)?;
            Ok(Released { words: self.engine.download(&masked)?, vouched: None })
        });
        released.collect()
    }
}

impl<E: Engine> ServerProtocol for Additive<E> {
    fn start(session: Session, engine: E, settings: Settings) -> Result<Self> {
        let additive = Self::new(session, engine)?;
        let refused = |reason: String| Err(Error::Invalid { op: "additive sharing", reason });
        if additive.computing() != COMPUTING {
            let parties = additive.computing();
            return refused(format!("two servers compute for clients, and not {parties}"));
        }
        let truncation = additive.info().truncation;
        if settings.truncation != truncation || settings.security != Security::SemiHonest {
            return refused(format!(
                "has truncation {truncation:?} and semi-honest security alone"
            ));
        }
        if settings.profile == Profile::SlowLinks {
            return refused("has no profile for slow links".to_owned());
        }
        Ok(additive)
    }

    /// All streams are keyed by the session, the number of jobs begun in it and `digest`.
    fn begin_job(&mut self, digest: &[u8; 32]) -> Result<()> {
        self.jobs += 1;
        self.streams = 0;
        self.keys = Self::keys_of_job(&self.pairs, self.jobs, digest);
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.streams
    }

    fn described(&self) -> String {
        "additive, the usual truncation".to_owned()
    }
}
