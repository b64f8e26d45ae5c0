// Products over Z_2^64 on the tensor cores: words as limbs, and their products by `mma.sync`.
#include "limbs.cuh"

// ---- limbs ------------------------------------------------------------------------------------------

// What becomes planes: rows row.. and columns k..k + depth of an operand, in tiles of `tile` rows, from
// step `first` of `steps` on. Rows and columns past the operand's are zeros.
struct Split {
  u32 tile, tiles, steps, first, row, k, depth, reserved;
};

// Blocks of 256 threads make 32 rows x 64 columns.
template <class Element>
__device__ __forceinline__ void split(u8 *planes, u32 rows, const Split &s, bool down, const Element &element) {
  __shared__ u64 tile[32][65];
  u32 r0 = blockIdx.y * 32, c0 = blockIdx.x * 64;
  for (u32 t = threadIdx.x; t < 32 * 64; t += 256) {
    // Neighbouring threads read along the direction in which words are neighbours.
    u32 r = down ? t & 31 : t >> 6, c = down ? t >> 5 : t & 63;
    tile[r][c] = s.row + r0 + r < rows && c0 + c < s.depth ? element(s.row + r0 + r, s.k + c0 + c) : 0;
  }
  __syncthreads();
  u32 limb = threadIdx.x >> 5, r = threadIdx.x & 31;
  u32 row_tile = r0 / s.tile, row = r0 % s.tile + r;
  u8 *out = planes + ((u64)blockIdx.z * s.tiles + row_tile) * s.steps * tile_bytes(s.tile);
  for (u32 q = 0; q < 4 && c0 + (q & ~1) * 16 < s.depth; q++) {
    u32 words[4];
#pragma unroll
    for (u32 w = 0; w < 4; w++) {
      u32 bytes = 0;
#pragma unroll
      for (u32 e = 0; e < 4; e++) bytes |= (u32)((u8 *)&tile[r][q * 16 + w * 4 + e])[limb] << (8 * e);
      words[w] = bytes;
    }
    u32 step = s.first + c0 / DEEP + (q >> 1);
    *(uint4 *)(out + (u64)step * tile_bytes(s.tile) + place(s.tile, limb, row, q & 1)) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

#define SPLIT(NAME, OPERANDS, PARAMS, LEFT_DOWN, RIGHT_DOWN)                                             \
  extern "C" __global__ void __launch_bounds__(256) NAME##_lhs(u8 *planes, const u64 *x, const u64 *y,   \
                                                               const PARAMS p, const Split s) {           \
    OPERANDS o(x, y, p);                                                                                 \
    split(planes, o.m, s, LEFT_DOWN, [&](u32 i, u32 k) { return o.lhs(i, k); });                         \
  }                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256) NAME##_rhs(u8 *planes, const u64 *x, const u64 *y,   \
                                                               const PARAMS p, const Split s) {           \
    OPERANDS o(x, y, p);                                                                                 \
    split(planes, o.n, s, RIGHT_DOWN, [&](u32 j, u32 k) { return o.rhs(k, j); });                        \
  }

SPLIT(split_matmul, MatMulOperands, MatMul, p.a_row == 1, p.b_col == 1)
SPLIT(split_conv, ConvOperands, Conv, false, true)
SPLIT(split_conv_input_grad, InputGradOperands, Conv, false, true)
SPLIT(split_conv_weight_grad, WeightGradOperands, Conv, false, false)

// ---- the product --------------------------------------------------------------------------------------

__device__ __forceinline__ void mma_u8(u32 d[4], const u32 a[4], const u32 *b) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void load_matrices(u32 r[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

static const u32 TILE = 64, STAGES = 3, OPERAND = tile_bytes(TILE), PITCH = TILE + 2;

// 64x64 results a block of 8 warps, 32x16 a warp; 96 KiB of shared memory.
template <class Operands>
__device__ __forceinline__ void limb_product(u64 *out, const u8 *lhs, const u8 *rhs, const Part &p,
                                             const Operands &o, const Addends &addends) {
  extern __shared__ __align__(16) u8 stages[];
  u32 base = (u32)__cvta_generic_to_shared(stages);
  u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  u32 wm = (warp & 1) * 32, wn = (warp >> 1) * 16;
  u32 row_tile, col_tile;
  this_tile(p, row_tile, col_tile);
  lhs += ((u64)blockIdx.z * p.row_tiles + row_tile) * p.steps * OPERAND;
  rhs += ((u64)blockIdx.z * p.col_tiles + col_tile) * p.steps * OPERAND;

  auto load = [&](u32 step) {
    u32 to = base + step % STAGES * 2 * OPERAND;
    if (step < p.steps)
#pragma unroll
      for (u32 t = threadIdx.x * 16; t < OPERAND; t += 256 * 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + t), "l"(lhs + (u64)step * OPERAND + t));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + OPERAND + t),
                     "l"(rhs + (u64)step * OPERAND + t));
      }
    asm volatile("cp.async.commit_group;");
  };

  u32 acc[8][2][2][4] = {};
  for (u32 s = 0; s < STAGES - 1; s++) load(s);
  for (u32 s = 0; s < p.steps; s++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
    __syncthreads();
    // The stage loaded now was read in the step before this barrier.
    load(s + STAGES - 1);
    u32 stage = base + s % STAGES * 2 * OPERAND;
    u32 b[8][4];
#pragma unroll
    for (u32 j = 0; j < 8; j++)
      load_matrices(b[j], stage + OPERAND + place(TILE, j, wn + (lane & 7) + (lane >> 4) * 8, lane >> 3 & 1));
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
#pragma unroll
      for (u32 mt = 0; mt < 2; mt++) {
        u32 a[4];
        load_matrices(a, stage + place(TILE, i, wm + mt * 16 + (lane & 15), lane >> 4));
#pragma unroll
        for (u32 j = 0; j < 8 - i; j++)
#pragma unroll
          for (u32 nt = 0; nt < 2; nt++) mma_u8(acc[i + j][mt][nt], a, &b[j][2 * nt]);
      }
    }
  }
  // The stages become the block's results.
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();
  // Without this the compiler keeps the sums as 64-bit words through the loop, and spills.
#pragma unroll
  for (u32 d = 0; d < 8; d++)
#pragma unroll
    for (u32 e = 0; e < 16; e++) asm volatile("" : "+r"(acc[d][e >> 3][e >> 2 & 1][e & 3]));
  u64 *tile = (u64 *)stages;
#pragma unroll
  for (u32 mt = 0; mt < 2; mt++)
#pragma unroll
    for (u32 nt = 0; nt < 2; nt++)
#pragma unroll
      for (u32 e = 0; e < 4; e++) {
        u32 r = wm + mt * 16 + (lane >> 2) + (e >> 1) * 8, c = wn + nt * 8 + (lane & 3) * 2 + (e & 1);
        u64 v = 0;
#pragma unroll
        for (u32 d = 0; d < 8; d++) v += (u64)acc[d][mt][nt][e] << (8 * d);
        tile[r * PITCH + c] = v;
      }
  finish<TILE, TILE>(out, tile, PITCH, p.row + row_tile * TILE, p.col + col_tile * TILE, o, addends);
}

LIMB_PRODUCT(matmul_u8, MatMulOperands, MatMul)
LIMB_PRODUCT(conv_u8, ConvOperands, Conv)
LIMB_PRODUCT(conv_input_grad_u8, InputGradOperands, Conv)
LIMB_PRODUCT(conv_weight_grad_u8, WeightGradOperands, Conv)
