//! Values as the three roles know them: what a relation is written in.
//!
//! A [`Value`] is a polynomial in *parts*, each of which two roles know, or all three. A product of two parts that two
//! roles know in common is a part again, which these compute alone. Of two parts that only one role knows in common it
//! stays a product: that role can prove it, and the others are its verifiers. So a formula of the protocol's
//! description, over shares, becomes what a prover owes: `(k0 + k1) * (x0 + x1)` has two products and two parts.
//!
//! All roles compute the same formulas; parts that a role does not know stay empty there.

use std::{
    marker::PhantomData,
    ops::{Add, Mul, Range, Sub},
    sync::{Arc, OnceLock},
};

use ring_arith::{CpuEngine, Engine, EngineTensor, Shape, Tensor};

use crate::runtime::roles::Role;

/// A ring in which values are computed, word by word.
pub(crate) trait Ring {
    /// `1` in every place of a word.
    const ONE: u64;
    fn add(x: u64, y: u64) -> u64;
    fn mul(x: u64, y: u64) -> u64;
    fn negate(x: u64) -> u64;
}

/// Words modulo `2^64`.
#[derive(Debug)]
pub(crate) struct Integers;

/// 64 bits in a word.
#[derive(Debug)]
pub(crate) struct Booleans;

impl Ring for Integers {
    const ONE: u64 = 1;

    fn add(x: u64, y: u64) -> u64 {
        x.wrapping_add(y)
    }

    fn mul(x: u64, y: u64) -> u64 {
        x.wrapping_mul(y)
    }

    fn negate(x: u64) -> u64 {
        x.wrapping_neg()
    }
}

impl Ring for Booleans {
    const ONE: u64 = u64::MAX;

    fn add(x: u64, y: u64) -> u64 {
        x ^ y
    }

    fn mul(x: u64, y: u64) -> u64 {
        x & y
    }

    fn negate(x: u64) -> u64 {
        x
    }
}

/// A set of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holders(u8);

impl Holders {
    pub const ALL: Self = Self(7);

    /// Two roles.
    pub const fn both(one: Role, other: Role) -> Self {
        Self(1 << one as u8 | 1 << other as u8)
    }

    pub fn contains(self, role: Role) -> bool {
        self.0 >> role as u8 & 1 == 1
    }

    fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn len(self) -> u32 {
        self.0.count_ones()
    }
}

/// Words of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spoken {
    /// The message's number.
    pub message: usize,
    /// All of its words if `None`; else by plane of the part, of `len` words each, the message's plane.
    pub planes: Option<(usize, Vec<Option<usize>>)>,
}

impl Spoken {
    /// The same of a part that is repeated until it has `len` words.
    fn repeated(&self, len: usize) -> Self {
        let planes = self
            .planes
            .as_ref()
            .map(|(cols, of)| (*cols, of.iter().cycle().take(len / cols).copied().collect()));
        Self { message: self.message, planes }
    }
}

/// A tensor that some of the roles know, as one role has it.
#[derive(Clone)]
pub(crate) struct Part(Arc<Known>);

struct Known {
    holders: Holders,
    len: usize,
    /// `None` at a role that is none of the holders.
    words: Option<Tensor>,
    spoken: Vec<Spoken>,
}

/// A polynomial in parts, of degree two.
pub(crate) struct Value<R> {
    /// Products of two parts that one role alone knows both of.
    pub products: Vec<[Part; 2]>,
    /// Parts, each with other holders.
    pub parts: Vec<Part>,
    ring: PhantomData<R>,
}

pub(crate) type Words = Value<Integers>;
pub(crate) type Bits = Value<Booleans>;

impl<R> Clone for Value<R> {
    fn clone(&self) -> Self {
        Self { products: self.products.clone(), parts: self.parts.clone(), ring: PhantomData }
    }
}

impl Part {
    pub fn new(holders: Holders, len: usize, words: Option<Vec<u64>>, spoken: Vec<Spoken>) -> Self {
        Self::of_tensor(holders, len, words.map(Tensor::vector), spoken)
    }

