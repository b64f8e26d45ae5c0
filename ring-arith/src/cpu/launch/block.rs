//! The loop over the words of one block.

use super::lanes::{Lanes, MOST};
use crate::{Isa, Kind, WordKernel};

/// A piece of a launch's index space and the places of its words.
///
/// Word `(r, c)` of an input is at `start + r * pitch + c * step`, of an output at
/// `start + r * pitch + c`.
pub(super) struct Block<'a> {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) inputs: &'a [Input],
    pub(super) outputs: &'a [Output],
    /// True if results are stored past the cache; then [`finish`] must be called afterwards.
    pub(super) past_cache: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Input {
    pub(super) start: *const u64,
    pub(super) pitch: usize,
    /// 1 along a row, 0 if one word serves a whole row.
    pub(super) step: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) start: *mut u64,
    pub(super) pitch: usize,
}

impl Block<'_> {
    /// Runs a kernel over the block with an instruction set.
    ///
    /// # Safety
    /// Every address that the block describes must be valid, and no other thread may use the
    /// outputs. There must be `I` inputs and `O` outputs.
    pub(super) unsafe fn dispatch<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        isa: Isa,
        kernel: &K,
        params: &[u64],
    ) {
        match isa.kind() {
            // SAFETY: an `Isa` of this kind is made only after detection; the rest as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 | Kind::Amx => unsafe { super::avx512::run(kernel, params, self) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { super::avx2::run(kernel, params, self) },
            // SAFETY: as above.
            _ => unsafe { super::portable::run(kernel, params, self) },
        }
    }

    /// The loop itself, inlined into a function of the vector's instruction set.
    ///
    /// # Safety
    /// As for [`Block::dispatch`], and the instruction set must be that of `W`.
    #[inline(always)]
    pub(super) unsafe fn run<W: Lanes, K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        params: &[u64],
    ) {
        // SAFETY: the block has as many as the kernel.
        let (inputs, outputs) =
            unsafe { (exactly::<_, I>(self.inputs), exactly::<_, O>(self.outputs)) };
        let mut few = [W::constant(0); FEW];
        let many: Vec<W>;
        let params = if params.len() <= FEW {
            for i in 0..params.len() {
                few[i] = W::constant(params[i]);
            }
            &few[..params.len()]
        } else {
            many = params.iter().map(|&word| W::constant(word)).collect();
            &many
        };
        // Words that serve a whole row are loaded from copies of themselves.
        let mut copies = [[0; STRIP]; I];
        let copied = self.cols.next_multiple_of(MOST).min(STRIP);
        for r in 0..self.rows {
            let mut from = [std::ptr::null(); I];
            let mut to = [std::ptr::null_mut(); O];
            for i in 0..I {
                let input = inputs[i];
                // SAFETY: the block describes valid addresses.
                from[i] = unsafe { input.start.add(r * input.pitch) };
                if input.step == 0 {
                    // SAFETY: as above.
                    copies[i][..copied].fill(unsafe { from[i].read() });
                    from[i] = copies[i].as_ptr();
                }
            }
            for o in 0..O {
                let output = outputs[o];
                // SAFETY: the block describes valid addresses.
                to[o] = unsafe { output.start.add(r * output.pitch) };
            }
            // SAFETY: rows are `cols` words long, copies as long as a strip.
            unsafe { self.row::<W, K, I, O>(kernel, params, inputs.map(|i| i.step), from, to) }
        }
    }

    /// One row.
    ///
    /// # Safety
    /// As for [`Block::run`]; the pointers are the starts of a row.
    #[inline(always)]
    unsafe fn row<W: Lanes, K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        params: &[W],
        steps: [usize; I],
        mut from: [*const u64; I],
        mut to: [*mut u64; O],
    ) {
        let aligned = |to: &*mut u64| to.addr().is_multiple_of(8 * MOST);
        let past_cache = self.past_cache && to.iter().all(aligned);
        let mut inputs = [W::constant(0); I];
        let mut left = self.cols;
        while left > 0 {
            // Inside a strip all addresses move along together, those of copies too.
            let strip = left.min(STRIP);
            let mut c = 0;
            while c + W::COUNT <= strip {
                for i in 0..I {
                    // SAFETY: `COUNT` words from column `c` on are inside the row, or are copies.
                    inputs[i] = unsafe { W::load(from[i].add(c)) };
                }
                let words = kernel.step(inputs, params);
                for o in 0..O {
                    // SAFETY: as above; the row is aligned if the cache is passed by.
                    unsafe {
                        let to = to[o].add(c);
                        if past_cache { words[o].store_past_cache(to) } else { words[o].store(to) }
                    }
                }
                c += W::COUNT;
            }
            let rest = strip - c;
            if rest > 0 {
                for i in 0..I {
                    // SAFETY: `rest` words from column `c` on are inside the row, or are copies.
                    inputs[i] = unsafe { W::load_part(from[i].add(c), rest) };
                }
                let words = kernel.step(inputs, params);
                for o in 0..O {
                    // SAFETY: as above.
                    unsafe { words[o].store_part(to[o].add(c), rest) }
                }
            }
            for i in 0..I {
                from[i] = from[i].wrapping_add(strip * steps[i]);
            }
            for o in 0..O {
                to[o] = to[o].wrapping_add(strip);
            }
            left -= strip;
        }
    }
}

/// A slice of a known length.
///
/// # Safety
/// It must have that length.
#[inline(always)]
unsafe fn exactly<T, const N: usize>(slice: &[T]) -> &[T; N] {
    debug_assert_eq!(slice.len(), N);
    // SAFETY: as above.
    unsafe { &*slice.as_ptr().cast() }
}

/// Makes words that were stored past the cache visible to other threads.
pub(super) fn finish(past_cache: bool) {
    #[cfg(target_arch = "x86_64")]
    if past_cache {
        // SAFETY: every x86-64 CPU has the instruction.
        unsafe { std::arch::x86_64::_mm_sfence() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = past_cache;
}

/// Words of a strip of a row, a multiple of every vector's.
const STRIP: usize = 32;

/// Parameters that need no allocation.
const FEW: usize = 16;
