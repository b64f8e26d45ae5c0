// Products over Z_2^64 on the tensor cores: words as eight 8-bit limbs, 36 products of limbs.
//
// Limb i of the left word times limb j of the right has weight 2^(8 (i + j)); those with i + j > 7 vanish
// modulo 2^64. Products of one weight add up in one 32-bit accumulator, eight in all. Accumulators of
// weight 2^32 and above may wrap; that of weight 2^24 takes four products of at most 255^2 for each k, so
// that sums are exact to k = floor((2^32 - 1) / (4 * 255^2)) = 16512. The caller cuts longer sums.
#include "operands.cuh"

// ---- limbs ------------------------------------------------------------------------------------------

// Rows of one operand of `rows` x k as limb planes [batch][8][rows][width], the columns first..first + kpad
// of a row holding this operand, zeros past k. Blocks of 256 threads make 32 rows x 64 columns.
template <class Element>
__device__ __forceinline__ void split(u8 *planes, u32 rows, u32 k, u32 width, u32 first, u32 kpad, bool down,
                                      const Element &element) {
  __shared__ u64 tile[32][65];
  u32 r0 = blockIdx.y * 32, c0 = blockIdx.x * 64;
  for (u32 t = threadIdx.x; t < 32 * 64; t += 256) {
    // Neighbouring threads read along the direction in which words are neighbours.
    u32 r = down ? t & 31 : t >> 6, c = down ? t >> 5 : t & 63;
    tile[r][c] = r0 + r < rows && c0 + c < k ? element(r0 + r, c0 + c) : 0;
  }
  __syncthreads();
  u32 limb = threadIdx.x >> 5, r = threadIdx.x & 31;
  if (r0 + r >= rows) return;
  u8 *out = planes + (((u64)blockIdx.z * 8 + limb) * rows + r0 + r) * width + first + c0;
  for (u32 c = 0; c < 64 && c0 + c < kpad; c += 4) {
    u32 word = 0;
#pragma unroll
    for (u32 e = 0; e < 4; e++) word |= ((u32)(tile[r][c + e] >> (8 * limb)) & 255) << (8 * e);
    *(u32 *)(out + c) = word;
  }
}

struct Split {
  u32 width, first, kpad, reserved;
};