    /// A part whose words are those of a tensor of any shape.
    pub fn of_tensor(
        holders: Holders,
        len: usize,
        words: Option<Tensor>,
        spoken: Vec<Spoken>,
    ) -> Self {
        Self(Arc::new(Known { holders, len, words, spoken }))
    }

    pub fn holders(&self) -> Holders {
        self.0.holders
    }

    pub fn words(&self) -> Option<&Tensor> {
        self.0.words.as_ref()
    }

    pub fn len(&self) -> usize {
        self.0.len
    }

    pub fn spoken(&self) -> &[Spoken] {
        &self.0.spoken
    }

    /// The messages, each as a whole: words become planes, or planes words.
    fn mentioned(&self) -> Vec<Spoken> {
        self.spoken().iter().map(|of| Spoken { message: of.message, planes: None }).collect()
    }

    /// The place in memory: equal for clones alone.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    fn map(&self, len: usize, step: impl FnOnce(&[u64]) -> Vec<u64>) -> Self {
        let words = self.words().map(|words| step(words.words()));
        Self::new(self.holders(), len, words, self.spoken().to_vec())
    }

    /// Combines two word by word. The shorter one serves all planes of the longer one.
    fn zip(&self, other: &Self, holders: Holders, step: impl Fn(u64, u64) -> u64) -> Self {
        let len = self.len().max(other.len());
        let words = self.words().zip(other.words()).map(|(x, y)| zip(x.words(), y.words(), step));
        let mut spoken: Vec<Spoken> = Vec::new();
        for of in self.spoken().iter().chain(other.spoken()).map(|of| of.repeated(len)) {
            if !spoken.contains(&of) {
                spoken.push(of);
            }
        }
        Self::new(holders, len, words, spoken)
    }

    /// The words repeated until there are `len`.
    pub fn repeated(&self, len: usize) -> Self {
        if self.len() == len {
            return self.clone();
        }
        let words = self.words().map(|words| words.words().repeat(len / self.len().max(1)));
        let spoken = self.spoken().iter().map(|of| of.repeated(len)).collect();
        Self::new(self.holders(), len, words, spoken)
    }

    /// Planes of `cols` words each, in another order.
    fn picked(&self, cols: usize, planes: &[usize]) -> Self {
        let words = self.words().map(|words| {
            let picked: Vec<&[u64]> =
                planes.iter().map(|&at| &words.words()[span(at, cols)]).collect();
            picked.concat()
        });
        let of = |spoken: &Spoken| match &spoken.planes {
            Some((len, of)) if *len == cols => {
                let picked = planes.iter().map(|&at| of[at]).collect();
                Spoken { message: spoken.message, planes: Some((cols, picked)) }
            }
            _ => spoken.clone(),
        };
        let spoken = self.spoken().iter().map(of).collect();
        Self::new(self.holders(), planes.len() * cols, words, spoken)
    }
}

/// Combines two vectors word by word, in either order. The shorter one serves all planes of the longer one.
fn zip(x: &[u64], y: &[u64], step: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    let (long, short) = if x.len() < y.len() { (y, x) } else { (x, y) };
    let mut words = Vec::with_capacity(long.len());
    for plane in long.chunks(short.len().max(1)) {
        words.extend(plane.iter().zip(short).map(|(&x, &y)| step(x, y)));
    }
    words
}

fn span(at: usize, len: usize) -> Range<usize> {
    at * len..(at + 1) * len
}

impl<R: Ring> Value<R> {
    pub fn of(part: Part) -> Self {
        Self { products: Vec::new(), parts: vec![part], ring: PhantomData }
    }

    /// Nothing: the sum of no parts.
    pub fn zero() -> Self {
        Self { products: Vec::new(), parts: Vec::new(), ring: PhantomData }
    }

