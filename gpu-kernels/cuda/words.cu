// Moves, sums, bit planes and pseudo-random streams of 64-bit words.
//
// Every kernel strides over its work, so that any grid is right. Sizes are 64-bit; index arithmetic
// inside a tensor of fewer than 2^32 words stays in 32 bits.
#include "common.cuh"

// ---- moves ----------------------------------------------------------------------------------------

// Where each output word comes from. Input axis i is read at
//   base[i] + sum over output axes j of coef[i][j] * o[j],
// and the word is `fill` where that leaves 0..len[i].
struct Move {
  u64 words, fill;
  u32 out_rank, in_rank;
  u32 dims[8];
  i32 base[8], len[8];
  i32 coef[8][8];
  i64 stride[8];
};

extern "C" __global__ void move_words(u64 *out, const u64 *in, const Move m) {
  STRIDE(i, m.words) {
    u32 at[8];
    u64 rest = i;
#pragma unroll
    for (int j = 7; j >= 0; j--) {
      if (j >= (int)m.out_rank) { at[j] = 0; continue; }
      u64 q = rest / m.dims[j];
      at[j] = (u32)(rest - q * m.dims[j]);
      rest = q;
    }
    i64 offset = 0;
    bool inside = true;
#pragma unroll
    for (int k = 0; k < 8; k++) {
      if (k >= (int)m.in_rank) break;
      i32 p = m.base[k];
#pragma unroll
      for (int j = 0; j < 8; j++) p += m.coef[k][j] * (i32)at[j];
      inside = inside && p >= 0 && p < m.len[k];
      offset += p * m.stride[k];
    }
    out[i] = inside ? in[offset] : m.fill;
  }
}

// out[o][i][k] = in[o][indices[i]][k]
extern "C" __global__ void gather_words(u64 *out, const u64 *in, const u64 *indices, u64 words,
                                        u64 count, u64 length, u64 inner) {
  STRIDE(i, words) {
    u64 k = i % inner, rest = i / inner, j = rest % count, o = rest / count;
    out[i] = in[(o * length + indices[j]) * inner + k];
  }
}

// Rows of `row` words to rows `out_row` apart, the first at `offset`.
extern "C" __global__ void place_rows(u64 *out, const u64 *in, u64 words, u64 row, u64 out_row, u64 offset) {
  STRIDE(i, words) { out[i / row * out_row + offset + i % row] = in[i]; }
}

extern "C" __global__ void fill_words(u64 *out, u64 words, u64 value) {
  STRIDE(i, words) { out[i] = value; }
}

// ---- sums -----------------------------------------------------------------------------------------

// Output axes, then summed axes, each with its stride in the input.
struct Sum {
  u64 words, terms;
  u32 out_rank, sum_rank;
  u32 out_dims[8], sum_dims[8];
  u64 out_stride[8], sum_stride[8];
};

__device__ __forceinline__ u64 walk(u64 index, u32 rank, const u32 *dims, const u64 *stride) {
  u64 offset = 0;
#pragma unroll
  for (int j = 7; j >= 0; j--) {
    if (j >= (int)rank) continue;
    u64 q = index / dims[j];
    offset += (index - q * dims[j]) * stride[j];
    index = q;
  }
  return offset;
}

// One thread an output word: for many outputs.
extern "C" __global__ void sum_words(u64 *out, const u64 *in, const Sum s) {
  STRIDE(i, s.words) {
    u64 start = walk(i, s.out_rank, s.out_dims, s.out_stride), total = 0;
    for (u64 t = 0; t < s.terms; t++) total += in[start + walk(t, s.sum_rank, s.sum_dims, s.sum_stride)];
    out[i] = total;
  }
}

// One block an output word: for long sums. Blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(256) sum_words_long(u64 *out, const u64 *in, const Sum s) {
  __shared__ u64 part[8];
  for (u64 i = blockIdx.x; i < s.words; i += gridDim.x) {
    u64 start = walk(i, s.out_rank, s.out_dims, s.out_stride), total = 0;
    for (u64 t = threadIdx.x; t < s.terms; t += blockDim.x)
      total += in[start + walk(t, s.sum_rank, s.sum_dims, s.sum_stride)];
    for (int k = 16; k; k >>= 1) total += __shfl_xor_sync(~0u, total, k);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
      total = 0;
      for (u32 w = 0; w < blockDim.x >> 5; w++) total += part[w];
      out[i] = total;
    }
    __syncthreads();
  }
}

// [planes][H][W] to [planes][OH][OW]: sums under a window, words outside the input being 0.
struct WindowSum {
  u64 words;
  i32 h, w, oh, ow, kh, kw, sh, sw, pt, pl, dh, dw;
};

