//! Micro-kernels: their sizes, and the one place that picks the code for an instruction set.

use std::ops::Range;

use super::loops;
use super::output::Rows;
use super::portable;
use super::source::{Along, BLOCK, Block};
use super::windows::Columns;
#[cfg(target_arch = "x86_64")]
use super::{amx, avx2, avx512};
use crate::cpu::{Isa, Kind};

/// Words of a cache line.
pub(super) const LINE: usize = 8;

/// Most inner indices of a panel by rows.
const MOST_DEPTH: usize = 512;

/// Words from one row to the next of a panel by rows. It is a constant for the compiler. It exceeds the
/// row's length by a line, so that rows do not compete for the same places of a cache.
pub(super) const ROW: usize = MOST_DEPTH + LINE;

/// One cache line of a packed panel; panels are aligned to it.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Line(pub [u64; LINE]);

// SAFETY: zeros are words.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: 64 bytes of words, aligned to 64: no padding, and every pattern of bits is valid.
unsafe impl bytemuck::Pod for Line {}

/// The result of a micro-kernel: `nr` words a row.
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
    /// The operand.
    pub side: Side,
    /// Outer indices.
    pub width: usize,
    /// Inner indices, padded.
    pub depth: usize,
    /// Words per inner index.
    pub stride: usize,
    /// Another word per outer index holds the sum of products of pairs of inner indices.
    pub pairs: bool,
    /// Words of one outer index lie together, instead of those of one inner index.
    pub by_rows: bool,
}

impl Panel {
    /// Words of the whole panel.
    pub(super) fn words(&self) -> usize {
        if self.by_rows {
            return self.width * ROW;
        }
        self.stride * (self.depth + usize::from(self.pairs))
    }

    /// One of several packed panels.
    pub(super) fn nth<'a>(&self, packed: &'a [u64], index: usize) -> &'a [u64] {
        &packed[index * self.words()..][..self.words()]
    }
}

/// A micro-kernel and the block sizes that suit it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    code: Code,
    isa: Isa,
    /// Most rows of a tile.
    pub mr: usize,
    /// Columns of a tile.
    pub nr: usize,
    /// Most inner indices per pass.
    pub kc: usize,
    /// Inner indices per pass are a multiple of this.
    pub k_unit: usize,
    /// The operand whose panel stays in the first-level cache while the other's stream past.
    pub keep: Side,
    /// Columns packed at a time: their block stays in the second-level cache.
    pub nc: usize,
}

/// The code that runs. Values are made from an [`Isa`] that allows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Amx,
}

/// The operand that is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The first, by rows.
    A,
    /// The second, by columns.
    B,
}

/// A kernel's state in its thread, until it is dropped.
pub(super) struct Entered {
    /// The latest result.
    pub tile: Tile,
    #[cfg(target_arch = "x86_64")]
    tiles: Option<(amx::Tiles, Box<amx::Pipeline>)>,
}

/// Packed panels of both operands.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    /// The words.
    pub words: [&'a [u64]; 2],
    /// Their shapes.
    pub shapes: [Panel; 2],
    /// Columns of the result that are wanted; others may be left out.
    pub columns: usize,
    /// Rows that will be packed next, to be fetched meanwhile.
    pub next: Next<'a>,
}

/// Rows to be fetched: `2 * (pairs + 1)` of them.
#[derive(Clone, Copy)]
pub(super) struct Next<'a> {
    /// The first one, and all words after it.
    pub words: &'a [u64],
    /// Words from one to the next.
    pub stride: usize,
    /// 0, 1 or 3.
    pub pairs: usize,
}

impl<'a> Panels<'a> {
    /// Panels after which nothing is to be packed.
    pub(super) fn new(words: [&'a [u64]; 2], shapes: [Panel; 2], columns: usize) -> Self {
        Self { words, shapes, columns, next: Next { words: words[0], stride: 0, pairs: 0 } }
    }
}

impl Kernel {
    /// The fastest kernel of an instruction set for big products whose terms have at most `depth` products a word.
    pub(super) fn best(isa: Isa, depth: usize) -> Self {
        // A result of tiles takes the same time to put together however few products went into it: at a
        // depth of 50 vectors were measured to be twice as quick, at 16 five times.
        #[cfg(target_arch = "x86_64")]
        if isa.kind() == Kind::Amx && depth >= amx::DEPTH {
            // A panel takes 16 KiB, so one of each operand stays in the first-level cache; a block of
            // the second operand takes 1 MiB. Longer panels and prefetches were measured: slower.
            let side = amx::SIDE;
            return Self {
                code: Code::Amx,
                isa,
                mr: side,
                nr: side,
                kc: 128,
                k_unit: amx::DEPTH,
                keep: Side::A,
                nc: 1024,
            };
        }
        Self::vector(isa)
    }

