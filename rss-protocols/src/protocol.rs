//! [`Protocol`] for replicated sharing.

use mpc_core::{
    BitMap, Chain, Compare, Compared, FinishingOf, Found, Info, Largest, Linear, Produced, Product,
    Profile, Protocol, Recipients, Result, ShareTensor, ShuffledBy, TermOf, TrigSum,
    TruncationMode,
    provided::{self, check_compare, common_rows, tournament_lengths},
};
use net::Party;
use ring_arith::{BitTensor, Engine, Shape, Stream};

use crate::{
    BitShare, Rss, Share,
    linear::{check_width, same_bits, same_shape},
    party::Setting,
    product::{check_one_bit, kinds::of_one_kind},
    runtime::launch::invalid,
};

/// The modes of a checked session.
const CHECKED: &[TruncationMode] = &[
    TruncationMode::Default,
    TruncationMode::Early,
    TruncationMode::Exact,
    TruncationMode::Dither,
];

impl<E: Engine> Protocol for Rss<E> {
    type Engine = E;
    type Share = Share<E::Tensor>;
    type Bits = BitShare<E::Tensor>;

    fn info(&self) -> Info {
        let name = match self.setting {
            Setting::Three => "rss",
            Setting::Dealt => "rss-dealt",
        };
        let (truncation, profile) = (self.options.truncation, self.options.profile);
        let modes = if self.is_checked() { CHECKED } else { TruncationMode::ALL };
        let info = Info::new(name, self.party(), self.computing());
        let shuffles = !self.is_checked();
        let helper = self.setting == Setting::Dealt;
        Info { truncation, modes, profile, shuffles, helper, ..info }
    }

    fn engine(&self) -> &E {
        &self.engine
    }

    fn step(&mut self, name: &str) {
        self.enter(name);
    }

    fn set_profile(&mut self, profile: Profile) {
        self.options.profile = profile;
    }

    fn input(
        &mut self,
        owner: Party,
        shapes: &[Shape],
        values: Option<&[E::Tensor]>,
    ) -> Result<Vec<Self::Share>> {
        self.check_inputs(owner, shapes, values)?;
        self.talk(|rss| rss.share_inputs(owner, shapes, values))
    }

    /// Under a key derived from both of this party's pair keys, of which each peer has one.
    fn private_stream(&mut self) -> Result<Stream> {
        let nonce = self.keys.operation();
        Ok(self.keys.stream(self.party(), nonce))
    }

    fn constant(&self, value: &E::Tensor) -> Result<Self::Share> {
        self.public(value)
    }

    fn reveal(
        &mut self,
        to: Recipients,
        shares: &[&Self::Share],
    ) -> Result<Option<Vec<E::Tensor>>> {
        match to {
            Recipients::All => self.talk(|rss| rss.reveal_to_all(shares)).map(Some),
            Recipients::One(party) => {
                self.check_computes("open", party)?;
                self.talk(|rss| rss.reveal_to(party, shares))
            }
        }
    }

    fn open_bits(&mut self, bits: &[&Self::Bits]) -> Result<Vec<BitTensor<E::Tensor>>> {
        self.talk(|rss| rss.reveal_bits(bits))
    }

    fn linear(&self, map: &Linear<'_, E::Tensor>, x: &Self::Share) -> Result<Self::Share> {
        self.linear_map(map, x)
    }

    fn add(&self, x: &Self::Share, y: &Self::Share) -> Result<Self::Share> {
        self.sum_or_difference(x, y, false)
    }

    fn sub(&self, x: &Self::Share, y: &Self::Share) -> Result<Self::Share> {
        self.sum_or_difference(x, y, true)
    }

    fn combine(&self, terms: &[(u64, &Self::Share)], constant: u64) -> Result<Self::Share> {
        self.combination(terms, constant)
    }

    fn concat(&self, shares: &[&Self::Share], axis: usize) -> Result<Self::Share> {
        self.join(shares, axis)
    }

    fn constant_bits(&self, value: &BitTensor<E::Tensor>) -> Result<Self::Bits> {
        self.public_bits(value)
    }

    fn linear_bits(&self, map: &BitMap<'_, Self::Bits>) -> Result<Self::Bits> {
        match *map {
            BitMap::Xor(x, y) => self.exclusive_or(x, y),
            BitMap::Not(x) => self.complement(x),
            BitMap::Pick(x, planes) => self.picked(x, planes),
            BitMap::Join(xs) => self.joined(xs),
            BitMap::Reshape(x, shape) => self.reshaped_bits(x, shape),
            BitMap::Rows(x, places) => self.rows_of_bits(x, places),
        }
    }

