//! A bit times words, and a bit as a word.
//!
//! The bit is `u ^ v`, `u` known to the dealer and `v` to both evaluators, and
//! `bit x = (1 - 2v)(u a + u b) + v (a + b)` with `a = x0 + x1`, `b = x2`. The opposite bit has the same `u` and the
//! opposite `v`.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | `u - r` to right, `u a - d` to left | | |
//! | 2 | | its addend of component 2 to right | its addend of component 2 to left |
//!
//! The dealer shares `u` and `u a` between the evaluators, one word each to one of them; of `a` they hold `x1` and `x0`.
//! Components 0 and 1 of the result are streams, and mask the evaluators' addends.
//! Cost: 64 bits, unless the shares of `u` are used again; 192 for each word, 128 for the bit as a word. Rounds: the
//! dealer's words leave at once, then one exchange.

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Source};

use crate::{
    kernels::{ArithEvaluator, Difference, SelectDealer, SelectEvaluator},
    proofs::{Bits, Holders, Shared, Transcript, Words, bit_as_word},
    runtime::{
        launch::whole,
        prss::{Key, Sample},
        roles::{Pair, Role},
        rounds::{Incoming, Port},
    },
    share::{
        output::{Slot, exchange},
        reusable::{Origin, WordShare},
    },
};

/// A bit's factor.
#[derive(Clone)]
pub(crate) enum Factor<T> {
    /// A word, given as the role's two components.
    Word(Pair<T>),
    /// 1: the product is the bit as a word.
    One,
}

/// One result of a selection.
pub(crate) struct Selected<T: EngineTensor> {
    pub factor: Factor<T>,
    /// It is for the bit's opposite.
    pub opposite: bool,
    /// Its place in the result.
    pub slot: Slot<T>,
}

/// The dealer's `u` as words, shared between the evaluators.
#[derive(Clone)]
pub(crate) enum MaskWords<T> {
    /// The dealer shares it now: left's share is a sample, right's is sent.
    Dealt(Sample),
    /// It was shared for an earlier selection.
    Reused(WordShare<T>),
}

/// An evaluator's share of `u` as words.
pub(crate) enum MaskShare<T> {
    Sample(Sample),
    Words(T),
}

/// The samples of a selection, for each result: right's share of `u a`, and components 0 and 1.
#[derive(Clone)]
pub(crate) struct Selection {
    n: usize,
    samples: Vec<[Sample; 3]>,
}

/// The number of selected words, of which left gets a share.
pub(crate) fn words<T: EngineTensor>(selected: &[Selected<T>]) -> usize {
    selected.iter().filter(|item| matches!(item.factor, Factor::Word(_))).count()
}

impl<T: EngineTensor> MaskWords<T> {
    /// For `n` elements, to be shared now.
    pub fn sample<E: Engine<Tensor = T>>(p: &mut Port<'_, E>, n: usize) -> Self {
        Self::Dealt(p.sample(Key::Left, n))
    }

    /// For `n` elements of a bit, to be shared now unless that was done before.
    pub fn sample_or_reuse<E: Engine<Tensor = T>>(
        p: &mut Port<'_, E>,
        origin: &Origin<T>,
        n: usize,
    ) -> Self {
        match origin {
            Origin::Shared(_) => Self::sample(p, n),
            Origin::Opened(share) => Self::Reused(share.clone()),
        }
    }

    /// The dealer shares `u` unless that was done before. What it keeps for later selections.
    pub fn deal<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>, u: &T) -> Result<WordShare<T>> {
        let left = match self {
            Self::Dealt(left) => *left,
            Self::Reused(share) => return Ok(share.clone()),
        };
        let [right] = p.words(&Difference, u.len(), [whole(u), p.words_of(left)], &[])?;
        p.to_right(&right)?;
        if !p.is_checked() {
            return Ok(WordShare::Dealer);
        }
        Ok(WordShare::Both([p.tensor_of(left)?, right]))
    }

    /// An evaluator reads its share.
    pub fn read<E: Engine<Tensor = T>>(
        &self,
        role: Role,
        dealt: &Incoming<'_, '_, E>,
    ) -> Result<MaskShare<T>> {
        Ok(match (self, role) {
            (Self::Dealt(left), Role::Right) => MaskShare::Words(dealt.words(left.len())?),
            (Self::Dealt(left), _) => MaskShare::Sample(*left),
            (Self::Reused(WordShare::Evaluator(share)), _) => MaskShare::Words(share.clone()),
            (Self::Reused(_), _) => unreachable!("the dealer reads no share"),
        })
    }
}