    /// The kernel of vectors of words.
    pub(super) fn vector(isa: Isa) -> Self {
        // The panel that is kept takes 16 to 32 KiB.
        let (code, mr, nr, kc, keep) = match isa.kind() {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => (Code::Avx2, 2, avx2::COLUMNS, 384, Side::B),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 | Kind::Amx => (Code::Avx512, 8, avx512::COLUMNS, MOST_DEPTH, Side::A),
            _ => (Code::Portable, 4, 8, 256, Side::B),
        };
        // A block of 1 MiB.
        Self { code, isa, mr, nr, kc, k_unit: 2, keep, nc: (1 << 17) / kc / nr * nr }
    }

    /// The shape of packed panels of one operand.
    pub(super) fn panel(&self, side: Side, mr: usize, depth: usize) -> Panel {
        let width = if side == Side::A { mr } else { self.nr };
        #[cfg(target_arch = "x86_64")]
        if self.code == Code::Amx {
            return Panel { side, width, depth, stride: amx::SIDE, pairs: false, by_rows: false };
        }
        let pairs = self.code != Code::Portable;
        Panel { side, width, depth, stride: width, pairs, by_rows: false }
    }

    /// The shape of panels of the first operand whose rows are copied unchanged, if this kernel
    /// supports them.
    pub(super) fn row_panel(&self, mr: usize, depth: usize) -> Option<Panel> {
        #[cfg(target_arch = "x86_64")]
        if matches!(self.code, Code::Avx2 | Code::Avx512) {
            return Some(Panel { by_rows: true, ..self.panel(Side::A, mr, depth) });
        }
        let _ = (mr, depth);
        None
    }

