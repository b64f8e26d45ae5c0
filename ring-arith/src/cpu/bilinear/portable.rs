//! Kernels in plain Rust, for every target; the compiler vectorises their loops.

use super::kernel::Tile;

/// Columns of a tile.
const NR: usize = 8;

/// `tile = a x b` for packed panels of `mr <= 4` rows and 8 columns.
pub(super) fn multiply(mr: usize, depth: usize, a: &[u64], b: &[u64], tile: &mut Tile) {
    match mr {
        1 => rows::<1>(depth, a, b, tile),
        2 => rows::<2>(depth, a, b, tile),
        3 => rows::<3>(depth, a, b, tile),
        _ => rows::<4>(depth, a, b, tile),
    }
}

fn rows<const MR: usize>(depth: usize, a: &[u64], b: &[u64], tile: &mut Tile) {
    let mut sums = [[0u64; NR]; MR];
    for (a, b) in a.chunks_exact(MR).zip(b.chunks_exact(NR)).take(depth) {
        for i in 0..MR {
            for j in 0..NR {
                sums[i][j] = sums[i][j].wrapping_add(a[i].wrapping_mul(b[j]));
            }
        }
    }
    for (to, from) in tile.0.chunks_exact_mut(NR).zip(sums) {
        to.copy_from_slice(&from);
    }
}
