// Where the limbs of an operand lie, and which part of a result a block computes.
//
// A word is eight 8-bit limbs. Limb i of the left word times limb j of the right has weight 2^(8 (i + j));
// those with i + j > 7 vanish modulo 2^64. Products of one weight add up in one 32-bit accumulator, eight in
// all. Accumulators of weight 2^32 and above may wrap; that of weight 2^24 takes four products of at most
// 255^2 for each k, so that sums are exact to k = floor((2^32 - 1) / (4 * 255^2)) = 16512. The caller cuts
// longer sums.
//
// Planes: [batch][tile of rows][step of 32 columns][limb][8 rows][half of 16 columns][row][16 bytes]. All that
// a block needs for a step is one run of memory, and eight rows of a half are 128 bytes without a gap: what
// both `ldmatrix` and `wgmma` read at once, every bank used once.
#pragma once
#include "operands.cuh"

static const u32 LIMBS = 8, DEEP = 32;

// Bytes of a tile of `rows` rows in one step.
__host__ __device__ constexpr u32 tile_bytes(u32 rows) { return LIMBS * rows * DEEP; }

// Offset of 16 bytes in such a tile.
__device__ __forceinline__ u32 place(u32 rows, u32 limb, u32 row, u32 half) {
  return limb * rows * DEEP + (row >> 3) * 256 + half * 128 + (row & 7) * 16;
}

// A launch of a product: steps of the planes, tiles of rows and columns, the first row and column.
struct Part {
  u32 steps, row_tiles, col_tiles, row, col, reserved;
};

// Tiles of rows that neighbouring blocks share columns over, so that both operands stay in the cache.
static const u32 GROUP = 12;

// This block's tile of rows and of columns.
__device__ __forceinline__ void this_tile(const Part &p, u32 &row_tile, u32 &col_tile) {
  u32 wide = GROUP * p.col_tiles, first = blockIdx.x / wide * GROUP;
  u32 rows = min(GROUP, p.row_tiles - first), rest = blockIdx.x % wide;
  row_tile = first + rest % rows;
  col_tile = rest / rows;
}

// A kernel of a product whose `limb_product` the file that includes this defines.
#define LIMB_PRODUCT(NAME, OPERANDS, PARAMS)                                                             \
  extern "C" __global__ void __launch_bounds__(256, 1) NAME(u64 *out, const u8 *lhs, const u8 *rhs,      \
                                                            const PARAMS p, const Part part,             \
                                                            const Addends addends) {                     \
    limb_product(out, lhs, rhs, part, OPERANDS(0, 0, p), addends);                                       \
  }
