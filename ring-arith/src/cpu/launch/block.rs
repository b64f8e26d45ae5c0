//! The loop over the words of one block.

use super::lanes::{Lanes, MOST};
use crate::{CpuEngine, Kind, WordKernel};

/// A piece of a launch's index space and where its words lie.
///
/// Word `(r, c)` of an input is at `start + r * pitch + c * step`, of an output at
/// `start + r * pitch + c`.
pub(super) struct Block<const I: usize, const O: usize> {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) inputs: [Input; I],
    pub(super) outputs: [Output; O],
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

impl<const I: usize, const O: usize> Block<I, O> {
    /// Runs a kernel over the block with the engine's instruction set.
    ///
    /// # Safety
    /// Every address that the block describes must be valid, and no other thread may use the
    /// outputs.
    pub(super) unsafe fn dispatch<K: WordKernel<I, O>>(
        &self,
        engine: &CpuEngine,
        kernel: &K,
        params: &[u64],
    ) {
        match engine.isa().kind() {
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
    pub(super) unsafe fn run<W: Lanes, K: WordKernel<I, O>>(&self, kernel: &K, params: &[u64]) {
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
        let mut copies = [[0; MOST]; I];
        for r in 0..self.rows {
            let mut from = [std::ptr::null(); I];
            let mut to = [std::ptr::null_mut(); O];
            for i in 0..I {
                let input = self.inputs[i];
                // SAFETY: the block describes valid addresses.
                from[i] = unsafe { input.start.add(r * input.pitch) };
                if input.step == 0 {
                    // SAFETY: as above.
                    copies[i] = [unsafe { from[i].read() }; MOST];
                    from[i] = copies[i].as_ptr();
                }
            }
            for o in 0..O {
                let output = self.outputs[o];
                // SAFETY: the block describes valid addresses.
                to[o] = unsafe { output.start.add(r * output.pitch) };
            }
            // SAFETY: rows are `cols` words long, copies as long as any vector.
            unsafe { self.row::<W, K>(kernel, params, from, to) }
        }
    }

    /// One row.
    ///
    /// # Safety
    /// As for [`Block::run`]; the pointers are the starts of a row.
    #[inline(always)]
    unsafe fn row<W: Lanes, K: WordKernel<I, O>>(
        &self,
        kernel: &K,
        params: &[W],
        from: [*const u64; I],
        to: [*mut u64; O],
    ) {
        let mut inputs = [W::constant(0); I];
        let mut c = 0;
        while c + W::COUNT <= self.cols {
            for i in 0..I {
                // SAFETY: `COUNT` words from column `c` on are inside the row, or are copies.
                inputs[i] = unsafe { W::load(from[i].add(c * self.inputs[i].step)) };
            }
            let words = kernel.step(inputs, params);
            for o in 0..O {
                // SAFETY: as above.
                unsafe { words[o].store(to[o].add(c)) }
            }
            c += W::COUNT;
        }
        let left = self.cols - c;
        if left > 0 {
            for i in 0..I {
                // SAFETY: `left` words from column `c` on are inside the row, or are copies.
                inputs[i] = unsafe { W::load_part(from[i].add(c * self.inputs[i].step), left) };
            }
            let words = kernel.step(inputs, params);
            for o in 0..O {
                // SAFETY: as above.
                unsafe { words[o].store_part(to[o].add(c), left) }
            }
        }
    }
}

/// Parameters that need no allocation.
const FEW: usize = 16;
