// Limbs of words as f64, for products by a library's DGEMM, and words from its sums.
#include "operands.cuh"

// What becomes limbs: rows row..row + rows and columns k..k + depth of an operand, as planes
// [limb][batch][rows][depth]. Balanced limbs lie around 0.
struct FloatSplit {
  u32 limbs, bits, balanced, row, rows, k, depth, reserved;
};

template <class Element>
__device__ __forceinline__ void split(double *planes, const FloatSplit &s, const Element &element) {
  u64 plane = (u64)s.rows * s.depth;
  STRIDE(i, plane) {
    u64 word = element(s.row + (u32)(i / s.depth), s.k + (u32)(i % s.depth));
    for (u32 limb = 0; limb < s.limbs; limb++) {
      u32 unused = 64 - min(s.bits, 64 - s.bits * limb);
      i64 value = s.balanced ? (i64)(word << unused) >> unused : (i64)(word << unused >> unused);
      planes[((u64)limb * gridDim.z + blockIdx.z) * plane + i] = (double)value;
      word = (word - (u64)value) >> s.bits;
    }
  }
}

// Sums of products of limbs, [diagonal][batch][rows][cols] from row and column `row` and `col` on: diagonal d has
// weight 2^(bits d).
struct Join {
  u32 diagonals, bits, row, rows, col, cols;
};

template <class Operands>
__device__ __forceinline__ void join(u64 *out, const double *sums, const Join &j, const Operands &o,
                                     const Addends &addends) {
  __shared__ u64 tile[64 * 66];
  u32 row_tiles = (j.rows + 63) / 64, r0 = blockIdx.x % row_tiles * 64, c0 = blockIdx.x / row_tiles * 64;
  u64 plane = (u64)j.rows * j.cols;
  for (u32 t = threadIdx.x; t < 64 * 64; t += 256) {
    u32 r = t >> 6, c = t & 63;
    if (r0 + r >= j.rows || c0 + c >= j.cols) continue;
    u64 word = 0, at = (u64)(r0 + r) * j.cols + c0 + c;
    for (u32 d = 0; d < j.diagonals; d++)
      word += (u64)(i64)sums[((u64)d * gridDim.z + blockIdx.z) * plane + at] << (j.bits * d);
    tile[r * 66 + c] = word;
  }
  finish<64, 64>(out, tile, 66, j.row + r0, j.col + c0, o, addends);
}

#define FLOATS(NAME, OPERANDS, PARAMS)                                                                   \
  extern "C" __global__ void __launch_bounds__(256) float_##NAME##_lhs(                                  \
      double *planes, const u64 *x, const u64 *y, const PARAMS p, const FloatSplit s) {                   \
    OPERANDS o(x, y, p);                                                                                 \
    split(planes, s, [&](u32 i, u32 k) { return o.lhs(i, k); });                                         \
  }                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256) float_##NAME##_rhs(                                  \
      double *planes, const u64 *x, const u64 *y, const PARAMS p, const FloatSplit s) {                   \
    OPERANDS o(x, y, p);                                                                                 \
    split(planes, s, [&](u32 j, u32 k) { return o.rhs(k, j); });                                         \
  }                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256) join_##NAME(                                         \
      u64 *out, const double *sums, const PARAMS p, const Join j, const Addends addends) {                \
    join(out, sums, j, OPERANDS(0, 0, p), addends);                                                      \
  }

FLOATS(matmul, MatMulOperands, MatMul)
FLOATS(conv, ConvOperands, Conv)
FLOATS(conv_input_grad, InputGradOperands, Conv)
FLOATS(conv_weight_grad, WeightGradOperands, Conv)
