// Types, the grid-stride loop and ChaCha, shared by all kernels.
#pragma once
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned char u8;
typedef long long i64;
typedef int i32;

#define STRIDE(i, n)                                                                                     \
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x)

struct Key {
  u32 words[8];
};

__device__ __forceinline__ u32 rotate_left(u32 x, int k) { return __funnelshift_l(x, x, k); }

__device__ __forceinline__ void quarter(u32 &a, u32 &b, u32 &c, u32 &d) {
  a += b; d = rotate_left(d ^ a, 16);
  c += d; b = rotate_left(b ^ c, 12);
  a += b; d = rotate_left(d ^ a, 8);
  c += d; b = rotate_left(b ^ c, 7);
}

// One block of the original ChaCha: 64-bit counter in words 12 and 13, 64-bit nonce in 14 and 15.
// `UNROLLED` double rounds at a time; all of them where the number of rounds is a constant.
template <int UNROLLED>
__device__ __forceinline__ void chacha_block(u32 x[16], const Key &key, u64 counter, u64 nonce, u32 rounds) {
  const u32 start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574,
                         key.words[0], key.words[1], key.words[2], key.words[3],
                         key.words[4], key.words[5], key.words[6], key.words[7],
                         (u32)counter, (u32)(counter >> 32), (u32)nonce, (u32)(nonce >> 32)};
#pragma unroll
  for (int i = 0; i < 16; i++) x[i] = start[i];
#pragma unroll UNROLLED
  for (u32 r = 0; r < rounds; r += 2) {
    quarter(x[0], x[4], x[8], x[12]);
    quarter(x[1], x[5], x[9], x[13]);
    quarter(x[2], x[6], x[10], x[14]);
    quarter(x[3], x[7], x[11], x[15]);
    quarter(x[0], x[5], x[10], x[15]);
    quarter(x[1], x[6], x[11], x[12]);
    quarter(x[2], x[7], x[8], x[13]);
    quarter(x[3], x[4], x[9], x[14]);
  }
#pragma unroll
  for (int i = 0; i < 16; i++) x[i] += start[i];
}
