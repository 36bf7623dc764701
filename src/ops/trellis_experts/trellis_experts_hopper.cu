// trellis_experts_hopper.cu - one row through its experts, of codes of the codebook MUL1, for Hopper; see
// trellis_experts.h.
//
//   trellis_experts_up    gate's and up's sums; each block turns what it needs of the row
//   trellis_experts_down  hidden numbers of these sums, which each block makes as it needs them, and down's
//   sums;
//                         the slots' sum, by the warp that comes last to 128 outputs
//
//   grid: (walkers, splits)
//
// Tiles and pipeline: trellis_experts_hopper.cuh. A block walks every walkers-th block of 128 outputs of all
// entries' matrices, in its split of the columns; which these are is known when the ids are. No block waits
// for another. Images of other architectures hold no such kernels.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "ops/trellis_experts/trellis_experts_hopper.cuh"
#include "ops/trellis_experts/trellis_experts_rows.cuh"

// A block of 128 outputs of a stack's matrix of an entry.
struct experts_column {
    u32 entry, stack, block;
};

template <u32 BITS, bool DOWN> struct experts_row {
    const struct trellis_experts_row_params &p;
    struct hopper_products<BITS> products;
    u32 n_in, n_out, n_columns, lane;

    __device__ __forceinline__ experts_row(const struct trellis_experts_row_params &params)
        : p(params),
          products((u32 *)trellis_shared, DOWN ? params.x.n_hidden : params.x.n_in, params.split_blocks),
          n_in(DOWN ? params.x.n_hidden : params.x.n_in), n_out(DOWN ? params.x.n_in : params.x.n_hidden),
          n_columns(params.x.n_slots * (DOWN ? 1 : 2) * (n_out / EXL3_BLOCK)), lane(threadIdx.x & 31)
    {
    }
    // Of down the slots of the same outputs lie beside each other.
    __device__ __forceinline__ struct experts_column at(u32 column) const
    {
        u32 blocks = n_out / EXL3_BLOCK, slots = p.x.n_slots;
        if (DOWN)
            return { column % slots, (u32)TRELLIS_DOWN, column / slots };
        return { column / blocks / 2, TRELLIS_GATE + column / blocks % 2, column % blocks };
    }
    __device__ __forceinline__ void begin_fetching(u32 column)
    {
        struct experts_column c = at(column);
        const u8 *stack = p.x.stacks[c.stack] + expert_of(p.x, c.entry) * exl3_bytes(n_in, n_out, BITS);
        products.begin_fetching((const u16 *)stack, n_out, c.block);
    }
    // What 128 columns are multiplied with, before it is turned.
    __device__ __forceinline__ void take_numbers(const struct experts_column &c, u32 block, f32 (&v)[4])
    {
        if (DOWN) {
            take_hidden(p.x, c.entry, block, v);
            return;
        }
        u32 first = block * EXL3_BLOCK + 4 * lane;
        const u16 *suh = factors_of(p.x, c.stack, expert_of(p.x, c.entry));
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            v[i] = first + i < p.x.n_cols ? __ldcg(p.x.in + first + i) * half_at(suh, first + i) : 0;
    }
    __device__ __forceinline__ void take_row(const struct experts_column &c)
    {
        records_meet(); // nobody reads the ones before
        for (u32 block = products.warp; block < products.n_blocks; block += TRELLIS_EXPERTS_WARPS) {
            f32 v[4];
            take_numbers(c, products.first_block + block, v);
            store_record(products.records + block, v, turn_128_most(v));
        }
        records_meet();
    }
    // By the eight warps.
    __device__ __forceinline__ void multiply()
    {
        u32 turn = 0;

        if (blockIdx.x < n_columns)
            begin_fetching(blockIdx.x);
        for (u32 column = blockIdx.x; column < n_columns; column += gridDim.x) {
            f32 sums[TRELLIS_HOPPER_TILES][2];
            take_row(at(column));
            products.multiply(sums);
            if (column + gridDim.x < n_columns)
                begin_fetching(column + gridDim.x);
            products.leave_sums(turn++, sums);
        }
    }

    // Whether all slots' and splits' sums of 128 outputs are there: this warp came last.
    __device__ __forceinline__ bool is_last(u32 block)
    {
        u32 before = 0;

        __threadfence();
        __syncwarp();
        if (lane == 0)
            before = atomicAdd(p.arrived + block, 1u);
        if (__shfl_sync(~0u, before, 0) + 1 < p.x.n_slots * p.n_splits)
            return false;
        __threadfence();
        if (lane == 0)
            p.arrived[block] = 0;
        return true;
    }
    __device__ __forceinline__ void add_slots(u32 block)
    {
        u32 first = block * EXL3_BLOCK + 4 * lane;
        f32 sums[4] = { 0, 0, 0, 0 };

        for (u32 s = 0; s < p.x.n_slots; s++) {
            const u16 *svh = factors_of(p.x, TRELLIS_DOWN, expert_of(p.x, s)) + n_in;
            f32 v[4], weight = p.x.weights[s];
            take_sums(p.sums + (u64)s * n_out + first, p.n_splits, p.sums_stride, v);
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                sums[i] += weight * (v[i] * half_at(svh, first + i));
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            if (first + i < p.x.n_cols) {
                f32 sum = sums[i] + (p.x.shared ? p.x.weights[p.x.n_slots] * p.x.shared[first + i] : 0);
                p.x.out[first + i] = (p.x.add ? p.x.add[first + i] : 0) + sum;
            }
    }
    // By the ninth.
    __device__ __forceinline__ void finish()
    {
        u32 turn = 0;

        for (u32 column = blockIdx.x; column < n_columns; column += gridDim.x) {
            struct experts_column c = at(column);
            u32 row = DOWN ? c.entry : c.entry * 2 + c.stack;
            f32 v[4];
            products.take_sums(turn++, v);
            f32 *to = p.sums + blockIdx.y * p.sums_stride + row * n_out + c.block * EXL3_BLOCK + 4 * lane;
            __stcg((float4 *)to, make_float4(v[0], v[1], v[2], v[3]));
            if (DOWN && is_last(c.block))
                add_slots(c.block);
        }
    }
};

#define EXPERTS_KERNEL(bits, name, down)                                                             \
    extern "C" __global__ void __launch_bounds__(TRELLIS_HOPPER_WARPS * 32, bits == 1 ? 2 : 3)       \
        trellis_experts_##name##_##bits(const __grid_constant__ struct trellis_experts_row_params p) \
    {                                                                                                \
        struct experts_row<bits, down> row(p);                                                       \
        wait_for_inputs();                                                                           \
        if (p.x.step->n_rows == 0)                                                                   \
            return;                                                                                  \
        if (row.products.warp < TRELLIS_EXPERTS_WARPS)                                               \
            row.multiply();                                                                          \
        else                                                                                         \
            row.finish();                                                                            \
    }
TRELLIS_EACH_WIDTH(EXPERTS_KERNEL, up, false)
TRELLIS_EACH_WIDTH(EXPERTS_KERNEL, down, true)
#endif