impl<T: EngineTensor> MaskShare<T> {
    pub fn words<'x, E: Engine<Tensor = T>>(&'x self, p: &'x Port<'_, E>) -> Source<'x, T> {
        match self {
            Self::Sample(sample) => p.words_of(*sample),
            Self::Words(words) => whole(words),
        }
    }

    /// The share for later selections.
    pub fn for_reuse<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>) -> Result<WordShare<T>> {
        Ok(WordShare::Evaluator(match self {
            Self::Sample(sample) => p.tensor_of(*sample)?,
            Self::Words(words) => words.clone(),
        }))
    }
}

impl Selection {
    /// For `results` results of `n` elements.
    pub fn sample<E: Engine>(p: &mut Port<'_, E>, n: usize, results: usize) -> Self {
        let keys = [Key::Right, Key::Right, Key::Left];
        Self { n, samples: (0..results).map(|_| keys.map(|key| p.sample(key, n))).collect() }
    }

    /// The dealer's work, given `u` as words: its two components of each result.
    pub fn deal<E: Engine>(
        &self,
        p: &Port<'_, E>,
        u: &E::Tensor,
        selected: &[Selected<E::Tensor>],
    ) -> Result<Vec<Pair<E::Tensor>>> {
        let mut results = Vec::with_capacity(selected.len());
        for (Selected { factor, slot, .. }, &[d, y0, y1]) in selected.iter().zip(&self.samples) {
            results.push(match factor {
                Factor::Word(Pair(x0, x1)) => {
                    let [d, y0, y1] = [d, y0, y1].map(|sample| p.words_of(sample));
                    let sources = [whole(u), whole(x0), whole(x1), d, y0, y1];
                    let places = [None, slot.first(), slot.second()];
                    let [left, y0, y1] =
                        p.words_into(&SelectDealer, self.n, sources, &[], places)?;
                    p.to_left(&left)?;
                    Pair(y0, y1)
                }
                Factor::One => {
                    Pair(p.tensor_into(y0, slot.first())?, p.tensor_into(y1, slot.second())?)
                }
            });
        }
        Ok(results)
    }

    /// Left reads its shares of `u a`, one for each word that is selected; right's are samples.
    pub fn read<E: Engine>(
        &self,
        role: Role,
        dealt: &Incoming<'_, '_, E>,
        words: usize,
    ) -> Result<Vec<E::Tensor>> {
        let sent = if role == Role::Left { words } else { 0 };
        (0..sent).map(|_| dealt.words(self.n)).collect()
    }

    /// The evaluators compute and exchange their addends, given `v` as words: their two components of each result.
    pub async fn select<E: Engine>(
        &self,
        p: &Port<'_, E>,
        u: &MaskShare<E::Tensor>,
        products: Vec<E::Tensor>,
        v: E::Tensor,
        selected: &[Selected<E::Tensor>],
    ) -> Result<Vec<Pair<E::Tensor>>> {
        let addends = self.addends(p, u, &products, &v, selected)?;
        drop((products, v));
        exchange(p, addends, selected.iter().map(|item| &item.slot)).await
    }

    /// An evaluator's addends of component 2, and its components in common with the dealer.
    fn addends<E: Engine>(
        &self,
        p: &Port<'_, E>,
        u: &MaskShare<E::Tensor>,
        products: &[E::Tensor],
        v: &E::Tensor,
        selected: &[Selected<E::Tensor>],
    ) -> Result<Vec<[E::Tensor; 2]>> {
        let n = self.n;
        let mut products = products.iter();
        let mut addends = Vec::with_capacity(selected.len());
        for (Selected { factor, opposite, slot }, &[d, y0, y1]) in
            selected.iter().zip(&self.samples)
        {
            let y = p.words_of(p.own([y1, y0]));
            let params = [p.if_left(), u64::from(*opposite)];
            let places = [None, slot.shared(p.role())];
            addends.push(match factor {
                Factor::Word(x) => {
                    let d = products.next().map_or_else(|| p.words_of(d), whole);
                    let sources =
                        [whole(v), u.words(p), d, whole(p.joint(x)), whole(p.shared(x)), y];
                    p.words_into(&SelectEvaluator, n, sources, &params, places)?
                }
                Factor::One => {
                    p.words_into(&ArithEvaluator, n, [whole(v), u.words(p), y], &params, places)?
                }
            });
        }
        Ok(addends)
    }
}