    /// Packs rows of a matrix, `stride` words apart, into a panel by rows.
    pub(super) fn pack_rows(&self, panel: Panel, rows: &[u64], stride: usize, packed: &mut [u64]) {
        assert!(panel.by_rows);
        for (i, to) in packed.chunks_exact_mut(ROW).enumerate() {
            let from = &rows[i * stride..][..panel.depth];
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the code was chosen by an `Isa` that is made only after detection; panels by rows
            // are those of these two.
            unsafe {
                match self.code {
                    Code::Avx2 => {
                        let next = from.as_ptr().wrapping_add(stride);
                        avx2::copy_row(from, next, to);
                    }
                    Code::Avx512 => avx512::copy_row(from, to),
                    Code::Amx | Code::Portable => unreachable!("has no panels by rows"),
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = (from, to);
        }
    }

    /// Packs some inner indices of some columns, if this kernel can pack them directly. Then they
    /// are not copied into a block first, and not read again for their sums of pairs.
    pub(super) fn pack_columns(
        &self,
        panel: Panel,
        columns: &Columns<'_>,
        k: &Range<usize>,
        some: &Range<usize>,
        packed: &mut [u64],
    ) -> bool {
        #[cfg(target_arch = "x86_64")]
        if matches!(self.code, Code::Avx2 | Code::Avx512) {
            assert!(panel.side == Side::B && k.len() <= panel.depth);
            // SAFETY: the code was chosen by an `Isa` that is made only after detection.
            unsafe {
                match self.code {
                    Code::Avx2 => avx2::pack_columns(columns, k, some, packed, panel.words()),
                    Code::Avx512 => {
                        avx512::pack_columns(columns, k, some, packed, panel.words());
                    }
                    Code::Amx | Code::Portable => unreachable!("packs no columns"),
                }
            }
            return true;
        }
        let _ = (panel, columns, k, some, packed);
        false
    }

    /// Prepares the current thread for tiles of `mr` rows.
    pub(super) fn enter(&self, mr: usize) -> Entered {
        assert!((1..=self.mr).contains(&mr));
        Entered {
            tile: Tile::default(),
            #[cfg(target_arch = "x86_64")]
            tiles: (self.code == Code::Amx).then(|| {
                // SAFETY: the code was chosen by an `Isa` that is made only after detection;
                // products do not nest, so this thread has no other tiles.
                (unsafe { amx::Tiles::configure(mr) }, amx::Pipeline::new())
            }),
        }
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
        #[cfg(target_arch = "x86_64")]
        if self.code == Code::Amx {
            // SAFETY: the code was chosen by an `Isa` that is made only after detection.
            return unsafe {
                match panel.side {
                    Side::A => amx::pack_a(width, block, along, offset, packed),
                    Side::B => amx::pack_b(block, along, offset, packed),
                }
            };
        }
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

    /// Completes a panel whose inner indices are all packed.
    pub(super) fn seal(&self, panel: Panel, packed: &mut [u64]) {
        if panel.pairs {
            let (words, sums) = packed.split_at_mut(panel.stride * panel.depth);
            sums.fill(0);
            loops::pair_products(self.isa, sums, words);
        }
    }

    /// Multiplies panels: at least as many rows as the first one is wide, and the requested
    /// columns. Returns true if the result is in `entered.tile`; else it comes from the next call's
    /// `previous` or from [`Kernel::finish`].
    pub(super) fn multiply(
        &self,
        entered: &mut Entered,
        panels: Panels<'_>,
        previous: Option<Spot<'_>>,
    ) -> bool {
        let ([a, b], [a_shape, b_shape]) = (panels.words, panels.shapes);
        let (mr, depth) = (a_shape.width, a_shape.depth);
        assert!(mr <= self.mr.min(a_shape.stride));
        assert!(depth == b_shape.depth && depth.is_multiple_of(self.k_unit));
        assert!(a.len() >= a_shape.words() && b.len() >= b_shape.words());
        #[cfg(target_arch = "x86_64")]
        if let Some((_, pipeline)) = &mut entered.tiles {
            let to = previous.map(|spot| spot.destination(&mut entered.tile));
            // SAFETY: the tiles are configured; sizes were just checked; spots may be written.
            unsafe { pipeline.push(depth, [a, b], to) };
            return false;
        }
        debug_assert!(previous.is_none());
        let tile = &mut entered.tile;
        match self.code {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the code was chosen by an `Isa` that is made only after detection; sizes were
            // just checked.
            Code::Avx2 => unsafe {
                let (by_rows, stride) = (a_shape.by_rows, a_shape.stride);
                let Next { words: next, stride: next_step, .. } = panels.next;
                let next = next.as_ptr();
                let a = avx2::Rows { words: a, by_rows, stride, next, next_step };
                avx2::multiply([mr, panels.columns], depth, a, b, tile);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Code::Avx512 => unsafe {
                let Next { words: next, stride: next_step, pairs: next_pairs } = panels.next;
                let next = next.as_ptr();
                avx512::multiply(
                    [mr, panels.columns],
                    depth,
                    &avx512::Rows {
                        words: a,
                        by_rows: a_shape.by_rows,
                        stride: a_shape.stride,
                        next,
                        next_step,
                        next_pairs,
                    },
                    b,
                    tile,
                );
            },
            _ => portable::multiply(a_shape.stride, depth, a, b, tile),
        }
        true
    }

    /// Brings a tile to rows of the result.
    pub(super) fn put(&self, tile: &Tile, rows: Rows<'_>) {
        loops::put_rows(self.isa, rows, &tile.0, self.nr);
    }

    /// Writes the result of the last call of [`Kernel::multiply`] that returned `false`.
    pub(super) fn finish(&self, entered: &mut Entered, spot: Spot<'_>) {
        #[cfg(target_arch = "x86_64")]
        if let Some((_, pipeline)) = &entered.tiles {
            let to = spot.destination(&mut entered.tile);
            // SAFETY: tiles are configured only where there is AVX-512; spots may be written.
            unsafe { pipeline.finish(to) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (entered, spot);
    }
}

/// The place of a result.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spot<'a> {
    /// To `entered.tile`, all of it.
    Tile,
    /// To rows of words of the final result.
    Rows(Rows<'a>),
}

impl Spot<'_> {
    #[cfg(target_arch = "x86_64")]
    fn destination(self, tile: &mut Tile) -> amx::Destination {
        match self {
            Self::Tile => amx::Destination {
                words: tile.0.as_mut_ptr(),
                row_stride: amx::SIDE,
                rows: amx::SIDE,
                columns: amx::SIDE,
                add: false,
            },
            Self::Rows(rows) => amx::Destination {
                words: rows.words(),
                row_stride: rows.stride,
                rows: rows.rows,
                columns: rows.columns,
                add: rows.add,
            },
        }
    }
}
