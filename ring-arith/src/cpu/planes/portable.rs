//! Transposes by exchanging halves, quarters, ... of rows, in plain Rust.

use super::{ELEMENTS, LINE, Planes};

/// All planes of the elements shifted right by `low`.
#[inline(always)]
pub(super) fn split(elements: &[u64; ELEMENTS], low: u32, planes: &mut Planes) {
    for w in 0..LINE {
        let mut square = [0; 64];
        for i in 0..64 {
            square[i] = elements[64 * w + i] >> low;
        }
        transpose(&mut square);
        for j in 0..64 {
            planes[j][w] = square[j];
        }
    }
}

/// The elements of all planes, shifted left by `low`.
#[inline(always)]
pub(super) fn join(planes: &Planes, low: u32, elements: &mut [u64; ELEMENTS]) {
    for w in 0..LINE {
        let mut square = [0; 64];
        for j in 0..64 {
            square[j] = planes[j][w];
        }
        transpose(&mut square);
        for i in 0..64 {
            elements[64 * w + i] = square[i] << low;
        }
    }
}

/// Bit `j` of word `i` becomes bit `i` of word `j`.
#[inline(always)]
fn transpose(square: &mut [u64; 64]) {
    exchange::<32>(square, 0x0000_0000_ffff_ffff);
    exchange::<16>(square, 0x0000_ffff_0000_ffff);
    exchange::<8>(square, 0x00ff_00ff_00ff_00ff);
    exchange::<4>(square, 0x0f0f_0f0f_0f0f_0f0f);
    exchange::<2>(square, 0x3333_3333_3333_3333);
    exchange::<1>(square, 0x5555_5555_5555_5555);
}

/// Exchanges the upper parts of rows with the lower parts of the rows `STEP` below them.
#[inline(always)]
fn exchange<const STEP: usize>(square: &mut [u64; 64], mask: u64) {
    for rows in square.chunks_exact_mut(2 * STEP) {
        let (above, below) = rows.split_at_mut(STEP);
        for (a, b) in above.iter_mut().zip(below) {
            let swap = ((*a >> STEP) ^ *b) & mask;
            *a ^= swap << STEP;
            *b ^= swap;
        }
    }
}
