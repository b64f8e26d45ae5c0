//! The loop over the words of a transform along one axis, with the vectors of each instruction set.

use super::algorithm::{Algorithm, five, four, one, three, two};
use crate::cpu::launch::lanes::Lanes;
use crate::cpu::launch::portable;
#[cfg(target_arch = "x86_64")]
use crate::cpu::launch::{avx2, avx512};
use crate::cpu::{Isa, Kind};

/// Words handled together: those of the longest vector.
pub(super) const LANES: usize = 8;

/// Which transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A group's `2r - 1` rows of inputs become `m`.
    Inputs,
    /// A group's `r` rows of weights become `m`.
    Weights,
    /// A group's `m` rows of products become `r` of outputs.
    Outputs,
}

/// The places of a transform's rows: row `i` of group `g` starts at word `g * group + i * row`. After
/// every `width` words, a power of two, a row continues `panel` words after the start of those.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    /// Words from one group to the next.
    pub group: usize,
    /// Words from one row to the next.
    pub row: usize,
    /// Neighbouring words of a row.
    pub width: usize,
    /// From such words to the next.
    pub panel: usize,
}

impl Rows {
    #[inline(always)]
    fn place(&self, group: usize, word: usize) -> usize {
        let panel = word >> self.width.trailing_zeros();
        group * self.group + panel * self.panel + (word & (self.width - 1))
    }

    /// Words up to the last of `rows` rows of each group.
    fn end(&self, extent: &Extent, rows: usize) -> usize {
        let last = extent.len.next_multiple_of(LANES.min(self.width)) - 1;
        // A row may begin its last panel before that of another ends.
        let word =
            self.place(0, last).max(self.place(0, last & !(self.width - 1)) + self.width - 1);
        (extent.groups - 1) * self.group + (rows - 1) * self.row + word + 1
    }
}

/// The extent of a transform: `groups` times as many rows as the algorithm takes, of `len` words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Number of groups.
    pub groups: usize,
    /// Words of each row; if vectors of words are contiguous, the whole last vector is accessed.
    pub len: usize,
}

/// Transforms rows of words.
pub(super) fn run(
    isa: Isa,
    step: Step,
    extent: Extent,
    from: &[u64],
    at: Rows,
    to: &mut [u64],
    to_at: Rows,
) {
    if extent.groups == 0 || extent.len == 0 {
        return;
    }
    let (taps, inputs, products) =
        (extent.algorithm.taps(), extent.algorithm.inputs(), extent.algorithm.products());
    let [read, written] = match step {
        Step::Inputs => [inputs, products],
        Step::Weights => [taps, products],
        Step::Outputs => [products, taps],
    };
    assert!(at.width.is_power_of_two() && at.width >= LANES && to_at.width.is_power_of_two());
    assert!(at.end(&extent, read) <= from.len() && to_at.end(&extent, written) <= to.len());
    let walk = Walk { extent, from: from.as_ptr(), at, to: to.as_mut_ptr(), to_at };
    match isa.kind() {
        // SAFETY: an `Isa` of this kind is made only after detection; all words that a walk reaches
        // were just checked.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 | Kind::Amx => unsafe { run_avx512(step, &walk) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => unsafe { run_avx2(step, &walk) },
        // SAFETY: as above.
        _ => unsafe { walk.run::<portable::Vector>(step) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn run_avx512(step: Step, walk: &Walk) {
    // SAFETY: passed on; everything down to the intrinsics is inlined into this function.
    unsafe { walk.run::<avx512::Vector>(step) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn run_avx2(step: Step, walk: &Walk) {
    // SAFETY: as above.
    unsafe { walk.run::<avx2::Vector>(step) }
}

/// A transform's words.
struct Walk {
    extent: Extent,
    from: *const u64,
    at: Rows,
    to: *mut u64,
    to_at: Rows,
}

impl Walk {
    /// Runs with one kind of vector.
    ///
    /// # Safety
    /// The instruction set is that of `W`, and the walk reaches valid words.
    #[inline(always)]
    unsafe fn run<W: Lanes>(&self, step: Step) {
        let taps = self.extent.algorithm.taps();
        // SAFETY: passed on.
        unsafe {
            match (step, taps) {
                (Step::Inputs, 2) => self.apply::<W, 3, 3>(two::inputs),
                (Step::Inputs, 3) => self.apply::<W, 5, 6>(three::inputs),
                (Step::Inputs, 4) => self.apply::<W, 7, 9>(four::inputs),
                (Step::Inputs, 5) => self.apply::<W, 9, 13>(five::inputs),
                (Step::Weights, 2) => self.apply::<W, 2, 3>(two::weights),
                (Step::Weights, 3) => self.apply::<W, 3, 6>(three::weights),
                (Step::Weights, 4) => self.apply::<W, 4, 9>(four::weights),
                (Step::Weights, 5) => self.apply::<W, 5, 13>(five::weights),
                (Step::Outputs, 2) => self.apply::<W, 3, 2>(two::outputs),
                (Step::Outputs, 3) => self.apply::<W, 6, 3>(three::outputs),
                (Step::Outputs, 4) => self.apply::<W, 9, 4>(four::outputs),
                (Step::Outputs, 5) => self.apply::<W, 13, 5>(five::outputs),
                _ => self.apply::<W, 1, 1>(one::same),
            }
        }
    }

    /// Applies one transform of `I` to `O` rows.
    ///
    /// # Safety
    /// As for [`Walk::run`]; the algorithm's transform has as many rows.
    #[inline(always)]
    unsafe fn apply<W: Lanes, const I: usize, const O: usize>(
        &self,
        transform: impl Fn([W; I]) -> [W; O],
    ) {
        for g in 0..self.extent.groups {
            for l in (0..self.extent.len).step_by(W::COUNT) {
                // SAFETY: the first word of a row that the walk reaches.
                let from = unsafe { self.from.add(self.at.place(g, l)) };
                let mut words = [W::constant(0); I];
                for i in 0..I {
                    // SAFETY: rows that are read have whole vectors.
                    words[i] = unsafe { W::load(from.add(i * self.at.row)) };
                }
                let words = transform(words);
                // SAFETY: as above.
                let to = unsafe { self.to.add(self.to_at.place(g, l)) };
                for o in 0..O {
                    // SAFETY: as above.
                    unsafe {
                        self.store(words[o], to.add(o * self.to_at.row), self.extent.len - l)
                    };
                }
            }
        }
    }

    /// Stores contiguous words; in narrower panels only the words that exist.
    ///
    /// # Safety
    /// As for [`Walk::run`].
    #[inline(always)]
    unsafe fn store<W: Lanes>(&self, words: W, to: *mut u64, left: usize) {
        let width = self.to_at.width;
        if width >= W::COUNT {
            // SAFETY: the caller's promise.
            return unsafe { words.store(to) };
        }
        let mut lanes = [0; LANES];
        // SAFETY: no vector is longer.
        unsafe { words.store(lanes.as_mut_ptr()) };
        for (i, piece) in lanes[..W::COUNT.min(left)].chunks(width).enumerate() {
            for (j, word) in piece.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { to.add(i * self.to_at.panel + j).write(*word) };
            }
        }
    }
}
