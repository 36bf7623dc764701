// experts_int8.cu - products of up to 16 rows with the experts that they chose: each active expert's weights
// are read once.
//
// Computes the tasks of experts_cuda.h. Bound by reading the weights.
//
//              k: blocks of 32 columns, one a lane in turn
//   expert a: +----+----+-- --+----+
//   pair 0    | l0 | l1 | ... | l31|     4 to 32 lanes read both rows of a pair, and multiply them with all
//   pair 1    +----+----+-- --+----+     rows of activations that chose the expert, four at a time
//   expert b: ...                        persistent: one block an SM; warps take tasks of all experts in turn
//
// Pipeline: none; the number of warps hides the latency of memory. Every block finds the distinct experts of
// the step's entries itself: at most 512 ids, one a thread. Activations are int8 with a scale for each 32: a
// single row is packed by every block itself, in shared memory; more rows by experts_pack_int8, and come from
// the caches. The order of a sum depends on n_cols and the format alone.
// Epilogue: from registers: bias, then the activation of gate and up, or two outputs of down.
#include "gemm/cuda/row_plain.cuh"
#include "ops/experts/experts_pack.cuh"

enum { TOGETHER = 4, NO_ENTRY = 0xffff };

// The entries of each distinct expert as a chain, in order.
struct chains {
    u16 expert[EXPERTS_INT8_THREADS], next[EXPERTS_INT8_THREADS]; // by entry
    u16 head[EXPERTS_INT8_THREADS];                               // of chain i: its first entry
    u32 found[EXPERTS_INT8_THREADS / 32];                         // chains that begin in a warp's entries
};

// Returns the number of chains.
static __device__ __forceinline__ u32 find_chains(const struct experts_params &p, struct chains &c,
                                                  u32 n_entries)
{
    u32 entry = threadIdx.x, warp = threadIdx.x / 32, next = NO_ENTRY, n = 0, before = 0;
    bool begins = entry < n_entries;

    c.expert[entry] = begins && p.ids ? (u16)p.ids[entry] : 0;
    __syncthreads();
    for (u32 i = 0; i < n_entries; i++) {
        bool same = c.expert[i] == c.expert[entry];
        begins = begins && !(same && i < entry);
        next = same && i > entry ? min(next, i) : next;
    }
    c.next[entry] = (u16)next;
    u32 ballot = __ballot_sync(~0u, begins);
    c.found[warp] = __popc(ballot);
    __syncthreads();
    for (u32 i = 0; i < EXPERTS_INT8_THREADS / 32; i++) {
        before += i < warp ? c.found[i] : 0;
        n += c.found[i];
    }
    if (begins)
        c.head[before + __popc(ballot & ((1u << threadIdx.x % 32) - 1))] = (u16)entry;
    __syncthreads();
    return n;
}

struct together { // rows that a task multiplies at a time
    u8 *packed;
    u32 entry[TOGETHER];
    float2 sum[TOGETHER];
};

// Blocks are loaded in groups, as many as registers allow, before any is multiplied.
template <u32 F>
static __device__ __forceinline__ void multiply(const struct experts_params &p, const struct experts_task &t,
                                                struct together &b, struct lane_span s)
{
    constexpr u32 group = F == QUANT_Q4_0 || F == QUANT_Q4_1                                        ? 4
                          : F == QUANT_Q5_0 || (layout_has_table(F) && !layout_has_super_blocks(F)) ? 3
                                                                                                    : 2;
    u32 n_blocks = p.n_cols / 32;

    for (u32 base = s.lane; base < n_blocks; base += group * s.lanes) {
        struct packed<F> first[group], second[group];
#pragma unroll
        for (u32 i = 0; i < group; i++) {
            u32 block = min(base + i * s.lanes, n_blocks - 1);
            first[i] = load_block<F>(p.w[0], t.row[0], block);
            second[i] = load_block<F>(p.w[1], t.row[1], block);
        }
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            if (b.entry[r] == NO_ENTRY)
                break;
            struct row_int8 x = row_int8_at(experts_packed_at(p, b.packed, b.entry[r]), n_blocks);
#pragma unroll
            for (u32 i = 0; i < group; i++) {
                u32 block = base + i * s.lanes;
                if (block >= n_blocks)
                    break;
                struct facing<F> f = face<F>(x, block);
                b.sum[r].x = dot_block<F>(first[i], f, b.sum[r].x);
                b.sum[r].y = dot_block<F>(second[i], f, b.sum[r].y);
            }
        }
    }
}

// Sums over the lanes of the task; all lanes of the warp take part.
static __device__ __forceinline__ float2 sum_over(float2 v, struct lane_span s)
{
    for (u32 o = s.lanes / 2; o; o >>= 1) {
        v.x += __shfl_xor_sync(~0u, v.x, o);
        v.y += __shfl_xor_sync(~0u, v.y, o);
    }
    return v;
}

template <u32 F>
static __device__ __forceinline__ void run_chain(const struct experts_params &p, const struct chains &c,
                                                 const struct experts_task &t, u32 head, u8 *packed,
                                                 struct lane_span s)
{
    for (u32 entry = head; __any_sync(~0u, entry != NO_ENTRY);) {
        struct together b = { packed };
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            b.entry[r] = entry;
            entry = entry == NO_ENTRY ? NO_ENTRY : c.next[entry];
        }
        multiply<F>(p, t, b, s);
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            if (!__any_sync(~0u, b.entry[r] != NO_ENTRY))
                break;
            float2 sum = sum_over(b.sum[r], s);
            if (s.lane == 0 && b.entry[r] != NO_ENTRY)
                experts_store(p, t, b.entry[r], sum);
        }
    }
}

template <u32 F> static __device__ __forceinline__ void experts_int8(const struct experts_params &p)
{
    extern __shared__ __align__(16) unsigned char rows[];
    __shared__ struct chains c;
    u8 *packed = p.packed ? p.packed : rows;
    u32 lane = threadIdx.x % 32, per_warp = 32 / p.lanes,
        step = gridDim.x * (EXPERTS_INT8_THREADS / 32) * per_warp;

    wait_for_inputs();
    for (u32 i = 0; !p.packed && i < p.step->n_rows * (p.slot_stride ? p.n_slots : 1); i++)
        experts_quantise(p, i, packed);
    u32 n_tasks = find_chains(p, c, experts_n_entries(p)) * p.n_pairs;
    for (u32 at = (blockIdx.x * (EXPERTS_INT8_THREADS / 32) + threadIdx.x / 32) * per_warp; at < n_tasks;
         at += step) {
        u32 mine = min(at + lane / p.lanes, n_tasks - 1), chain = mine / p.n_pairs, head = c.head[chain];
        struct experts_task t = experts_task_of(p, c.expert[head], mine - chain * p.n_pairs);
        run_chain<F>(p, c, t, at + lane / p.lanes < n_tasks ? head : NO_ENTRY, packed,
                     { lane % p.lanes, p.lanes });
    }
}

#define EXPERTS_INT8(NAME, name, with)                                       \
    extern "C" __global__ void __launch_bounds__(EXPERTS_INT8_THREADS, 1)    \
        experts_int8_##name(const __grid_constant__ struct experts_params p) \
    {                                                                        \
        experts_int8<QUANT_##NAME>(p);                                       \
    }
QUANT_BLOCK_FORMATS(EXPERTS_INT8, )