// -- what is owed --------------------------------------------------------------------------------

/// A result of a selection, as its relations need it.
#[derive(Clone)]
pub(crate) struct Stated<T> {
    pub factor: Factor<T>,
    pub opposite: bool,
}

impl<T: EngineTensor> Selected<T> {
    /// Without its place.
    pub fn stated(&self) -> Stated<T> {
        Stated { factor: self.factor.clone(), opposite: self.opposite }
    }
}

impl<T: EngineTensor> MaskWords<T> {
    /// The relations that the dealer owes for `u` as words: they are the plane `u`. Gives the shares. Those that are used again were
    /// proven before.
    pub fn relations<E: Engine<Tensor = T>>(
        &self,
        t: &mut Transcript<'_, E>,
        n: usize,
        u: &Bits,
    ) -> Result<Shared<Words>> {
        let left = match self {
            Self::Dealt(left) => *left,
            Self::Reused(share) => {
                let [left, right] = match (share, t.roles().role) {
                    (WordShare::Both([left, right]), _) => [Some(left), Some(right)],
                    (WordShare::Evaluator(left), Role::Left) => [Some(left), None],
                    (WordShare::Evaluator(right), _) => [None, Some(right)],
                    (WordShare::Dealer, _) => [None, None],
                };
                let holders =
                    [Role::Left, Role::Right].map(|role| Holders::both(Role::Dealer, role));
                return Ok([t.held(holders[0], n, left)?, t.held(holders[1], n, right)?]);
            }
        };
        let k = [t.sample(left), t.dealt_right(1, n)?];
        bit_as_word(t, n, &k.each_ref().map(|k: &Words| k.planes(0, 64)), u)?;
        Ok(k)
    }
}

impl Selection {
    /// The relations that all owe for results by a bit `u + v` of which `k` are shares of `u` as words: the dealer its products
    /// `d_left + d_right = (k_left + k_right) a`, the evaluators their addends. Gives the components of each result.
    pub fn relations<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        k: &Shared<Words>,
        v: &Bits,
        selected: &[Stated<E::Tensor>],
    ) -> Result<Vec<[Words; 3]>> {
        let n = self.n;
        let mut results = Vec::with_capacity(selected.len());
        for (Stated { factor, opposite }, &[d, y0, y1]) in selected.iter().zip(&self.samples) {
            let v = v.words(n).map(|v| v ^ u64::from(*opposite));
            let sign = v.map(|v| 1u64.wrapping_sub(2 * v));
            // The evaluators' addends: of the product with the dealer's parts, and what left adds alone.
            let (addends, joint) = match factor {
                Factor::Word(x) => {
                    let [x0, x1, b] = t.components(x)?;
                    let d = [t.dealt_left(1, n)?, t.sample(d)];
                    let product = (&k[0] + &k[1]) * (&x0 + &x1);
                    t.words(Role::Dealer, 64, &(product - &d[0] - &d[1]))?;
                    let signed = &sign * &b;
                    let addend = |side: usize, a: &Words| {
                        (a - d[side].scaled(2)) * &v + &d[side] + &k[side] * &signed
                    };
                    ([addend(0, &x1), addend(1, &x0)], &v * &b)
                }
                Factor::One => ([&k[0] * &sign, &k[1] * &sign], v),
            };
            let [left, right] = addends;
            let sent = t.exchanged(1, n)?;
            let [y0, y1] = [y0, y1].map(|y| t.sample(y));
            t.words(Role::Left, 64, &(left + joint - &y1 - &sent[0]))?;
            t.words(Role::Right, 64, &(right - &y0 - &sent[1]))?;
            let [left, right] = sent;
            results.push([y0, y1, left + right]);
        }
        Ok(results)
    }
}
