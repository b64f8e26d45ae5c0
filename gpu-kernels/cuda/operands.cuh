// Operands of products: where a matrix product, a convolution or a gradient finds element (i, k) of its
// left and (k, j) of its right matrix, and where element (i, j) of the result goes. blockIdx.z counts
// batches or groups.
#pragma once
#include "common.cuh"

// A pseudo-random mask: word i of the result meets word first + i of a ChaCha stream.
struct Mask {
  Key key;
  u64 nonce, first;
  u32 rounds, negate;
};

// Added to a result in the same pass: up to four tensors of its length and two masks, some subtracted.
struct Addends {
  const u64 *words[4];
  u32 count, negate, masks, reserved;
  Mask mask[2];
  __device__ u64 at(u64 i) const {
    u64 total = 0;
#pragma unroll
    for (u32 t = 0; t < 4; t++)
      if (t < count) total += negate >> t & 1 ? 0 - words[t][i] : words[t][i];
    return total;
  }
};

// A product of [m, k] and [k, n] for each of `batches`: element (i, j) of an operand at
// batch * step + i * row + j * col.
struct MatMul {
  u32 m, n, k, reserved;
  u64 a_step, a_row, a_col, b_step, b_row, b_col;
};

// A convolution's sizes; `groups` run in blockIdx.z, together with the images where they are separate.
struct Conv {
  u32 images, channels, outputs, groups;  // channels and outputs are those of one group
  i32 h, w, oh, ow, kh, kw, sh, sw, pt, pl, dh, dw;
};

struct MatMulOperands {
  const u64 *a, *b;
  const MatMul &p;
  u32 m, n, k;
  __device__ MatMulOperands(const u64 *a, const u64 *b, const MatMul &p)
      : a(a + blockIdx.z * p.a_step), b(b + blockIdx.z * p.b_step), p(p), m(p.m), n(p.n), k(p.k) {}
  __device__ u64 lhs(u32 i, u32 j) const { return a[i * p.a_row + j * p.a_col]; }
  __device__ u64 rhs(u32 i, u32 j) const { return b[i * p.b_row + j * p.b_col]; }
  __device__ u64 at(u32 i, u32 j) const { return ((u64)blockIdx.z * m + i) * n + j; }
};

// out[image][o][oh][ow] = sum over (c, kh, kw) of w[o][c][kh][kw] * x[image][c][..][..]
struct ConvOperands {
  const u64 *x, *w;
  const Conv &p;
  u32 m, n, k, group;
  __device__ ConvOperands(const u64 *x, const u64 *w, const Conv &p)
      : x(x), w(w), p(p), m(p.outputs), n(p.images * p.oh * p.ow), k(p.channels * p.kh * p.kw),
        group(blockIdx.z) {}
  __device__ u64 lhs(u32 i, u32 j) const { return w[((u64)group * m + i) * k + j]; }
  __device__ u64 rhs(u32 i, u32 j) const {
    u32 kw = i % p.kw, kh = i / p.kw % p.kh, c = i / p.kw / p.kh;
    u32 ow = j % p.ow, oh = j / p.ow % p.oh, image = j / p.ow / p.oh;
    i32 r = (i32)oh * p.sh - p.pt + (i32)kh * p.dh, s = (i32)ow * p.sw - p.pl + (i32)kw * p.dw;
    if (r < 0 || r >= p.h || s < 0 || s >= p.w) return 0;
    return x[(((u64)image * p.groups + group) * p.channels + c) * p.h * p.w + (u64)r * p.w + s];
  }
  __device__ u64 at(u32 i, u32 j) const {
    u32 pixel = j % (p.oh * p.ow), image = j / (p.oh * p.ow);
    return (((u64)image * p.groups + group) * m + i) * p.oh * p.ow + pixel;
  }
};

// dx[image][c][h][w] = sum over (o, kh, kw) of w[o][c][kh][kw] * dy[image][o][..][..]
struct InputGradOperands {
  const u64 *dy, *w;
  const Conv &p;
  u32 m, n, k, group;
  __device__ InputGradOperands(const u64 *dy, const u64 *w, const Conv &p)
      : dy(dy), w(w), p(p), m(p.channels), n(p.images * p.h * p.w), k(p.outputs * p.kh * p.kw),
        group(blockIdx.z) {}
  __device__ u64 lhs(u32 i, u32 j) const {
    u32 tap = j % (p.kh * p.kw), o = j / (p.kh * p.kw);
    return w[(((u64)group * p.outputs + o) * m + i) * p.kh * p.kw + tap];
  }
  __device__ u64 rhs(u32 i, u32 j) const {
    u32 kw = i % p.kw, kh = i / p.kw % p.kh, o = i / p.kw / p.kh;
    u32 s = j % p.w, r = j / p.w % p.h, image = j / p.w / p.h;
    i32 oh = (i32)r + p.pt - (i32)kh * p.dh, ow = (i32)s + p.pl - (i32)kw * p.dw;
    if (oh < 0 || ow < 0 || oh % p.sh || ow % p.sw) return 0;
    oh /= p.sh; ow /= p.sw;
    if (oh >= p.oh || ow >= p.ow) return 0;
    return dy[(((u64)image * p.groups + group) * p.outputs + o) * p.oh * p.ow + (u64)oh * p.ow + ow];
  }
  __device__ u64 at(u32 i, u32 j) const {
    u32 pixel = j % (p.h * p.w), image = j / (p.h * p.w);
    return (((u64)image * p.groups + group) * m + i) * p.h * p.w + pixel;
  }
};

