//! Two parties and a dealer whose messages were made in advance.
//!
//! In every protocol of this crate but input and opening the dealer receives nothing. With the dealer pinned to
//! party 2, that party's whole run depends on its streams alone and can be over before any input exists. Of
//! `x = x0 + x1 + x2` the dealer then knows `a = x2 + x0`, which it drew, and parties 0 and 1 the masked value
//! `b = x1`. They share inputs and open results between themselves, over streams that each has in common with the
//! dealer.

use mpc_core::{Result, ShareTensor};
use net::{PairKey, Party, Session};
use ring_arith::{Engine, EngineTensor, Shape, Tensor};

use crate::{
    Options, Partition, Rss, Share,
    kernels::{Copy, Difference, Sum},
    party::Setting,
    runtime::chunks::DEALER,
    runtime::launch::{invalid, map, whole, words},
    runtime::prss::Key,
    runtime::roles::Roles,
};

impl<E: Engine> Rss<E> {
    /// Party 0 or 1 of two that compute, or the dealer who makes their tapes, which is [`DEALER`]. Nothing is
    /// sent.
    ///
    /// The session is one of three parties with a key for each pair. The transport of the two plays the
    /// dealer's messages ([`net::tape::Player`]), and the dealer's transport records them
    /// ([`net::tape::Recorder`]). The dealer makes the same calls as the others. It does not own inputs, and
    /// the values that it opens are 0, so a program that a dealer runs must not depend on opened values. A
    /// [`crate::Tape`] makes such sessions from a file, and a [`crate::Dealer`] makes such files.
    ///
    /// # Errors
    /// As [`Rss::with_options`], and if the options name other parts than [`Partition::Pinned`] or the default.
    pub fn dealt(session: Session, engine: E, options: Options) -> Result<Self> {
        if options.partition == Partition::Six {
            let reason = "with a dealer the partition must be `Pinned`, not `Six`";
            return Err(invalid("options", reason));
        }
        Self::in_setting(session, engine, options.partition(Partition::Pinned), Setting::Dealt)
    }

    /// Begins a place of a tape, as [`mpc_core::ServerProtocol::begin_job`] begins a job. Streams are keyed by the tape, the place and
    /// `digest`; those shared with the dealer also by the place's seeds, of which a party passes its own. Places
    /// are taken in ascending order, each at most once.
    ///
    /// # Errors
    /// If this place or a later one was begun before, which kills the session.
    pub(crate) fn begin_place(
        &mut self,
        place: u64,
        digest: &[u8; 32],
        seeds: [PairKey; 2],
    ) -> Result<()> {
        self.begin(|keys| keys.begin_place(place, digest, seeds))
    }

    /// Exchanges equal numbers of words with the other of two parties.
    pub(crate) fn exchange_words(&mut self, words: &[u64]) -> Result<Vec<u64>> {
        let mine = self.engine.upload(Tensor::vector(words.to_vec()))?;
        let other = self.other();
        self.talk(|rss| {
            let links = rss.links.get_mut();
            links.send(&rss.engine, other, &mine)?;
            let theirs = links.receive(&rss.engine, other, Shape::new([words.len()])?)?;
            Ok(rss.engine.download(&theirs)?.words().to_vec())
        })
    }

    /// Shares sums of tensors of which the two parties hold one addend each, such as secrets that a client
    /// split in two. The dealer passes nothing.
    ///
    /// Each sends its addend masked by a stream that it has in common with the dealer. Cost: 128 bits, 1 round.
    ///
    /// # Errors
    /// If this is not a session with a dealer, or addends are missing or have other shapes.
    pub fn input_sums(
        &mut self,
        shapes: &[Shape],
        addends: Option<&[E::Tensor]>,
    ) -> Result<Vec<Share<E::Tensor>>> {
        if self.setting != Setting::Dealt {
            return Err(invalid("input", "sums of two addends are for sessions with a dealer"));
        }
        if !self.deals() {
            self.check_values(shapes, addends)?;
        }
        self.talk(|rss| rss.share_sums(shapes, addends.unwrap_or_default()))
    }