    /// A word that all know, everywhere.
    pub fn constant(len: usize, word: u64) -> Self {
        Self::of(Part::new(Holders::ALL, len, Some(vec![word; len]), Vec::new()))
    }

    /// One in every place.
    pub fn one(len: usize) -> Self {
        Self::constant(len, R::ONE)
    }

    /// The only part.
    pub fn part(&self) -> &Part {
        match (&self.parts[..], &self.products[..]) {
            ([part], []) => part,
            _ => panic!("a value of {} parts is not one part", self.parts.len()),
        }
    }

    /// Applies a function to the only part's words.
    pub fn map(&self, step: impl Fn(u64) -> u64) -> Self {
        let part = self.part();
        let words = |words: &[u64]| words.iter().map(|&word| step(word)).collect();
        Self::of(part.map(part.len(), words))
    }

    /// As [`Value::map`], given the words' places.
    pub fn map_words(&self, step: impl Fn(usize, u64) -> u64) -> Self {
        let part = self.part();
        let words =
            |words: &[u64]| words.iter().enumerate().map(|(at, &word)| step(at, word)).collect();
        Self::of(part.map(part.len(), words))
    }

    /// Applies a linear function to the first factors and to the parts.
    fn linear(&self, step: impl Fn(&Part) -> Part) -> Self {
        Self {
            products: self.products.iter().map(|[x, y]| [step(x), y.clone()]).collect(),
            parts: self.parts.iter().map(step).collect(),
            ring: PhantomData,
        }
    }

    fn negated(&self) -> Self {
        self.scaled(R::negate(R::ONE))
    }

    /// Times a public word.
    pub fn scaled(&self, by: u64) -> Self {
        if by == R::ONE {
            return self.clone();
        }
        let times = |words: &[u64]| words.iter().map(|&word| R::mul(word, by)).collect();
        self.linear(|part| part.map(part.len(), times))
    }

    /// Planes of `cols` words each, in another order.
    pub fn picked(&self, cols: usize, planes: impl IntoIterator<Item = usize>) -> Self {
        let planes: Vec<_> = planes.into_iter().collect();
        Self {
            products: self
                .products
                .iter()
                .map(|pair| pair.each_ref().map(|part| part.picked(cols, &planes)))
                .collect(),
            parts: self.parts.iter().map(|part| part.picked(cols, &planes)).collect(),
            ring: PhantomData,
        }
    }

    /// Planes of `cols` words each that belong to values of one part with the same holders.
    pub fn stacked(cols: usize, values: &[&Self]) -> Self {
        let parts: Vec<_> = values.iter().map(|value| value.part()).collect();
        let holders = parts[0].holders();
        assert!(parts.iter().all(|part| part.holders() == holders), "parts of different holders");
        let len = parts.iter().map(|part| part.len()).sum();
        let mut spoken = Vec::new();
        let mut before = 0;
        for part in &parts {
            let end = before + part.len() / cols;
            for of in part.spoken() {
                let planes = of.planes.as_ref().filter(|(len, _)| *len == cols).map(|(_, of)| {
                    let mut all = vec![None; len / cols];
                    all[before..end].clone_from_slice(of);
                    (cols, all)
                });
                spoken.push(Spoken { message: of.message, planes });
            }
            before = end;
        }
        let words = parts.iter().map(|part| part.words()).collect::<Option<Vec<_>>>();
        let words = words.map(|all| {
            let planes: Vec<&[u64]> = all.iter().map(|words| words.words()).collect();
            planes.concat()
        });
        Self::of(Part::new(holders, len, words, spoken))
    }

    fn add_part(&mut self, part: &Part) {
        // What all know joins any other part.
        let joins = |own: &&mut Part| {
            let common = own.holders().common(part.holders());
            common == own.holders() || common == part.holders()
        };
        match self.parts.iter_mut().find(joins) {
            Some(own) => *own = own.zip(part, own.holders().common(part.holders()), R::add),
            None => self.parts.push(part.clone()),
        }
    }