#define SPLIT(NAME, OPERANDS, PARAMS, LEFT_DOWN, RIGHT_DOWN)                                             \
  extern "C" __global__ void __launch_bounds__(256) NAME##_lhs(u8 *planes, const u64 *x, const u64 *y,   \
                                                               const PARAMS p, const Split s) {           \
    OPERANDS o(x, y, p);                                                                                 \
    split(planes, o.m, o.k, s.width, s.first, s.kpad, LEFT_DOWN, [&](u32 i, u32 k) { return o.lhs(i, k); }); \
  }                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256) NAME##_rhs(u8 *planes, const u64 *x, const u64 *y,   \
                                                               const PARAMS p, const Split s) {           \
    OPERANDS o(x, y, p);                                                                                 \
    split(planes, o.n, o.k, s.width, s.first, s.kpad, RIGHT_DOWN, [&](u32 j, u32 k) { return o.rhs(k, j); }); \
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

// 16 bytes, or zeros where `inside` is false.
__device__ __forceinline__ void copy_async(u32 to, const u8 *from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}

static const u32 TILE = 64, DEEP = 32, STAGES = 3;
static const u32 OPERAND = 8 * TILE * DEEP;  // bytes of one operand's limbs in a stage

// A row's 16-byte halves change places every four rows, so that the eight rows that ldmatrix reads at
// once lie in different banks.
__device__ __forceinline__ u32 place(u32 limb, u32 row, u32 half) {
  return (limb * TILE + row) * DEEP + ((half ^ (row >> 2 & 1)) << 4);
}

// Columns begin..end of the planes, a multiple of 32 in number. 64x64 results a block of 8 warps, 32x16 a warp; 96 KiB of shared memory.
template <class Operands>
__device__ __forceinline__ void limb_product(u64 *out, const u8 *lhs, const u8 *rhs, u32 width, u32 begin, u32 end,
                                             const Operands &o, const Addends &addends) {
  extern __shared__ __align__(16) u8 stages[];
  u32 base = (u32)__cvta_generic_to_shared(stages);
  u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  u32 wm = (warp & 1) * 32, wn = (warp >> 1) * 16;
  u32 m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE;
  lhs += (u64)blockIdx.z * 8 * o.m * width;
  rhs += (u64)blockIdx.z * 8 * o.n * width;

  auto load = [&](u32 step) {
    u32 k0 = begin + step * DEEP, to = base + step % STAGES * 2 * OPERAND;
    if (k0 < end)
#pragma unroll 4
      for (u32 t = threadIdx.x; t < 8 * TILE * 2; t += 256) {
        u32 limb = t >> 7, row = t >> 1 & 63, half = t & 1;
        bool left = m0 + row < o.m, right = n0 + row < o.n;
        copy_async(to + place(limb, row, half),
                   lhs + ((u64)limb * o.m + (left ? m0 + row : 0)) * width + k0 + half * 16, left);
        copy_async(to + OPERAND + place(limb, row, half),
                   rhs + ((u64)limb * o.n + (right ? n0 + row : 0)) * width + k0 + half * 16, right);
      }
    asm volatile("cp.async.commit_group;");
  };

  u32 acc[8][2][2][4] = {};
  u32 steps = (end - begin) / DEEP;
  for (u32 s = 0; s < STAGES - 1; s++) load(s);
  for (u32 s = 0; s < steps; s++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
    __syncthreads();
    // The stage loaded now was read in the step before this barrier.
    load(s + STAGES - 1);
    u32 stage = base + s % STAGES * 2 * OPERAND;
    u32 b[8][4];
#pragma unroll
    for (u32 j = 0; j < 8; j++)
      load_matrices(b[j], stage + OPERAND + place(j, wn + (lane & 7) + (lane >> 4) * 8, lane >> 3 & 1));
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
#pragma unroll
      for (u32 mt = 0; mt < 2; mt++) {
        u32 a[4];
        load_matrices(a, stage + place(i, wm + mt * 16 + (lane & 15), lane >> 4));
#pragma unroll
        for (u32 j = 0; j < 8 - i; j++)
#pragma unroll
          for (u32 nt = 0; nt < 2; nt++) mma_u8(acc[i + j][mt][nt], a, &b[j][2 * nt]);
      }
    }
  }
#pragma unroll
  for (u32 mt = 0; mt < 2; mt++)
#pragma unroll
    for (u32 nt = 0; nt < 2; nt++)
#pragma unroll
      for (u32 e = 0; e < 4; e++) {
        u32 r = m0 + wm + mt * 16 + (lane >> 2) + (e >> 1) * 8, c = n0 + wn + nt * 8 + (lane & 3) * 2 + (e & 1);
        u64 v = 0;
#pragma unroll
        for (u32 d = 0; d < 8; d++) v += (u64)acc[d][mt][nt][e] << (8 * d);
        if (r < o.m && c < o.n) {
          u64 at = o.at(r, c);
          out[at] = v + addends.at(at);
        }
      }
}

struct Range {
  u32 width, begin, end, reserved;
};

#define LIMBS(NAME, OPERANDS, PARAMS)                                                                    \
  extern "C" __global__ void __launch_bounds__(256, 1) NAME(u64 *out, const u8 *lhs, const u8 *rhs,      \
                                                            const PARAMS p, const Range r, const Addends addends) { \
    limb_product(out, lhs, rhs, r.width, r.begin, r.end, OPERANDS(0, 0, p), addends);      \
  }

LIMBS(matmul_u8, MatMulOperands, MatMul)
LIMBS(conv_u8, ConvOperands, Conv)
LIMBS(conv_input_grad_u8, InputGradOperands, Conv)
LIMBS(conv_weight_grad_u8, WeightGradOperands, Conv)