    /// With masks `x0` of party 0 and `x2` of party 1, both the dealer's too, `x1 = (u - x0) + (v - x2)`.
    fn share_sums(
        &mut self,
        shapes: &[Shape],
        addends: &[E::Tensor],
    ) -> Result<Vec<Share<E::Tensor>>> {
        let roles = Roles::new(self.party(), DEALER, false);
        let engine = self.engine.clone();
        let mut masked = Vec::with_capacity(shapes.len());
        for (i, shape) in shapes.iter().enumerate() {
            let nonce = self.keys.operation();
            let mut streams = self.keys.streams(&roles, nonce);
            let masks = [Key::Left, Key::Right].map(|pair| streams.sample(pair, shape.len()));
            let mask = |draw| -> Result<E::Tensor> {
                let [mask] = words(&engine, &Copy, shape, [streams.words(draw)], &[])?;
                Ok(mask)
            };
            if self.deals() {
                masked.push((mask(masks[1])?, mask(masks[0])?));
                continue;
            }
            let mask = mask(masks[self.party().0])?;
            let sources = [whole(&addends[i]), whole(&mask)];
            let [sent] = words(&engine, &Difference, shape, sources, &[])?;
            self.links.get_mut().send(&engine, roles.peer(), &sent)?;
            masked.push((mask, sent));
        }
        let mut shares = Vec::with_capacity(shapes.len());
        for (shape, (mask, own)) in shapes.iter().zip(masked) {
            if self.deals() {
                shares.push(Share::new(mask, own)?);
                continue;
            }
            let other = self.links.get_mut().receive(&engine, roles.peer(), shape.clone())?;
            let both = map(&engine, &Sum, shape, [&own, &other], &[])?;
            let first = self.party() == Party(0);
            shares.push(if first { Share::new(mask, both)? } else { Share::new(both, mask)? });
        }
        self.links.get_mut().flush_all()?;
        Ok(shares)
    }

    /// The other of two parties.
    fn other(&self) -> Party {
        Party(1 - self.party().0)
    }

    /// Sends the components that the other of two parties lacks, and returns those that this one lacks.
    pub(crate) fn exchange_with_the_other(
        &mut self,
        components: &[(&E::Tensor, &E::Tensor)],
    ) -> Result<Vec<E::Tensor>> {
        let shapes: Vec<_> = components.iter().map(|(mine, _)| mine.shape().clone()).collect();
        for &(mine, next) in components {
            let lacked = self.lacked_by_the_other(mine, next);
            self.links.borrow_mut().send(&self.engine, self.other(), lacked)?;
        }
        self.receive_lacked(&shapes)
    }

    /// Opens to one of two parties.
    pub(crate) fn reveal_to_the_other(
        &mut self,
        to: Party,
        shares: &[&Share<E::Tensor>],
    ) -> Result<Option<Vec<E::Tensor>>> {
        if self.deals() {
            return Ok(None);
        }
        if self.party() == to {
            let shapes: Vec<_> = shares.iter().map(|share| share.shape().clone()).collect();
            let missing = self.receive_lacked(&shapes)?;
            let opened = shares.iter().zip(&missing);
            let opened = opened.map(|(share, missing)| self.complete(share, missing));
            return opened.collect::<Result<_>>().map(Some);
        }
        for share in shares {
            let lacked = self.lacked_by_the_other(share.mine(), share.next());
            self.links.get_mut().send(&self.engine, to, lacked)?;
        }
        self.links.get_mut().flush_all()?;
        Ok(None)
    }

    /// Component 0 at party 0, component 2 at party 1: the one that it shares with the dealer.
    fn lacked_by_the_other<'a>(&self, mine: &'a E::Tensor, next: &'a E::Tensor) -> &'a E::Tensor {
        if self.party() == Party(0) { mine } else { next }
    }

    fn receive_lacked(&mut self, shapes: &[Shape]) -> Result<Vec<E::Tensor>> {
        let other = self.other();
        let mut came = Vec::with_capacity(shapes.len());
        for shape in shapes {
            came.push(self.links.get_mut().receive(&self.engine, other, shape.clone())?);
        }
        Ok(came)
    }

    /// Refuses parties that do not compute.
    pub(crate) fn check_computes(&self, op: &'static str, party: Party) -> Result<()> {
        let parties = self.computing();
        if party.0 < parties {
            return Ok(());
        }
        Err(invalid(op, format!("{party} does not exist; there are {parties}")))
    }
}
