//! The interface between functions of secrets and the protocol that computes on them.

pub mod angles;
mod chain;
pub mod provided;
mod request;
mod server;
pub mod sharing;
pub(crate) mod shuffle;
pub(crate) mod tournament;
mod trig_sum;

pub use chain::{Chain, Step, Sum, Value};
pub use request::{
    Compare, Compared, Finish, Finishing, Found, Largest, MOST_DROPPED, Produced, Product, Profile,
    Security, SumFactors, Sums, Term, Then, TruncationMode,
};
pub use server::{ServerProtocol, Settings};
pub use sharing::{Deal, Held, Parcel, ParcelKey, Released, Sharing};
pub use trig_sum::{Ends, Line, TrigSum, TrigTerm};

use std::{fmt, sync::Arc};

use net::Party;
use ring_arith::{Bilinear, BitTensor, Engine, Shape, Stream, View, Window};

use crate::{Error, Result};

/// A [`Product`] of a protocol's shares.
pub type ProductOf<'a, P> = Product<'a, <P as Protocol>::Share, <P as Protocol>::Bits>;

/// The answer to a [`ProductOf`].
pub type ProducedBy<P> = Produced<<P as Protocol>::Share, <P as Protocol>::Bits>;

/// The steps after a sum of products of a protocol's shares.
pub type FinishingOf<'a, P> = Finishing<'a, <P as Protocol>::Share, <P as Protocol>::Bits>;

/// A [`Term`] of a protocol's shares.
pub type TermOf<'a, P> = Term<'a, <P as Protocol>::Share>;

/// The answer to a [`Compare`] of a protocol's shares.
pub type ComparedBy<P> = Compared<<P as Protocol>::Share, <P as Protocol>::Bits>;

/// The answer to a tournament of a protocol's shares.
pub type FoundBy<P> = Found<<P as Protocol>::Share, <P as Protocol>::Bits>;

/// The answer to [`Protocol::shuffle`]: words and bits.
pub type ShuffledBy<P> = (Vec<<P as Protocol>::Share>, Vec<<P as Protocol>::Bits>);

/// A share of a tensor. Everyone sees its shape; `Debug` prints nothing else.
pub trait ShareTensor: Clone + fmt::Debug + Send + Sync + 'static {
    /// The shape of the shared tensor.
    fn shape(&self) -> &Shape;
}

/// A share of a tensor of bits. Its elements have the same number of bits, which lie in planes: plane `j` holds bit `j`
/// of every element.
pub trait ShareBits: ShareTensor {
    /// Number of planes, 1 to 64.
    fn width(&self) -> usize;
}

/// Facts about one party's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// A name for reports: `rss`, `plaintext`.
    pub name: &'static str,
    /// This party.
    pub party: Party,
    /// Number of parties that compute. A helper, such as a dealer that runs before them, is not counted and has a
    /// number after theirs. The values that it opens are 0, so a program that a helper also runs must not depend on
    /// opened values.
    pub parties: usize,
    /// The mode in which functions truncate.
    pub truncation: TruncationMode,
    /// The modes that [`Protocol::truncate`] and [`Protocol::products`] take; they refuse the others.
    pub modes: &'static [TruncationMode],
    /// The resource that the protocol saves where it has a choice.
    pub profile: Profile,
    /// The protocol has a [`Protocol::shuffle`] of its own. The provided one is a sort.
    pub shuffles: bool,
    /// A helper runs the program too. True if the session has a dealer: functions that branch on opened values, which a
    /// helper does not see, then refuse or take another way.
    pub helper: bool,
}

impl Info {
    /// A protocol with the provided truncation and shuffle, a fixed profile and no helper.
    #[must_use]
    pub fn new(name: &'static str, party: Party, parties: usize) -> Self {
        Self {
            name,
            party,
            parties,
            truncation: TruncationMode::Default,
            modes: provided::MODES,
            profile: Profile::Bytes,
            shuffles: false,
            helper: false,
        }
    }
}

