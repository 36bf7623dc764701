// exchange.cu - all-reduce, all-gather and what the first rank tells the others, over peers' memory; see
// device/exchange_inbox.h.
//
// Each rank sends its numbers to every other one, which adds them up in the order of the ranks: one hop, and
// all hold the same bits. all_reduce_few takes four numbers a thread. all_reduce_many walks over its numbers,
// with as many blocks as the GPU holds at once: it sends a batch and adds up the one before the last, which
// came while it sent. No block waits for what another one of its rank sends.
#include "device/cuda/exchange.cuh"

enum { BATCHES_BEHIND = 2 };

template <u32 N> static __device__ __forceinline__ void reduce_few(const struct all_reduce_params &p)
{
    u64 i = (u64)blockIdx.x * EXCHANGE_THREADS + threadIdx.x, n = n_fours(p), turn = turn_of(p);

    wait_for_inputs();
    if (i >= n)
        return;
    uint4 own = sendable(p.v[i]), came[N];
    send(p.peers, own, turn, i);
    look<N>(p.peers, came, turn, i);
    p.v[i] = add_up<N>(p.peers, own, came, turn, i);
}

// The thread's fours i, i + stride, ... of a batch.
template <u32 BATCH>
static __device__ __forceinline__ void send_batch(const struct all_reduce_params &p, u64 turn, u64 i, u64 n)
{
    u64 stride = (u64)gridDim.x * EXCHANGE_THREADS;
    float4 v[BATCH];

#pragma unroll
    for (u32 k = 0; k < BATCH; k++)
        if (i + k * stride < n)
            v[k] = p.v[i + k * stride];
#pragma unroll
    for (u32 k = 0; k < BATCH; k++)
        if (i + k * stride < n)
            send(p.peers, sendable(v[k]), turn, i + k * stride);
}
template <u32 BATCH, u32 N>
static __device__ __forceinline__ void add_batch(const struct all_reduce_params &p, u64 turn, u64 i, u64 n)
{
    u64 stride = (u64)gridDim.x * EXCHANGE_THREADS;
    uint4 own[BATCH], came[BATCH][N];

#pragma unroll
    for (u32 k = 0; k < BATCH; k++)
        if (i + k * stride < n) {
            own[k] = sendable(p.v[i + k * stride]);
            look<N>(p.peers, came[k], turn, i + k * stride);
        }
#pragma unroll
    for (u32 k = 0; k < BATCH; k++)
        if (i + k * stride < n)
            p.v[i + k * stride] = add_up<N>(p.peers, own[k], came[k], turn, i + k * stride);
}

template <u32 N> static __device__ __forceinline__ void reduce_many(const struct all_reduce_params &p)
{
    constexpr u32 BATCH = N <= 4 ? 2 : 1; // loads in flight of a thread
    u64 first = (u64)blockIdx.x * EXCHANGE_THREADS + threadIdx.x, n = n_fours(p), turn = turn_of(p),
        step = (u64)gridDim.x * EXCHANGE_THREADS * BATCH, behind = BATCHES_BEHIND * step;

    wait_for_inputs();
    for (u64 i = first; i < n + behind; i += step) {
        if (i < n)
            send_batch<BATCH>(p, turn, i, n);
        if (i >= behind)
            add_batch<BATCH, N>(p, turn, i - behind, n);
    }
}

#define ALL_REDUCE(kind, n, blocks)                                                 \
    extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS, blocks)          \
        all_reduce_##kind##_##n(const __grid_constant__ struct all_reduce_params p) \
    {                                                                               \
        reduce_##kind<n>(p);                                                        \
    }
ALL_REDUCE(few, 2, EXCHANGE_FEW_BLOCKS)
ALL_REDUCE(few, 4, EXCHANGE_FEW_BLOCKS)
ALL_REDUCE(few, 8, EXCHANGE_FEW_BLOCKS)
ALL_REDUCE(many, 2, EXCHANGE_MANY_BLOCKS)
ALL_REDUCE(many, 4, EXCHANGE_MANY_BLOCKS)
ALL_REDUCE(many, 8, EXCHANGE_MANY_BLOCKS)

// The first rank puts the columns of all behind each other; four numbers may belong to two rows.
static __device__ __forceinline__ void put_part(const struct all_gather_params &p, float4 v, u32 r,
                                                u32 before, u64 i)
{
    u64 n = (u64)p.step->n_outputs * p.cols[r];
    f32 numbers[4] = { v.x, v.y, v.z, v.w };

#pragma unroll
    for (u32 k = 0; k < 4; k++)
        if (4 * i + k < n) {
            u64 row = (4 * i + k) / p.cols[r], col = (4 * i + k) % p.cols[r];
            p.whole[row * p.all + before + col] = numbers[k];
        }
}

extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS)
    all_gather(const __grid_constant__ struct all_gather_params p)
{
    u64 first = (u64)blockIdx.x * EXCHANGE_THREADS + threadIdx.x, stride = (u64)gridDim.x * EXCHANGE_THREADS;
    u32 before = 0;

    wait_for_inputs();
    for (u32 r = 0; r < p.peers.n; r++) {
        u64 n = ((u64)p.step->n_outputs * p.cols[r] + 3) / 4;
        for (u64 i = first; i < n; i += stride) {
            if (r == p.peers.rank && p.peers.rank > 0)
                peer_store(four_at(p.peers.to[0], i), sendable(p.own[i]));
            else if (r == 0 && p.peers.rank == 0)
                put_part(p, p.own[i], r, before, i);
            else if (p.peers.rank == 0) {
                uint4 *at = four_at(p.peers.from[r], i);
                put_part(p, floats_of(take(at, peer_load(at), p.peers, r)), r, before, i);
            }
        }
        before += p.cols[r];
    }
}

// Whether the token that the row draws is read by a later step: as op_sample has it.
static __device__ __forceinline__ bool tells_history(const struct step *s, u32 row, u32 stride)
{
    u32 next = step_positions(s)[row] + 1;

    return next < stride && !(row + 1 < s->n_rows && step_slots(s)[row + 1] == step_slots(s)[row] &&
                              step_positions(s)[row + 1] == next);
}

static __device__ __forceinline__ void take_token(const struct tell_params &p, u32 output)
{
    struct patience patience = { 0, 0 };
    u32 *at = (u32 *)p.peers.from[0] + output, token = peer_load(at), row = step_outputs(p.step)[output];

    while (token == EXCHANGE_EMPTY && !gives_up(patience, p.peers, 0))
        token = peer_load(at);
    peer_store(at, EXCHANGE_EMPTY);
    if (token < STEP_TOKEN_INVALID && token != EXCHANGE_EMPTY && tells_history(p.step, row, p.history_stride))
        p.history[(u64)step_slots(p.step)[row] * p.history_stride + step_positions(p.step)[row] + 1] = token;
}

extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS)
    tell(const __grid_constant__ struct tell_params p)
{
    wait_for_inputs();
    for (u32 i = threadIdx.x; i < p.step->n_outputs; i += EXCHANGE_THREADS) {
        if (p.peers.rank > 0) {
            take_token(p, i);
            continue;
        }
        bool draws = !(step_samples(p.step)[i].flags & SAMPLE_SKIP);
        for (u32 r = 1; r < p.peers.n; r++)
            peer_store((u32 *)p.peers.to[r] + i, draws ? p.results[i] : STEP_TOKEN_INVALID);
    }
}