    fn add_product(&mut self, x: &Part, y: &Part) {
        let common = x.holders().common(y.holders());
        assert!(common.len() > 0, "nobody knows both factors of a product");
        if common.len() > 1 {
            self.add_part(&x.zip(y, common, R::mul));
        } else {
            self.products.push([x.clone(), y.clone()]);
        }
    }
}

impl<R: Ring> Add for &Value<R> {
    type Output = Value<R>;

    fn add(self, other: Self) -> Value<R> {
        let mut sum = self.clone();
        sum.products.extend(other.products.iter().cloned());
        other.parts.iter().for_each(|part| sum.add_part(part));
        sum
    }
}

impl<R: Ring> Sub for &Value<R> {
    type Output = Value<R>;

    #[allow(clippy::suspicious_arithmetic_impl)] // of bits, the same as adding
    fn sub(self, other: Self) -> Value<R> {
        self + &other.negated()
    }
}

impl<R: Ring> Mul for &Value<R> {
    type Output = Value<R>;

    /// # Panics
    /// If a role would have to multiply three parts.
    fn mul(self, other: Self) -> Value<R> {
        let mut product = Value::zero();
        for x in &self.parts {
            other.parts.iter().for_each(|y| product.add_product(x, y));
        }
        for ([x, y], parts) in self
            .products
            .iter()
            .map(|pair| (pair, &other.parts))
            .chain(other.products.iter().map(|pair| (pair, &self.parts)))
        {
            for part in parts {
                let common = x.holders().common(part.holders());
                assert!(common.len() > 1, "a product of three parts");
                product.products.push([x.zip(part, common, R::mul), y.clone()]);
            }
        }
        product
    }
}

/// The same for values that are not used again.
macro_rules! owned {
    ($($trait:ident $method:ident),*) => {$(
        impl<R: Ring> $trait for Value<R> {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                (&self).$method(&other)
            }
        }
        impl<R: Ring> $trait<&Self> for Value<R> {
            type Output = Self;

            fn $method(self, other: &Self) -> Self {
                (&self).$method(other)
            }
        }
        impl<R: Ring> $trait<Value<R>> for &Value<R> {
            type Output = Value<R>;

            fn $method(self, other: Value<R>) -> Value<R> {
                self.$method(&other)
            }
        }
    )*};
}

owned!(Add add, Sub sub, Mul mul);

impl<R: Ring> std::iter::Sum for Value<R> {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::zero(), |sum, value| sum + value)
    }
}

/// The engine of statements, which are in the host's memory.
fn engine() -> &'static CpuEngine {
    static ENGINE: OnceLock<CpuEngine> = OnceLock::new();
    ENGINE.get_or_init(|| CpuEngine::new(1))
}

impl Words {
    /// Times `2^by`.
    pub fn shl(&self, by: u32) -> Self {
        self.scaled(1 << by)
    }

    /// Bits `low..low + width` of the only part as planes.
    pub fn planes(&self, low: u32, width: u32) -> Bits {
        let part = self.part();
        let len = width as usize * part.len().div_ceil(64);
        let planes = part.words().map(|words| {
            let planes = engine().to_planes(words, low, width);
            planes.expect("a word has as many bits").words().to_vec()
        });
        Bits::of(Part::new(part.holders(), len, planes, part.mentioned()))
    }
}

impl Bits {
    /// The words of `n` elements whose lowest bits are these planes.
    pub fn words(&self, n: usize) -> Words {
        let part = self.part();
        if n == 0 {
            return Words::constant(0, 0);
        }
        let words = part.words().map(|planes| {
            let cols = n.div_ceil(64);
            let shape = Shape::new([planes.len() / cols, cols]);
            let words = shape.and_then(|shape| {
                let planes = Tensor::new(shape, planes.words().to_vec())?;
                engine().from_planes(&planes, 0, &Shape::new([n])?)
            });
            words.expect("planes of as many elements").words().to_vec()
        });
        Words::of(Part::new(part.holders(), n, words, part.mentioned()))
    }
}
