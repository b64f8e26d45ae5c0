//! Micro-kernels: their sizes, and the one place that picks the code for an instruction set.

use super::portable;
use super::source::{Along, BLOCK, Block};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::cpu::{Isa, Kind};

/// Words of a cache line.
pub(super) const LINE: usize = 8;

/// One cache line of a packed panel; panels are aligned to it.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Line([u64; LINE]);

// SAFETY: zeros are words.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: 64 bytes of words, aligned to 64: no padding, and every pattern of bits is valid.
unsafe impl bytemuck::Pod for Line {}

/// What a micro-kernel computes: `nr` words a row.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Tile(pub [u64; 256]);

impl Default for Tile {
    fn default() -> Self {
        Self([0; 256])
    }
}

/// A packed panel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panel {
    /// Outer indices.
    pub width: usize,
    /// Inner indices, padded.
    pub depth: usize,
    /// Words per inner index.
    pub stride: usize,
}

impl Panel {
    /// Words of the whole panel.
    pub(super) fn words(&self) -> usize {
        self.stride * self.depth
    }
}

/// The state a kernel needs in its thread.
pub(super) struct Tiles;

/// A micro-kernel and the block sizes that suit it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    isa: Isa,
    /// Most rows of a tile.
    pub mr: usize,
    /// Columns of a tile.
    pub nr: usize,
    /// Most inner indices per pass.
    pub kc: usize,
    /// Inner indices per pass are a multiple of this.
    pub k_unit: usize,
    /// Columns packed at a time: their block stays in the second-level cache.
    pub nc: usize,
}

impl Kernel {
    /// The vector kernel of an instruction set.
    pub(super) fn vector(isa: Isa) -> Self {
        let (mr, nr, nc) = match isa.kind() {
            Kind::Portable => (4, 8, 96),
            Kind::Avx2 => (2, 8, 96),
            Kind::Avx512 | Kind::Amx => (8, 24, 240),
        };
        Self { isa, mr, nr, kc: 256, k_unit: 1, nc }
    }

    /// The shape of packed panels of the first operand.
    pub(super) fn panel_a(&self, mr: usize, depth: usize) -> Panel {
        Panel { width: mr, depth, stride: mr }
    }

    /// The shape of packed panels of the second operand.
    pub(super) fn panel_b(&self, depth: usize) -> Panel {
        Panel { width: self.nr, depth, stride: self.nr }
    }

    /// Prepares the current thread for tiles of `mr` rows, until the result is dropped.
    pub(super) fn enter(&self, mr: usize) -> Tiles {
        debug_assert!(mr <= self.mr);
        Tiles
    }

    /// Packs up to [`BLOCK`] inner indices of outer indices `offset..offset + width` of a block.
    pub(super) fn pack(
        &self,
        panel: Panel,
        block: &Block,
        along: Along,
        offset: usize,
        packed: &mut [u64],
    ) {
        let width = panel.width;
        match along {
            Along::Outer => {
                for (row, packed) in block.chunks_exact(BLOCK).zip(packed.chunks_exact_mut(width)) {
                    packed.copy_from_slice(&row[offset..offset + width]);
                }
            }
            Along::Inner => {
                for (i, row) in block.chunks_exact(BLOCK).skip(offset).take(width).enumerate() {
                    let column = packed[i..].iter_mut().step_by(width);
                    column.zip(row).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }

    /// `tile = a x b` for panels of `mr` rows and `nr` columns.
    pub(super) fn multiply(&self, mr: usize, depth: usize, a: &[u64], b: &[u64], tile: &mut Tile) {
        assert!(mr <= self.mr && a.len() >= mr * depth && b.len() >= self.nr * depth);
        match self.isa.kind() {
            Kind::Portable => portable::multiply(mr, depth, a, b, tile),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of this kind is made only after detection; sizes were just checked.
            Kind::Avx2 => unsafe { avx2::multiply(mr, depth, a, b, tile) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Kind::Avx512 | Kind::Amx => unsafe { avx512::multiply(mr, depth, a, b, tile) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => portable::multiply(mr, depth, a, b, tile),
        }
    }
}