    fn products(
        &mut self,
        jobs: &[Product<'_, Self::Share, Self::Bits>],
    ) -> Result<Vec<Produced<Self::Share, Self::Bits>>> {
        self.check_products(jobs)?;
        if self.is_checked() && jobs.iter().any(|job| !of_one_kind(job)) {
            return self.products_of_kinds(jobs);
        }
        self.multiply(jobs)
    }

    fn parts(&mut self, sums: &[&[TermOf<'_, Self>]]) -> Result<Vec<E::Tensor>> {
        self.parts_of(sums)
    }

    fn settle(
        &mut self,
        jobs: &[(&E::Tensor, FinishingOf<'_, Self>)],
    ) -> Result<Vec<Produced<Self::Share, Self::Bits>>> {
        self.settle_parts(jobs)
    }

    /// This party's own component and the next.
    fn components(&self, share: &Self::Share) -> Result<Vec<E::Tensor>> {
        self.refuse_parts("components")?;
        Ok(vec![share.mine().clone(), share.next().clone()])
    }

    fn of_components(&self, words: Vec<E::Tensor>) -> Result<Self::Share> {
        self.refuse_parts("components")?;
        let [mine, next] = provided::exactly_components(words)?;
        Ok(Share::new(mine, next)?)
    }

    fn truncate(
        &mut self,
        jobs: &[(&Self::Share, u32)],
        mode: TruncationMode,
    ) -> Result<Vec<Self::Share>> {
        self.check_truncations(jobs, mode)?;
        self.talk(|rss| rss.divide(jobs, mode))
    }

    fn compare(
        &mut self,
        jobs: &[Compare<'_, Self::Share>],
    ) -> Result<Vec<Compared<Self::Share, Self::Bits>>> {
        jobs.iter().try_for_each(check_compare)?;
        self.talk(|rss| rss.signs(jobs))
    }

    fn chain(&mut self, chain: &Chain<'_, Self::Share>) -> Result<Vec<Self::Share>> {
        let levels = chain.levels()?;
        match self.talk(|rss| rss.chained(chain, levels))? {
            Some(results) => Ok(results),
            None => provided::chain(self, chain),
        }
    }

    /// In a checked session by the provided form, whose steps all have relations.
    fn shuffle(
        &mut self,
        words: &[&Self::Share],
        bits: &[&Self::Bits],
    ) -> Result<ShuffledBy<Self>> {
        if self.is_checked() {
            return provided::shuffle(self, words, bits);
        }
        common_rows(words, bits)?;
        self.talk(|rss| rss.shuffled(words, bits))
    }

    fn random_words(&mut self, shapes: &[Shape]) -> Result<Vec<Self::Share>> {
        self.talk(|rss| shapes.iter().map(|shape| rss.random_share(shape)).collect())
    }

    fn random_bits(&mut self, shape: &Shape, width: usize) -> Result<Self::Bits> {
        self.talk(|rss| rss.random_bit_share(shape, width))
    }

    fn trig_sum(
        &mut self,
        x: &Self::Share,
        width: u32,
        function: &TrigSum,
    ) -> Result<Option<Self::Share>> {
        self.talk(|rss| rss.trig_sum_of(x, width, function))
    }

    fn is_zero(&mut self, jobs: &[(&Self::Share, u32)]) -> Result<Vec<Self::Bits>> {
        jobs.iter().try_for_each(|&(_, width)| check_width("is zero", width as usize))?;
        self.talk(|rss| rss.zero_tests(jobs))
    }

    fn to_bits(&mut self, jobs: &[(&Self::Share, u32)]) -> Result<Vec<Self::Bits>> {
        jobs.iter().try_for_each(|&(_, width)| check_width("to bits", width as usize))?;
        self.talk(|rss| rss.decompose(jobs))
    }

    fn and(&mut self, jobs: &[(&Self::Bits, &Self::Bits)]) -> Result<Vec<Self::Bits>> {
        jobs.iter().try_for_each(|(x, y)| same_bits("and", x, y))?;
        self.talk(|rss| rss.conjunctions(jobs))
    }

    fn select(&mut self, jobs: &[(&Self::Bits, &[&Self::Share])]) -> Result<Vec<Vec<Self::Share>>> {
        for (bit, xs) in jobs {
            check_one_bit("select", bit)?;
            for x in *xs {
                same_shape("select", bit.shape(), x.shape())?;
            }
        }
        self.talk(|rss| rss.selections(jobs))
    }

    fn bits_to_words(&mut self, jobs: &[&Self::Bits]) -> Result<Vec<Vec<Self::Share>>> {
        self.talk(|rss| rss.planes_as_words(jobs))
    }

    fn bit_sums(&mut self, jobs: &[(&Self::Bits, &[&[u64]])]) -> Result<Vec<Vec<Self::Share>>> {
        self.talk(|rss| rss.weighted_sums(jobs))
    }

    fn max_first(
        &mut self,
        x: &Self::Share,
        width: u32,
        want: Largest,
    ) -> Result<Found<Self::Share, Self::Bits>> {
        if x.shape().dims().first().is_none_or(|&k| k == 0) {
            let reason = format!("shape {:?} has no elements along its first axis", x.shape());
            return Err(invalid("max", reason));
        }
        self.talk(|rss| rss.largest(x, width.clamp(2, 64), want))
    }

    fn max_first_gradient(
        &mut self,
        gradient: &Self::Share,
        choices: &[Self::Bits],
    ) -> Result<Self::Share> {
        let lengths = tournament_lengths(gradient.shape(), choices)?;
        let Some(kept) = Self::reusable_choices(choices) else {
            return provided::max_first_gradient(self, gradient, choices);
        };
        let levels: Vec<_> = lengths.into_iter().zip(kept).collect();
        self.talk(|rss| rss.scatter(gradient, &levels))
    }
}
