// Products over Z_2^64 on Hopper's tensor cores (`sm_90a`): limbs multiplied by `wgmma`.
//
// Eight accumulators of a 64x96 tile are 384 registers for each thread of a warp group, more than it can hold.
// Two warp groups therefore share the tile and divide the diagonals: 0, 1, 6, 7 and 2, 3, 4, 5 have 18 products
// each, and four accumulators are 192 registers a thread. Every instruction is m64n96k32, so that sums into one
// accumulator are in order by themselves. A step of both operands is two runs of memory, which the copy engine
// brings; the copies of four steps are under way while one is multiplied.
#include "limbs.cuh"

static const u32 ROWS = 64, COLS = 96, STAGES = 5, PITCH = COLS + 2;
static const u32 LEFT = tile_bytes(ROWS), RIGHT = tile_bytes(COLS), STAGE = LEFT + RIGHT;

// d += a * b for 64x32 bytes and 96x32 bytes.
__device__ __forceinline__ void wgmma_u8(u32 (&d)[48], u64 a, u64 b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n96k32.s32.u8.u8 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
      "}, %48, %49, p;}"
      :
        "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]),
        "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]),
        "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]),
        "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]),
        "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]),
        "+r"(d[30]), "+r"(d[31]), "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]),
        "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]), "+r"(d[41]),
        "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47])
      : "l"(a), "l"(b));
}

// A descriptor of rows of 32 bytes that lie as `limbs.cuh` says: no swizzle, 128 bytes from one half of the
// columns to the other, 256 from eight rows to the next (PTX ISA, "matrix descriptor format").
__device__ __forceinline__ u64 descriptor(u32 address) {
  return (u64)(address >> 4 & 0x3fff) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
}

__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
  u32 done;
  do
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  while (!done);
}

// Brings `bytes` from device memory; `barrier` counts them.
__device__ __forceinline__ void copy_bulk(u32 to, const u8 *from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// The operands in device memory, from this block's tiles on, and in shared memory.
struct Pipeline {
  const u8 *lhs, *rhs;
  u32 stages, barriers, steps;

  __device__ void load(u32 step) const {
    if (threadIdx.x || step >= steps) return;
    u32 to = stages + step % STAGES * STAGE, barrier = barriers + step % STAGES * 8;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(STAGE) : "memory");
    copy_bulk(to, lhs + (u64)step * LEFT, LEFT, barrier);
    copy_bulk(to + LEFT, rhs + (u64)step * RIGHT, RIGHT, barrier);
  }
};

// The sums of four diagonals over all steps, weighted, added to `tile` or stored there.
template <u32 D0, u32 D1, u32 D2, u32 D3>
__device__ __forceinline__ void diagonals(u64 *tile, const Pipeline &pipe, bool first) {
  u32 acc[4][48] = {};
  const u32 diagonal[4] = {D0, D1, D2, D3};
  for (u32 s = 0; s < pipe.steps; s++) {
    wait_for(pipe.barriers + s % STAGES * 8, s / STAGES & 1);
    u32 stage = pipe.stages + s % STAGES * STAGE;
    u64 a = descriptor(stage), b = descriptor(stage + LEFT);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (u32 i = 0; i < 8; i++)
#pragma unroll
      for (u32 d = 0; d < 4; d++)
        if (i <= diagonal[d])
          wgmma_u8(acc[d], a + i * (ROWS * DEEP >> 4), b + (diagonal[d] - i) * (COLS * DEEP >> 4));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    // The step before is done in both warp groups; its stage takes a later one.
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    asm volatile("bar.sync 0;" ::: "memory");
    if (s > 0) pipe.load(s - 1 + STAGES);
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (u32 d = 0; d < 4; d++)
#pragma unroll
    for (u32 e = 0; e < 48; e++) asm volatile("" : "+r"(acc[d][e])::"memory");
  // The stages become the block's results.
  asm volatile("bar.sync 0;" ::: "memory");
  u32 warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  auto put = [&](bool store) {
#pragma unroll
    for (u32 e = 0; e < 48; e++) {
      u64 v = 0;
#pragma unroll
      for (u32 d = 0; d < 4; d++) v += (u64)acc[d][e] << (8 * diagonal[d]);
      u32 r = warp * 16 + (lane >> 2) + (e >> 1 & 1) * 8, c = (e >> 2) * 8 + (lane & 3) * 2 + (e & 1);
      u64 *to = &tile[r * PITCH + c];
      *to = store ? v : *to + v;
    }
  };
  if (first) put(true);
  asm volatile("bar.sync 0;" ::: "memory");
  if (!first) put(false);
}

// 64x96 results a block of two warp groups; 200 KiB of shared memory.
template <class Operands>
__device__ __forceinline__ void limb_product(u64 *out, const u8 *lhs, const u8 *rhs, const Part &p,
                                             const Operands &o, const Addends &addends) {
  extern __shared__ __align__(128) u8 stages[];
  __shared__ __align__(8) u64 barriers[STAGES];
  u32 row_tile, col_tile;
  this_tile(p, row_tile, col_tile);
  Pipeline pipe;
  pipe.lhs = lhs + ((u64)blockIdx.z * p.row_tiles + row_tile) * p.steps * LEFT;
  pipe.rhs = rhs + ((u64)blockIdx.z * p.col_tiles + col_tile) * p.steps * RIGHT;
  pipe.stages = (u32)__cvta_generic_to_shared(stages);
  pipe.barriers = (u32)__cvta_generic_to_shared(barriers);
  pipe.steps = p.steps;
  if (threadIdx.x == 0) {
#pragma unroll
    for (u32 s = 0; s < STAGES; s++)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(pipe.barriers + s * 8) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  for (u32 s = 0; s < STAGES; s++) pipe.load(s);
  u64 *tile = (u64 *)stages;
  if (threadIdx.x < 128)
    diagonals<7, 6, 1, 0>(tile, pipe, true);
  else
    diagonals<5, 4, 3, 2>(tile, pipe, false);
  finish<ROWS, COLS>(out, tile, PITCH, p.row + row_tile * ROWS, p.col + col_tile * COLS, o, addends);
}

LIMB_PRODUCT(matmul_wgmma, MatMulOperands, MatMul)
LIMB_PRODUCT(conv_wgmma, ConvOperands, Conv)
LIMB_PRODUCT(conv_input_grad_wgmma, InputGradOperands, Conv)
LIMB_PRODUCT(conv_weight_grad_wgmma, WeightGradOperands, Conv)
