// Products over Z_2^64 by 64-bit integer arithmetic: the baseline that any device runs, and the path for
// shapes too small for the tensor cores.
#include "operands.cuh"

// out[i] += or -= in[i]
extern "C" __global__ void add_words(u64 *out, const u64 *in, u64 n, u32 negate) {
  STRIDE(i, n) { out[i] += negate ? 0 - in[i] : in[i]; }
}

// 64x64 outputs a block of 256 threads, 4x4 a thread, 16 deep.
template <class Operands>
__device__ __forceinline__ void tiled(u64 *out, const Operands &o, const Addends &addends) {
  // The operands' tiles, then the results.
  __shared__ u64 memory[64 * 66];
  u64(*lhs)[66] = (u64(*)[66])memory, (*rhs)[66] = lhs + 16;
  u32 tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
  for (u32 m0 = blockIdx.y * 64; m0 < o.m; m0 += gridDim.y * 64)
    for (u32 n0 = blockIdx.x * 64; n0 < o.n; n0 += gridDim.x * 64) {
      u64 acc[4][4] = {};
      for (u32 k0 = 0; k0 < o.k; k0 += 16) {
        for (u32 t = threadIdx.x; t < 1024; t += 256) {
          u32 i = t >> 4, j = t & 15;
          lhs[j][i] = m0 + i < o.m && k0 + j < o.k ? o.lhs(m0 + i, k0 + j) : 0;
        }
        for (u32 t = threadIdx.x; t < 1024; t += 256) {
          u32 i = t >> 6, j = t & 63;
          rhs[i][j] = k0 + i < o.k && n0 + j < o.n ? o.rhs(k0 + i, n0 + j) : 0;
        }
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < 16; k++) {
          u64 a[4], b[4];
#pragma unroll
          for (u32 i = 0; i < 4; i++) { a[i] = lhs[k][ty + 16 * i]; b[i] = rhs[k][tx + 16 * i]; }
#pragma unroll
          for (u32 i = 0; i < 4; i++)
#pragma unroll
            for (u32 j = 0; j < 4; j++) acc[i][j] += a[i] * b[j];
        }
        __syncthreads();
      }
#pragma unroll
      for (u32 i = 0; i < 4; i++)
#pragma unroll
        for (u32 j = 0; j < 4; j++) memory[(ty + 16 * i) * 66 + tx + 16 * j] = acc[i][j];
      finish<64, 64>(out, memory, 66, m0, n0, o, addends);
      __syncthreads();
    }
}

#define PRODUCT(NAME, OPERANDS, PARAMS)                                                                  \
  extern "C" __global__ void __launch_bounds__(256, 2) NAME(u64 *out, const u64 *x, const u64 *y,        \
                                                            const PARAMS p, const Addends addends) {      \
    tiled(out, OPERANDS(x, y, p), addends);                                                              \
  }

PRODUCT(matmul_int, MatMulOperands, MatMul)
PRODUCT(conv_int, ConvOperands, Conv)
PRODUCT(conv_input_grad_int, InputGradOperands, Conv)
PRODUCT(conv_weight_grad_int, WeightGradOperands, Conv)