extern "C" __global__ void window_sum(u64 *out, const u64 *in, const WindowSum s) {
  STRIDE(i, s.words) {
    i32 x = (i32)(i % s.ow), y = (i32)(i / s.ow % s.oh);
    u64 plane = i / s.ow / s.oh, total = 0;
    for (i32 a = 0; a < s.kh; a++) {
      i32 r = y * s.sh - s.pt + a * s.dh;
      if (r < 0 || r >= s.h) continue;
      for (i32 b = 0; b < s.kw; b++) {
        i32 c = x * s.sw - s.pl + b * s.dw;
        if (c >= 0 && c < s.w) total += in[(plane * s.h + r) * s.w + c];
      }
    }
    out[i] = total;
  }
}

// ---- bit planes -----------------------------------------------------------------------------------

// Bits low..low+width of n words as planes of ceil(n / 64) words. Blocks of 256 threads (8 warps); a
// block makes 32 words of every plane, each warp four of them, and stores them row by row.
extern "C" __global__ void __launch_bounds__(256) to_planes(u64 *out, const u64 *in, u64 n, u32 low, u32 width) {
  __shared__ u64 tile[64][33];
  u64 words = (n + 63) / 64;
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (u64 first = (u64)blockIdx.x * 32; first < words; first += (u64)gridDim.x * 32) {
    for (u32 k = 0; k < 4; k++) {
      u64 w = first + warp * 4 + k, e = w * 64 + lane;
      u64 x = e < n ? in[e] >> low : 0, y = e + 32 < n ? in[e + 32] >> low : 0;
      for (u32 j = 0; j < width; j++) {
        u32 a = __ballot_sync(~0u, (x >> j) & 1), b = __ballot_sync(~0u, (y >> j) & 1);
        if (lane == (j & 31)) tile[j][warp * 4 + k] = (u64)b << 32 | a;
      }
    }
    __syncthreads();
    for (u32 j = warp; j < width; j += 8)
      if (first + lane < words) out[j * words + first + lane] = tile[j][lane];
    __syncthreads();
  }
}

// The inverse: n words with plane j at bit low + j.
extern "C" __global__ void __launch_bounds__(256) from_planes(u64 *out, const u64 *in, u64 n, u32 low, u32 width) {
  __shared__ u64 tile[64][33];
  u64 words = (n + 63) / 64;
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (u64 first = (u64)blockIdx.x * 32; first < words; first += (u64)gridDim.x * 32) {
    for (u32 j = warp; j < width; j += 8) tile[j][lane] = first + lane < words ? in[j * words + first + lane] : 0;
    __syncthreads();
    for (u32 k = 0; k < 4; k++) {
      u32 w = warp * 4 + k;
      u64 e = (first + w) * 64 + lane, x = 0, y = 0;
      for (u32 j = 0; j < width; j++) {
        u64 t = tile[j][w];
        x |= ((t >> lane) & 1) << j;
        y |= ((t >> (lane + 32)) & 1) << j;
      }
      if (e < n) out[e] = x << low;
      if (e + 32 < n) out[e + 32] = y << low;
    }
    __syncthreads();
  }
}

// ---- pseudo-random streams --------------------------------------------------------------------------

// Words first..first+n of a ChaCha stream: block b holds words 8 b .. 8 b + 7.
template <int ROUNDS>
__device__ __forceinline__ void chacha_fill(u64 *out, const Key &key, u64 nonce, u64 first, u64 n) {
  u64 blocks = (first + n + 7) / 8 - first / 8;
  STRIDE(i, blocks) {
    u32 x[16];
    chacha_block<ROUNDS / 2>(x, key, first / 8 + i, nonce, ROUNDS);
    u64 at = (first / 8 + i) * 8;
#pragma unroll
    for (int j = 0; j < 8; j++)
      if (at + j >= first && at + j < first + n) out[at + j - first] = (u64)x[2 * j + 1] << 32 | x[2 * j];
  }
}

extern "C" __global__ void chacha12_fill(u64 *out, const Key key, u64 nonce, u64 first, u64 n) {
  chacha_fill<12>(out, key, nonce, first, n);
}

extern "C" __global__ void chacha20_fill(u64 *out, const Key key, u64 nonce, u64 first, u64 n) {
  chacha_fill<20>(out, key, nonce, first, n);
}

