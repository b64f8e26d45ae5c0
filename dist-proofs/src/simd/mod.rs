//! Vectors of words, and carry-less products of them: kernels are written once and run on the instructions of this CPU.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

/// Vectors of `N` words. A value is proof that the CPU has the instructions, so values come from [`run`] alone.
pub(crate) trait Lanes: Copy {
    /// `N` words.
    type Word: Copy;
    /// Words of a vector, an even number.
    const N: usize;

    fn splat(self, word: u64) -> Self::Word;
    /// The first `N` words of a slice, which has so many.
    fn load(self, from: &[u64]) -> Self::Word;
    fn store(self, word: Self::Word, to: &mut [u64]);
    fn and(self, a: Self::Word, b: Self::Word) -> Self::Word;
    fn xor(self, a: Self::Word, b: Self::Word) -> Self::Word;
    fn add(self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// All words shifted to the left by `count`, below 64.
    fn shl(self, a: Self::Word, count: u64) -> Self::Word;
    /// All words shifted to the right by `count`, below 64.
    fn shr(self, a: Self::Word, count: u64) -> Self::Word;
    /// Carry-less products of 128 bits: of the even words, and of the odd ones.
    fn products(self, a: Self::Word, b: Self::Word) -> [Self::Word; 2];
    /// Products of 128 bits, reduced to elements of GF(2^64) in the order of their factors.
    fn reduce(self, products: [Self::Word; 2]) -> Self::Word;

    /// The sum of the numbers of 128 bits in a vector, reduced.
    #[inline(always)]
    fn sum(self, wide: Self::Word) -> u64 {
        let mut words = [0; MAX_LANES];
        self.store(wide, &mut words);
        let mut sum = [0; 2];
        for pair in words[..Self::N].chunks_exact(2) {
            sum[0] ^= pair[0];
            sum[1] ^= pair[1];
        }
        reduce(sum)
    }

    /// As `load`, with zeros for words past the end.
    #[inline(always)]
    fn load_some(self, from: &[u64]) -> Self::Word {
        if from.len() >= Self::N {
            return self.load(from);
        }
        let mut words = [0; MAX_LANES];
        words[..from.len()].copy_from_slice(from);
        self.load(&words)
    }

    /// As `store`, of the words for which there is room.
    #[inline(always)]
    fn store_some(self, word: Self::Word, to: &mut [u64]) {
        if to.len() >= Self::N {
            return self.store(word, to);
        }
        let mut words = [0; MAX_LANES];
        self.store(word, &mut words);
        let len = to.len();
        to.copy_from_slice(&words[..len]);
    }
}

/// The most words of a vector.
pub(crate) const MAX_LANES: usize = 8;

/// A number of 128 bits modulo `x^64 + x^4 + x^3 + x + 1`, from its halves.
#[inline(always)]
pub(crate) fn reduce([low, high]: [u64; 2]) -> u64 {
    // What the lower terms of the modulus shift beyond 64 bits is below 2^4, and is folded once more.
    let over = high >> 63 ^ high >> 61 ^ high >> 60;
    let high = high ^ over;
    low ^ high ^ high << 1 ^ high << 3 ^ high << 4
}

/// A function over vectors. It and what it calls must be `#[inline(always)]`, without closures in loops, to be compiled
/// for the instructions.
pub(crate) trait Kernel {
    type Output;
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Instructions for which kernels are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(x86::Avx512),
}

impl Isa {
    /// All that this CPU has, the quickest last.
    pub fn supported() -> Vec<Self> {
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(x86::Avx2::detect().map(Self::Avx2));
            all.extend(x86::Avx512::detect().map(Self::Avx512));
        }
        all
    }

    /// The quickest.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| *Self::supported().last().expect("one is always there"))
    }

    /// Runs a kernel on these instructions.
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Portable => kernel.run(portable::Portable),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(lanes) => x86::run_avx2(lanes, kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(lanes) => x86::run_avx512(lanes, kernel),
        }
    }
}

/// Runs a kernel on this CPU's quickest instructions.
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    Isa::best().run(kernel)
}
