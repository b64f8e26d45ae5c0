//! The kernel for AMX: products of words as exact products of their bytes.
//!
//! With `a = sum a_i 2^(8 i)` and `b` alike, `ab mod 2^64` is the sum over `d = 0..8` of
//! `2^(8 d) s_d`, where `s_d = sum of a_i b_(d-i)`: 36 products of bytes, which tiles multiply and add
//! in 32 bits. The sums with `d >= 4` count modulo 2^32 anyway, so they may wrap. Of the others `s_3`
//! is the largest: four products per inner index, at most `4 * 255^2`, so up to 16512 inner indices
//! are exact.
//!
//! A packed panel holds, for every 64 inner indices, a tile of 1024 bytes per byte position. A tile
//! of the first operand has rows of 64 bytes, one of the second rows of four inner indices by 16
//! columns.
//!
//! Rust's intrinsics for tiles are not stable, hence the assembly.

use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::source::{Along, BLOCK, Block};

/// Rows, and columns, of a tile.
pub(super) const SIDE: usize = 16;

/// Inner indices of a tile: the bytes of its rows.
pub(super) const DEPTH: usize = 64;

/// Bytes of a tile.
const TILE: usize = SIDE * DEPTH;

/// Most inner indices whose sums stay exact.
pub(super) const MOST_DEPTH: usize = u32::MAX as usize / (4 * 255 * 255);

/// Four tiles of sums.
type Sums = [[[u32; SIDE]; SIDE]; 4];

/// A product on its way from tiles to words.
///
/// Tiles work in parallel with the vector units if the instruction stream offers both. So the sums
/// of one product are combined while those of the next are computed, a half at a time.
#[repr(C, align(64))]
pub(super) struct Pipeline {
    /// Sums 0 to 3 of the product under way.
    low: Sums,
    /// Sums 4 to 7 of the product under way.
    high: Sums,
    /// The upper halves of its words.
    upper: [[u32; SIDE]; SIDE],
}

/// The destination of a finished product: `rows` rows of `columns <= 16` words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination {
    pub words: *mut u64,
    pub row_stride: usize,
    pub rows: usize,
    pub columns: usize,
    /// Add to the words that are there.
    pub add: bool,
}

/// The layout of `ldtilecfg`'s operand.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tiles configured for this thread, until dropped.
pub(super) struct Tiles(PhantomData<*const ()>);

impl Tiles {
    /// Sums and tiles of the first operand get `rows` rows.
    ///
    /// # Safety
    /// The CPU has AMX, the process may use it, and these are the only `Tiles` of this thread.
    pub(super) unsafe fn configure(rows: usize) -> Self {
        let mut configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        for tile in 0..8 {
            configuration.row_bytes[tile] = DEPTH as u16;
            configuration.rows[tile] = if tile < 5 { rows as u8 } else { SIDE as u8 };
        }
        // SAFETY: the caller promises AMX; the operand is 64 bytes of a valid configuration.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &configuration, options(nostack, readonly)) };
        Self(PhantomData)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `configure` ran on this thread, so the CPU has AMX.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

impl Pipeline {
    /// A pipeline without a product.
    pub(super) fn new() -> Box<Self> {
        let zero = [[0; SIDE]; SIDE];
        Box::new(Self { low: [zero; 4], high: [zero; 4], upper: zero })
    }

    /// Starts the product of two packed panels and finishes the one before it.
    ///
    /// # Safety
    /// [`Tiles`] are configured on this thread; both panels hold `16 * depth` words; `depth` is a
    /// multiple of [`DEPTH`] and at least that; the destination may be written.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn push(
        &mut self,
        depth: usize,
        [a, b]: [&[u64]; 2],
        previous: Option<Destination>,
    ) {
        debug_assert!(depth <= MOST_DEPTH);
        let (a, b) = (a.as_ptr().cast(), b.as_ptr().cast());
        // SAFETY: the caller's promises are passed on; each half of the sums has four tiles.
        unsafe {
            high_half(depth / DEPTH, a, b, (&raw mut self.high).cast());
            if let Some(previous) = previous {
                self.finish(previous);
            }
            low_half(depth / DEPTH, a, b, (&raw mut self.low).cast());
        }
        for (row, upper) in self.upper.iter_mut().enumerate() {
            let s = |d: usize| load_row(&self.high[d][row]);
            let sum = _mm512_add_epi32(
                _mm512_add_epi32(s(0), _mm512_slli_epi32::<8>(s(1))),
                _mm512_add_epi32(_mm512_slli_epi32::<16>(s(2)), _mm512_slli_epi32::<24>(s(3))),
            );
            // SAFETY: a row is one vector.
            unsafe { _mm512_store_si512(upper.as_mut_ptr().cast(), sum) };
        }
    }

    /// Writes the words of the last product: `sum of 2^(8 d) s_d`.
    ///
    /// # Safety
    /// The destination may be written.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn finish(&self, to: Destination) {
        let mask = ((1u32 << to.columns) - 1) as u16;
        for row in 0..to.rows {
            let s = |d: usize| load_row(&self.low[d][row]);
            let (s, high) = ([s(0), s(1), s(2), s(3)], load_row(&self.upper[row]));
            // SAFETY: the row is within the destination.
            let words = unsafe { to.words.add(row * to.row_stride) };
            let halves = [
                join(s.map(|s| _mm512_castsi512_si256(s)), _mm512_castsi512_si256(high)),
                join(s.map(|s| upper_half(s)), upper_half(high)),
            ];
            for (i, mut sum) in halves.into_iter().enumerate() {
                let mask = (mask >> (8 * i)) as u8;
                let words = words.wrapping_add(8 * i).cast::<i64>();
                // SAFETY: only words under the mask are touched, and they are the destination's.
                unsafe {
                    if to.add {
                        sum = _mm512_add_epi64(sum, _mm512_maskz_loadu_epi64(mask, words));
                    }
                    _mm512_mask_storeu_epi64(words, mask, sum);
                }
            }
        }
    }
}