// Philox4x32-10, not secure: block b holds words 2 b and 2 b + 1.
extern "C" __global__ void philox_fill(u64 *out, u32 key0, u32 key1, u64 nonce, u64 first, u64 n) {
  u64 blocks = (first + n + 1) / 2 - first / 2;
  STRIDE(i, blocks) {
    u64 b = first / 2 + i;
    u32 x0 = (u32)b, x1 = (u32)(b >> 32), x2 = (u32)nonce, x3 = (u32)(nonce >> 32), k0 = key0, k1 = key1;
#pragma unroll
    for (int r = 0; r < 10; r++) {
      u32 h0 = __umulhi(0xD2511F53u, x0), l0 = 0xD2511F53u * x0;
      u32 h1 = __umulhi(0xCD9E8D57u, x2), l1 = 0xCD9E8D57u * x2;
      x0 = h1 ^ x1 ^ k0; x1 = l1; x2 = h0 ^ x3 ^ k1; x3 = l0;
      k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    if (2 * b >= first && 2 * b < first + n) out[2 * b - first] = (u64)x1 << 32 | x0;
    if (2 * b + 1 >= first && 2 * b + 1 < first + n) out[2 * b + 1 - first] = (u64)x3 << 32 | x2;
  }
}

// The table T0 of AES: (2 s, s, s, 3 s) of the S-box s, from the most significant byte down.
struct Table {
  u32 words[256];
};

constexpr u32 times(u32 a, u32 b) {
  u32 product = 0;
  for (int i = 0; i < 8; i++) {
    if (b >> i & 1) product ^= a;
    a = (a << 1 & 255) ^ (a >> 7 ? 0x1b : 0);
  }
  return product;
}

constexpr Table make_table() {
  Table t{};
  for (u32 x = 0; x < 256; x++) {
    // The inverse in GF(2^8) is the 254th power.
    u32 inverse = 1, power = x;
    for (int bit = 1; bit < 8; bit++) {
      power = times(power, power);
      inverse = times(inverse, power);
    }
    u32 s = 0x63;
    for (int k = 0; k < 5; k++) s ^= (inverse << k | inverse >> (8 - k)) & 255;
    t.words[x] = times(s, 2) << 24 | s << 16 | s << 8 | times(s, 3);
  }
  return t;
}

__constant__ const Table T0 = make_table();

struct Schedule {
  u32 words[44];
};

// AES-128 in counter mode, big-endian counter blocks nonce | b; block b holds words 2 b and 2 b + 1.
// `schedule` holds the round keys as big-endian words. Every lane looks up its own copy of the table, so
// that the banks it touches, and with them the time, do not depend on the data.
extern "C" __global__ void __launch_bounds__(256) aes128_fill(u64 *out, const Schedule schedule, u64 nonce,
                                                              u64 first, u64 n) {
  __shared__ u32 t0[256 * 32];
  __shared__ u32 keys[44];
  for (u32 i = threadIdx.x; i < 256 * 32; i += blockDim.x) t0[i] = T0.words[i >> 5];
  if (threadIdx.x == 0)
    for (u32 i = 0; i < 44; i++) keys[i] = schedule.words[i];
  __syncthreads();
  u32 lane = threadIdx.x & 31;
  auto look = [&](u32 byte) { return t0[(byte << 5) | lane]; };
  auto ror = [](u32 v, int s) { return __funnelshift_r(v, v, s); };
  // The S-box is the second byte of T0: T0[x] = (2 s, s, s, 3 s).
  auto sbox = [&](u32 byte) { return (look(byte) >> 8) & 255; };
  u64 blocks = (first + n + 1) / 2 - first / 2;
  STRIDE(i, blocks) {
    u64 b = first / 2 + i;
    u32 s[4] = {(u32)(nonce >> 32) ^ keys[0], (u32)nonce ^ keys[1], (u32)(b >> 32) ^ keys[2], (u32)b ^ keys[3]};
#pragma unroll
    for (int r = 1; r < 10; r++) {
      u32 t[4];
#pragma unroll
      for (int c = 0; c < 4; c++)
        t[c] = look(s[c] >> 24) ^ ror(look((s[(c + 1) & 3] >> 16) & 255), 8) ^
               ror(look((s[(c + 2) & 3] >> 8) & 255), 16) ^ ror(look(s[(c + 3) & 3] & 255), 24) ^ keys[4 * r + c];
#pragma unroll
      for (int c = 0; c < 4; c++) s[c] = t[c];
    }
    u32 o[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
      u32 v = sbox(s[c] >> 24) << 24 | sbox((s[(c + 1) & 3] >> 16) & 255) << 16 |
              sbox((s[(c + 2) & 3] >> 8) & 255) << 8 | sbox(s[(c + 3) & 3] & 255);
      o[c] = __byte_perm(v ^ keys[40 + c], 0, 0x0123);
    }
    if (2 * b >= first && 2 * b < first + n) out[2 * b - first] = (u64)o[1] << 32 | o[0];
    if (2 * b + 1 >= first && 2 * b + 1 < first + n) out[2 * b + 1 - first] = (u64)o[3] << 32 | o[2];
  }
}