// dw[o][c][kh][kw] = sum over (image, oh, ow) of dy[image][o][oh][ow] * x[image][c][..][..]
struct WeightGradOperands {
  const u64 *x, *dy;
  const Conv &p;
  u32 m, n, k, group;
  __device__ WeightGradOperands(const u64 *x, const u64 *dy, const Conv &p)
      : x(x), dy(dy), p(p), m(p.outputs), n(p.channels * p.kh * p.kw), k(p.images * p.oh * p.ow),
        group(blockIdx.z) {}
  __device__ u64 lhs(u32 i, u32 j) const {
    u32 pixel = j % (p.oh * p.ow), image = j / (p.oh * p.ow);
    return dy[(((u64)image * p.groups + group) * m + i) * p.oh * p.ow + pixel];
  }
  __device__ u64 rhs(u32 i, u32 j) const {
    u32 kw = j % p.kw, kh = j / p.kw % p.kh, c = j / p.kw / p.kh;
    u32 ow = i % p.ow, oh = i / p.ow % p.oh, image = i / p.ow / p.oh;
    i32 r = (i32)oh * p.sh - p.pt + (i32)kh * p.dh, s = (i32)ow * p.sw - p.pl + (i32)kw * p.dw;
    if (r < 0 || r >= p.h || s < 0 || s >= p.w) return 0;
    return x[(((u64)image * p.groups + group) * p.channels + c) * p.h * p.w + (u64)r * p.w + s];
  }
  __device__ u64 at(u32 i, u32 j) const { return ((u64)group * m + i) * n + j; }
};

// ---- the end of every product -------------------------------------------------------------------------

// Word `which` of a ChaCha block, without an array in local memory.
__device__ __forceinline__ u64 word_of(const u32 x[16], u32 which) {
  u32 low = 0, high = 0;
#pragma unroll
  for (u32 j = 0; j < 8; j++)
    if (j == which) {
      low = x[2 * j];
      high = x[2 * j + 1];
    }
  return (u64)high << 32 | low;
}

// Adds a mask to the results in `tile`. A thread takes eight columns of a row at a time, which lie in one
// block of the stream where the row starts at one, else in two.
template <u32 ROWS, u32 COLS, class Operands>
__device__ __forceinline__ void add_mask(u64 *tile, u32 pitch, u32 m0, u32 n0, const Operands &o, const Mask &mask) {
  for (u32 t = threadIdx.x; t < ROWS * COLS / 8; t += blockDim.x) {
    u32 r = t / (COLS / 8), c = t % (COLS / 8) * 8;
    u64 made = ~0ull;
    u32 x[16];
#pragma unroll 1
    for (u32 e = c; e < c + 8 && m0 + r < o.m && n0 + e < o.n; e++) {
      u64 position = mask.first + o.at(m0 + r, n0 + e);
      if (position >> 3 != made) {
        made = position >> 3;
        chacha_block<1>(x, mask.key, made, mask.nonce, mask.rounds);
      }
      u64 word = word_of(x, position & 7);
      tile[r * pitch + e] += mask.negate ? 0 - word : word;
    }
  }
}

// Stores the block's results, which lie in `tile`, with what is added to them.
template <u32 ROWS, u32 COLS, class Operands>
__device__ __forceinline__ void finish(u64 *out, u64 *tile, u32 pitch, u32 m0, u32 n0, const Operands &o,
                                       const Addends &addends) {
  __syncthreads();
  if (addends.masks) {
#pragma unroll 1
    for (u32 i = 0; i < addends.masks; i++) add_mask<ROWS, COLS>(tile, pitch, m0, n0, o, addends.mask[i]);
    __syncthreads();
  }
  for (u32 t = threadIdx.x; t < ROWS * COLS; t += blockDim.x) {
    u32 r = t / COLS, c = t % COLS;
    if (m0 + r >= o.m || n0 + c >= o.n) continue;
    u64 at = o.at(m0 + r, n0 + c);
    out[at] = tile[r * pitch + c] + addends.at(at);
  }
}