/// Joins four sums and the upper half of eight words.
#[inline]
#[target_feature(enable = "avx512f")]
fn join(sums: [__m256i; 4], upper: __m256i) -> __m512i {
    let [a, b, c, d] = sums.map(|s| _mm512_cvtepu32_epi64(s));
    let low = _mm512_add_epi64(
        _mm512_add_epi64(a, _mm512_slli_epi64::<8>(b)),
        _mm512_add_epi64(_mm512_slli_epi64::<16>(c), _mm512_slli_epi64::<24>(d)),
    );
    _mm512_add_epi64(low, _mm512_slli_epi64::<32>(_mm512_cvtepu32_epi64(upper)))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn upper_half(v: __m512i) -> __m256i {
    _mm512_extracti64x4_epi64::<1>(v)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_row(row: &[u32; SIDE]) -> __m512i {
    // SAFETY: a row is one vector.
    unsafe { _mm512_loadu_si512(row.as_ptr().cast()) }
}

macro_rules! load_a {
    ($limb:literal) => {
        concat!("tileloadd tmm4, [{a} + {row} + 1024 * ", $limb, "]")
    };
}
macro_rules! load_b {
    ($tile:literal, $limb:literal) => {
        concat!("tileloadd tmm", $tile, ", [{b} + {row} + 1024 * ", $limb, "]")
    };
}
macro_rules! dot {
    ($sum:literal, $tile:literal) => {
        concat!("tdpbuud tmm", $sum, ", tmm4, tmm", $tile)
    };
}

/// Sums 4 to 7. Each byte of `a` meets four neighbouring bytes of `b`, one for each sum; from one to
/// the next, that window of `b` moves down by one byte, so a single new tile is loaded.
#[rustfmt::skip]
unsafe fn high_half(steps: usize, a: *const u8, b: *const u8, sums: *mut u8) {
    // SAFETY: panels hold `steps` times 8 tiles and `sums` has room for 4, by the caller's promise.
    unsafe {
        asm!(
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            "2:",
            load_a!(0),
            load_b!(5, 7), dot!(3, 5), load_b!(6, 6), dot!(2, 6),
            load_b!(7, 5), dot!(1, 7), load_b!(5, 4), dot!(0, 5),
            load_a!(1), dot!(3, 6), dot!(2, 7), dot!(1, 5), load_b!(6, 3), dot!(0, 6),
            load_a!(2), dot!(3, 7), dot!(2, 5), dot!(1, 6), load_b!(7, 2), dot!(0, 7),
            load_a!(3), dot!(3, 5), dot!(2, 6), dot!(1, 7), load_b!(5, 1), dot!(0, 5),
            load_a!(4), dot!(3, 6), dot!(2, 7), dot!(1, 5), load_b!(6, 0), dot!(0, 6),
            load_a!(5), dot!(3, 7), dot!(2, 5), dot!(1, 6),
            load_a!(6), dot!(3, 5), dot!(2, 6),
            load_a!(7), dot!(3, 6),
            "add {a}, 8192", "add {b}, 8192",
            "dec {steps}", "jnz 2b",
            "tilestored [{sums} + {row}], tmm0", "tilestored [{sums} + {row} + 1024], tmm1",
            "tilestored [{sums} + {row} + 2048], tmm2", "tilestored [{sums} + {row} + 3072], tmm3",
            a = inout(reg) a => _, b = inout(reg) b => _, steps = inout(reg) steps => _,
            sums = in(reg) sums, row = in(reg) DEPTH,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Sums 0 to 3, likewise.
#[rustfmt::skip]
unsafe fn low_half(steps: usize, a: *const u8, b: *const u8, sums: *mut u8) {
    // SAFETY: panels hold `steps` times 8 tiles and `sums` has room for 4, by the caller's promise.
    unsafe {
        asm!(
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            "2:",
            load_a!(0),
            load_b!(5, 3), dot!(3, 5), load_b!(6, 2), dot!(2, 6),
            load_b!(7, 1), dot!(1, 7), load_b!(5, 0), dot!(0, 5),
            load_a!(1), dot!(3, 6), dot!(2, 7), dot!(1, 5),
            load_a!(2), dot!(3, 7), dot!(2, 5),
            load_a!(3), dot!(3, 5),
            "add {a}, 8192", "add {b}, 8192",
            "dec {steps}", "jnz 2b",
            "tilestored [{sums} + {row}], tmm0", "tilestored [{sums} + {row} + 1024], tmm1",
            "tilestored [{sums} + {row} + 2048], tmm2", "tilestored [{sums} + {row} + 3072], tmm3",
            a = inout(reg) a => _, b = inout(reg) b => _, steps = inout(reg) steps => _,
            sums = in(reg) sums, row = in(reg) DEPTH,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Splits outer indices `offset..offset + width` of a block into tiles of the first operand.
///
/// # Safety
/// The CPU has AVX-512 BW and VBMI.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn pack_a(
    width: usize,
    block: &Block,
    along: Along,
    offset: usize,
    packed: &mut [u64],
) {
    let mut turned = [0; SIDE * BLOCK];
    let rows = match along {
        Along::Inner => &block[offset * BLOCK..],
        Along::Outer => {
            turn::<BLOCK, SIDE>(&block[offset..], &mut turned);
            &turned[..]
        }
    };
    let packed: &mut [u8] = bytemuck::cast_slice_mut(&mut packed[..SIDE * DEPTH]);
    for (row, words) in rows.chunks_exact(BLOCK).enumerate().take(width) {
        let mut v: [__m512i; 8] = std::array::from_fn(|i| load(&words[8 * i..]));
        v.iter_mut().for_each(|v| *v = by_limb(*v));
        for (limb, bytes) in transpose(v).into_iter().enumerate() {
            store(&mut packed[limb * TILE + row * DEPTH..], bytes);
        }
    }
}

/// Splits outer indices `offset..offset + 16` of a block into tiles of the second operand.
///
/// # Safety
/// The CPU has AVX-512 BW and VBMI.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn pack_b(block: &Block, along: Along, offset: usize, packed: &mut [u64]) {
    let mut turned = [0; SIDE * BLOCK];
    let (rows, stride) = match along {
        Along::Outer => (&block[offset..], BLOCK),
        Along::Inner => {
            turn::<SIDE, BLOCK>(&block[offset * BLOCK..], &mut turned);
            (&turned[..], SIDE)
        }
    };
    let packed: &mut [u8] = bytemuck::cast_slice_mut(&mut packed[..SIDE * DEPTH]);
    for quad in 0..DEPTH / 4 {
        let mut even = [_mm512_setzero_si512(); 4];
        let mut odd = even;
        for half in 0..2 {
            let x: [__m512i; 4] =
                std::array::from_fn(|k| by_limb(load(&rows[(4 * quad + k) * stride + 8 * half..])));
            // Lane t holds limbs 2t and 2t + 1 of eight columns; first two, then four inner indices
            // are brought together.
            let (a, b) = (_mm512_unpacklo_epi8(x[0], x[1]), _mm512_unpacklo_epi8(x[2], x[3]));
            even[2 * half] = _mm512_unpacklo_epi16(a, b);
            even[2 * half + 1] = _mm512_unpackhi_epi16(a, b);
            let (a, b) = (_mm512_unpackhi_epi8(x[0], x[1]), _mm512_unpackhi_epi8(x[2], x[3]));
            odd[2 * half] = _mm512_unpacklo_epi16(a, b);
            odd[2 * half + 1] = _mm512_unpackhi_epi16(a, b);
        }
        let (even, odd) = (transpose_lanes(even), transpose_lanes(odd));
        for lane in 0..4 {
            store(&mut packed[2 * lane * TILE + quad * DEPTH..], even[lane]);
            store(&mut packed[(2 * lane + 1) * TILE + quad * DEPTH..], odd[lane]);
        }
    }
}

/// Brings byte `i` of all eight words together, for each `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
fn by_limb(words: __m512i) -> __m512i {
    const ORDER: [u8; 64] = {
        let mut order = [0; 64];
        let mut i = 0;
        while i < 64 {
            order[i] = (i % 8 * 8 + i / 8) as u8;
            i += 1;
        }
        order
    };
    // SAFETY: 64 bytes are read from an array of 64 bytes.
    let order = unsafe { _mm512_loadu_si512(ORDER.as_ptr().cast()) };
    _mm512_permutexvar_epi8(order, words)
}

/// Transposes 8 by 8 words.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(v: [__m512i; 8]) -> [__m512i; 8] {
    // Pairs of words within lanes, then lanes.
    let low: [__m512i; 4] = std::array::from_fn(|i| _mm512_unpacklo_epi64(v[2 * i], v[2 * i + 1]));
    let high: [__m512i; 4] = std::array::from_fn(|i| _mm512_unpackhi_epi64(v[2 * i], v[2 * i + 1]));
    let (low, high) = (transpose_lanes(low), transpose_lanes(high));
    [low[0], high[0], low[1], high[1], low[2], high[2], low[3], high[3]]
}

/// Transposes 4 by 4 lanes of 128 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_lanes(v: [__m512i; 4]) -> [__m512i; 4] {
    let a = _mm512_shuffle_i64x2::<0b10_00_10_00>(v[0], v[1]);
    let b = _mm512_shuffle_i64x2::<0b11_01_11_01>(v[0], v[1]);
    let c = _mm512_shuffle_i64x2::<0b10_00_10_00>(v[2], v[3]);
    let d = _mm512_shuffle_i64x2::<0b11_01_11_01>(v[2], v[3]);
    [
        _mm512_shuffle_i64x2::<0b10_00_10_00>(a, c),
        _mm512_shuffle_i64x2::<0b10_00_10_00>(b, d),
        _mm512_shuffle_i64x2::<0b11_01_11_01>(a, c),
        _mm512_shuffle_i64x2::<0b11_01_11_01>(b, d),
    ]
}

/// Transposes the first `R` by `C` words of a block.
#[inline]
#[target_feature(enable = "avx512f")]
fn turn<const R: usize, const C: usize>(from: &[u64], to: &mut [u64; SIDE * BLOCK]) {
    for r in (0..R).step_by(8) {
        for c in (0..C).step_by(8) {
            let v = std::array::from_fn(|i| load(&from[(r + i) * BLOCK + c..]));
            for (i, v) in transpose(v).into_iter().enumerate() {
                let to = &mut to[(c + i) * R + r..][..8];
                // SAFETY: eight words are written to a slice of eight.
                unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) };
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[u64]) -> __m512i {
    let words = &words[..8];
    // SAFETY: eight words are read from a slice of eight.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(bytes: &mut [u8], v: __m512i) {
    let bytes = &mut bytes[..64];
    // SAFETY: 64 bytes are written to a slice of 64.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), v) };
}