/// The parties that learn an opened value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipients {
    /// All parties.
    All,
    /// One party.
    One(Party),
}

/// The tensor type of a protocol's engine.
pub type Words<P> = <<P as Protocol>::Engine as Engine>::Tensor;

/// A linear map of one shared tensor, computed without communication.
#[derive(Debug)]
pub enum Linear<'a, T> {
    /// `-x`.
    Negate,
    /// `x * c` for one public word.
    Scale(u64),
    /// `x + c` for one public word.
    Shift(u64),
    /// `x + c` element by element; `c` has the shape of `x`.
    AddPublic(&'a T),
    /// A bilinear map with a public second operand.
    TimesPublic(&'a Bilinear, &'a T),
    /// A bilinear map with a public first operand.
    PublicTimes(&'a Bilinear, &'a T),
    /// Moves words. [`View::Pad`]'s value is a public word.
    View(&'a View),
    /// Sums over axes, which stay with length 1.
    Sum(&'a [usize]),
    /// Sums under a window.
    WindowSum(&'a Window),
}

/// A linear map of shared bits, computed without communication.
#[derive(Debug)]
pub enum BitMap<'a, B> {
    /// `x ^ y`, bit by bit; shapes and widths equal.
    Xor(&'a B, &'a B),
    /// `!x`, bit by bit.
    Not(&'a B),
    /// The given planes in the given order, as a tensor of that width. Plane `None` is 0.
    Pick(&'a B, &'a [Option<u32>]),
    /// The planes of several tensors of the same shape, one after the other.
    Join(&'a [&'a B]),
    /// The same bits under another shape of equal length.
    Reshape(&'a B, &'a Shape),
    /// The rows at the given places of the first axis, in that order; repeats are allowed.
    Rows(&'a B, &'a Arc<[usize]>),
}

/// A protocol for computing on shared tensors of words modulo 2^64 and of bits.
///
/// Each party runs the same straight-line program against its own value of this type; the order of
/// calls is the order of messages, so all parties must make the same calls with the same shapes.
/// Calls take batches whose members share rounds. After an error of the network or of a peer the session cannot be used.
/// A call that is refused for its arguments sends nothing and draws no randomness, and the session goes on: check all
/// members of a batch first. An axis may have length 0; then no message need be sent, alike at all parties.
///
/// A stated cost in bits is not a requirement but that of replicated sharing at 20 fraction bits and width 64, for each
/// element and all parties together. For a large tensor each party sends a 24th of that number in
/// bytes. Other protocols state their own.
///
/// Shares do not carry fraction bits: [`crate::SecretTensor`] and the functions above it keep them.
pub trait Protocol: Sized + 'static {
    /// The engine that does this party's local work.
    type Engine: Engine;
    /// A share of a tensor of words.
    type Share: ShareTensor;
    /// A share of a tensor of bits, of any width from 1 to 64.
    type Bits: ShareBits;

    /// Facts about the protocol.
    fn info(&self) -> Info;

    /// The engine.
    fn engine(&self) -> &Self::Engine;

    /// Names the next step, for metering, profiles and errors.
    fn step(&mut self, name: &str);

    // -- into and out of the protocol ------------------------------------------------------------

    /// Shares tensors that `owner` holds; the owner passes them, the others pass `None`. One round,
    /// 64 bits.
    ///
    /// # Errors
    /// See [`crate::Error`]. The same holds for every method below.
    fn input(
        &mut self,
        owner: Party,
        shapes: &[Shape],
        values: Option<&[Words<Self>]>,
    ) -> Result<Vec<Self::Share>>;

    /// A sharing of a public tensor, the same on all parties, without communication.
    fn constant(&self, value: &Words<Self>) -> Result<Self::Share>;

    /// Reveals tensors to some parties; the others get `None`. One round; 192 bits to all, 64 to one.
    fn reveal(
        &mut self,
        to: Recipients,
        shares: &[&Self::Share],
    ) -> Result<Option<Vec<Words<Self>>>>;

    /// Reveals bits to all parties. One round, 3 bits for each.
    fn open_bits(&mut self, bits: &[&Self::Bits]) -> Result<Vec<BitTensor<Words<Self>>>>;

    // -- without communication: 0 rounds, 0 bits ---------------------------------------------------

    /// A linear map.
    fn linear(&self, map: &Linear<'_, Words<Self>>, x: &Self::Share) -> Result<Self::Share>;

    /// `x + y`, shapes equal.
    fn add(&self, x: &Self::Share, y: &Self::Share) -> Result<Self::Share>;

    /// Concatenates along an axis.
    fn concat(&self, shares: &[&Self::Share], axis: usize) -> Result<Self::Share>;

    /// A sharing of public bits.
    fn constant_bits(&self, value: &BitTensor<Words<Self>>) -> Result<Self::Bits>;

    /// A linear map of bits.
    fn linear_bits(&self, map: &BitMap<'_, Self::Bits>) -> Result<Self::Bits>;

    // -- with communication: a protocol says what each costs, and tests compare it with what is counted -

    /// Sums of bilinear maps with their final steps. Members with the same final step share all
    /// rounds.
    ///
    /// 192 bits an output in one round; truncated 252 (`early` 212) in two, `exact` 489 and `dither` 638
    /// in five; with truncation and ReLU in one 688 (`early` 648) in six, one more if the sign is kept;
    /// with truncation and a kept bit in one 424 (`early` 384) in two. The number of terms makes no
    /// difference.
    ///
    /// A protocol without better forms of the final steps passes its sums to
    /// [`provided::finish`].
    fn products(&mut self, jobs: &[ProductOf<'_, Self>]) -> Result<Vec<ProducedBy<Self>>>;

    /// The low `width` bits of words, as shared bits. `2 + ceil(log2(width - 1))` rounds; 1183 bits at
    /// width 64, 187 at 16.
    fn to_bits(&mut self, jobs: &[(&Self::Share, u32)]) -> Result<Vec<Self::Bits>>;

    /// `x & y`, bit by bit; shapes and widths equal. One round, 3 bits for each.
    fn and(&mut self, jobs: &[(&Self::Bits, &Self::Bits)]) -> Result<Vec<Self::Bits>>;

    /// Each plane as a tensor of words 0 or 1: `width` shares for each member. Two rounds, 192 bits for
    /// each plane.
    fn bits_to_words(&mut self, jobs: &[&Self::Bits]) -> Result<Vec<Vec<Self::Share>>>;

    // -- provided: short forms ---------------------------------------------------------------------

    /// This party.
    fn me(&self) -> Party {
        self.info().party
    }

    /// Number of parties that compute; see [`Info::parties`].
    fn parties(&self) -> usize {
        self.info().parties
    }

    /// The mode in which functions truncate.
    fn truncation(&self) -> TruncationMode {
        self.info().truncation
    }

    /// The resource that the protocol saves where it has a choice.
    fn profile(&self) -> Profile {
        self.info().profile
    }

    /// Reveals tensors to all parties: [`Protocol::reveal`].
    fn open(&mut self, shares: &[&Self::Share]) -> Result<Vec<Words<Self>>> {
        self.reveal(Recipients::All, shares)?.ok_or_else(|| Error::unanswered("reveal"))
    }

    /// Reveals tensors to one party; the others get `None`: [`Protocol::reveal`].
    fn open_to(&mut self, to: Party, shares: &[&Self::Share]) -> Result<Option<Vec<Words<Self>>>> {
        self.reveal(Recipients::One(to), shares)
    }

    /// [`BitMap::Xor`].
    fn xor(&self, x: &Self::Bits, y: &Self::Bits) -> Result<Self::Bits> {
        self.linear_bits(&BitMap::Xor(x, y))
    }

    /// [`BitMap::Not`].
    fn not(&self, x: &Self::Bits) -> Result<Self::Bits> {
        self.linear_bits(&BitMap::Not(x))
    }

    /// [`BitMap::Pick`].
    fn pick_planes(&self, x: &Self::Bits, planes: &[Option<u32>]) -> Result<Self::Bits> {
        self.linear_bits(&BitMap::Pick(x, planes))
    }

    /// [`BitMap::Join`].
    fn join_planes(&self, xs: &[&Self::Bits]) -> Result<Self::Bits> {
        self.linear_bits(&BitMap::Join(xs))
    }

    /// [`BitMap::Reshape`].
    fn reshape_bits(&self, x: &Self::Bits, shape: &Shape) -> Result<Self::Bits> {
        self.linear_bits(&BitMap::Reshape(x, shape))
    }

    /// [`BitMap::Rows`].
    fn bit_rows(&self, x: &Self::Bits, places: &Arc<[usize]>) -> Result<Self::Bits> {
        self.linear_bits(&BitMap::Rows(x, places))
    }

    /// The exclusive or of all planes, as a tensor of width 1. Local.
    fn parity(&self, x: &Self::Bits) -> Result<Self::Bits> {
        provided::parity(self, x)
    }

    // -- provided, and overridden where a protocol has a better form --------------------------------

    /// A stream of words that only this party can expand, a new one at each call: for noise that it adds. All
    /// parties make the same call, without communication. The provided form takes a key from the operating
    /// system.
    fn private_stream(&mut self) -> Result<Stream> {
        provided::private_stream()
    }

    /// `x - y`, shapes equal. Local.
    fn sub(&self, x: &Self::Share, y: &Self::Share) -> Result<Self::Share> {
        self.add(x, &self.linear(&Linear::Negate, y)?)
    }

    /// Divides by `2^bits`, 1 to [`crate::MOST_DROPPED`]; `|x| < 2^62`. Two rounds and 124 bits; `exact` five
    /// and 361.
    ///
    /// The provided form takes the word's bits and adds up the upper ones, which is exact.
    ///
    /// In the default mode the result of any other word is wrong, but also below `2^(64 - bits)` in magnitude:
    /// sensitivities may rely on that.
    fn truncate(
        &mut self,
        jobs: &[(&Self::Share, u32)],
        mode: TruncationMode,
    ) -> Result<Vec<Self::Share>> {
        provided::truncate(self, jobs, mode)
    }

    /// This party's parts of sums of products: words that add up, over all parties, to the sum. The first half of
    /// [`Protocol::products`]: with [`Protocol::settle`] after it the results, bytes and rounds are the same.
    ///
    /// Several machines of one party may each make parts of some of the terms, in a session with the same machines of the
    /// other parties. The sum of their parts, taken inside the party and in any order, is its part of the sum of all terms,
    /// which one of the machines settles in its session. A part is a function of this party's own words: it must not leave
    /// the party but through [`Protocol::settle`].
    ///
    /// Parts are plain words of the engine, so that any collective of machines adds them up. These methods are provided
    /// rather than required, since a protocol needs them only for such machines.
    ///
    /// In replicated sharing nothing is sent. A protocol that opens masked factors does that here.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the protocol has no such words, or its messages could not be proven.
    fn parts(&mut self, sums: &[&[TermOf<'_, Self>]]) -> Result<Vec<Words<Self>>> {
        let _ = sums;
        Err(provided::without_parts(self, "parts"))
    }

    /// The final steps of sums of products, of which this party has parts: the second half of [`Protocol::products`].
    /// Summands are added here, once for all machines of a party.
    ///
    /// # Errors
    /// As [`Protocol::parts`].
    fn settle(
        &mut self,
        jobs: &[(&Words<Self>, FinishingOf<'_, Self>)],
    ) -> Result<Vec<ProducedBy<Self>>> {
        let _ = jobs;
        Err(provided::without_parts(self, "settle"))
    }

    /// The words that this party holds of a share, each tensor of the share's shape. Sharings add up word by word, also
    /// those of different sessions, so machines of one party add and exchange shares as such words: 16 bytes an element
    /// in replicated sharing. They must not leave the party.
    ///
    /// # Errors
    /// As [`Protocol::parts`].
    fn components(&self, share: &Self::Share) -> Result<Vec<Words<Self>>> {
        let _ = share;
        Err(provided::without_parts(self, "components"))
    }

    /// The share of which [`Protocol::components`] are these words.
    ///
    /// # Errors
    /// As [`Protocol::parts`]; [`Error::Invalid`] or [`Error::Shapes`] if these cannot be a share's.
    fn of_components(&self, words: Vec<Words<Self>>) -> Result<Self::Share> {
        let _ = words;
        Err(provided::without_parts(self, "components"))
    }

    /// One member of [`Protocol::products`].
    fn product(&mut self, job: ProductOf<'_, Self>) -> Result<ProducedBy<Self>> {
        self.products(&[job])?.pop().ok_or_else(|| Error::unanswered("products"))
    }

    /// Compares with zero. The bit: five rounds and 297 bits; as a word six and 488; with one tensor
    /// selected by it, for instance ReLU, six and 552. Each further tensor 192, the outcome also as a
    /// word 128, also as a bit 1. Less at smaller widths.
    fn compare(&mut self, jobs: &[Compare<'_, Self::Share>]) -> Result<Vec<ComparedBy<Self>>> {
        provided::compare(self, jobs)
    }

    /// One member of [`Protocol::compare`].
    fn compare_one(&mut self, job: Compare<'_, Self::Share>) -> Result<ComparedBy<Self>> {
        self.compare(&[job])?.pop().ok_or_else(|| Error::unanswered("compare"))
    }

    /// Tests if the low `width` bits are all 0; the answers are shared bits. Five rounds, 255 bits.
    fn is_zero(&mut self, jobs: &[(&Self::Share, u32)]) -> Result<Vec<Self::Bits>> {
        provided::is_zero(self, jobs)
    }

    /// The product of a bit (width 1) with each of several words of its shape. Two rounds, 64 bits and
    /// 192 for each word; by a bit kept from a comparison that also selected words, only 192 for each
    /// word.
    fn select(&mut self, jobs: &[(&Self::Bits, &[&Self::Share])]) -> Result<Vec<Vec<Self::Share>>> {
        provided::select(self, jobs)
    }

    /// Sets the profile for the calls that follow, if the protocol has a choice. All parties make
    /// the same call.
    fn set_profile(&mut self, profile: Profile) {
        let _ = profile;
    }

    /// `sum(c_i * x_i) + constant` modulo 2^64 for public words `c_i`, all shapes equal, without communication. Sums
    /// that wrap around on purpose use this method. Functions evaluate polynomials with it, so a protocol's own form
    /// should need one pass over memory.
    fn combine(&self, terms: &[(u64, &Self::Share)], constant: u64) -> Result<Self::Share> {
        provided::combine(self, terms, constant)
    }

    /// Runs a program of element-wise products and returns its results in order.
    ///
    /// The provided form is one call of [`Protocol::products`] for each level of [`Chain::levels`]. Replicated sharing
    /// finishes all truncations together at the end: `d` levels take `d + 1` rounds, `d` if the results are not
    /// truncated. A product costs 232 bits at 20 dropped bits, `early` 192; for each value that it takes beyond one it
    /// adds as many bits as were dropped of that value; a result costs 20 more.
    fn chain(&mut self, chain: &Chain<'_, Self::Share>) -> Result<Vec<Self::Share>> {
        provided::chain(self, chain)
    }

    /// Words of these shapes, uniform modulo 2^64, which no party knows; others at each call.
    ///
    /// Replicated sharing takes each component from the streams of the two parties that hold it, and sends nothing. In the
    /// provided form every party inputs words of its own ([`provided::random_words`]).
    fn random_words(&mut self, shapes: &[Shape]) -> Result<Vec<Self::Share>> {
        provided::random_words(self, shapes)
    }

    /// `width` uniform bits for each element, which no party knows; others at each call.
    ///
    /// Replicated sharing sends nothing. The provided form takes the low bits of [`Protocol::random_words`].
    fn random_bits(&mut self, shape: &Shape, width: usize) -> Result<Self::Bits> {
        provided::random_bits(self, shape, width)
    }

    /// The rows of tensors, along their first axis, in one secret order. The order is uniformly random, and no party
    /// knows it. All tensors of words and of bits have as many rows, and get the same order.
    ///
    /// Two rounds and four messages: 256 bits for each word, 4 for each bit. The provided form sorts the rows by
    /// random numbers to which every party contributes ([`provided::shuffle`]).
    fn shuffle(
        &mut self,
        words: &[&Self::Share],
        bits: &[&Self::Bits],
    ) -> Result<ShuffledBy<Self>> {
        provided::shuffle(self, words, bits)
    }

    /// A sum of sines and cosines of words of a width, and lines outside of its ends. Returns `None` and sends nothing
    /// if the protocol lacks a form for it. All parties must have the same function, bit by bit.
    ///
    /// Replicated sharing has a form unless messages must be proven: the rounds of a comparison with a selection, or 3
    /// without ends; two shares of at most `109 - total` bits for each term, `192 + 3 drop` bits for the truncation or
    /// `192 + drop` for an early one, and with ends two comparisons and 384 bits.
    fn trig_sum(
        &mut self,
        x: &Self::Share,
        width: u32,
        function: &TrigSum,
    ) -> Result<Option<Self::Share>> {
        let _ = (x, width, function);
        Ok(None)
    }

    /// The prefix OR of planes: plane `j` of the result is the OR of planes `j..` of `x`. By
    /// `ceil(log2 width)` calls of [`Protocol::and`] on half the planes: 6 rounds and 576 bits at
    /// width 64.
    fn prefix_or(&mut self, jobs: &[&Self::Bits]) -> Result<Vec<Self::Bits>> {
        provided::prefix_or(self, jobs)
    }

    /// Weighted sums of planes as words: for each member, a share of `sum(c[j] * plane_j)` for every
    /// list `c` of one public word a plane. With one-hot planes these are table look-ups.
    ///
    /// The provided form converts every plane (`width` words); a protocol in which one party knows one
    /// half of a bit and the others the other half needs to exchange the sums only. Two rounds; 64 bits
    /// for each plane and 128 for each sum.
    fn bit_sums(&mut self, jobs: &[(&Self::Bits, &[&[u64]])]) -> Result<Vec<Vec<Self::Share>>> {
        provided::bit_sums(self, jobs)
    }

    /// `[k, ..]` to `[1, ..]`: the largest elements along the first axis, by tournament, with the further
    /// results that `want` names. `|x| < 2^(width-2)`. For each result `1 + 5 ceil(log2 k)` rounds and at
    /// width 44 `(k - 1) 456` bits, with the position `(k - 1) 648`, with choices `k - 1` more.
    fn max_first(&mut self, x: &Self::Share, width: u32, want: Largest) -> Result<FoundBy<Self>> {
        tournament::max_first(self, x, width, want)
    }

    /// The gradient of [`Protocol::max_first`]: `[1, ..]` to `[k, ..]`, each word at the place of the
    /// largest element and 0 elsewhere, given the tournament's choices. `1 + ceil(log2 k)` rounds,
    /// `(k - 1) 192` bits.
    fn max_first_gradient(
        &mut self,
        gradient: &Self::Share,
        choices: &[Self::Bits],
    ) -> Result<Self::Share> {
        provided::max_first_gradient(self, gradient, choices)
    }
}
