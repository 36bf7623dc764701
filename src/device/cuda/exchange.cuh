// exchange.cuh - how kernels send numbers to other ranks' GPUs, wait for theirs and add them up; see
// device/exchange_inbox.h.
//
// A wait gives up after two seconds and names the rank in the error word; later ones then give up at once.
// The host sees it with the step's results.
#pragma once
#include "device/cuda/exchange_cuda.h"
#include "device/cuda/kernel.cuh"
#include "device/cuda/peer.cuh"

#define PATIENCE_NS 2000000000ull

struct patience {
    u64 start;
    u32 tries;
};
static __device__ __forceinline__ bool gives_up(struct patience &p, const struct exchange_peers &peers,
                                                u32 sender)
{
    if (++p.tries & 0xfff)
        return false;
    u64 now = peer_clock_ns();
    if (p.start == 0)
        p.start = now;
    if (peer_load(peers.error) != 0)
        return true;
    if (now - p.start < PATIENCE_NS)
        return false;
    peer_store(peers.error, sender + 1);
    return true;
}

static __device__ __forceinline__ u32 sendable(f32 v)
{
    u32 bits = __float_as_uint(v);
    return bits == EXCHANGE_EMPTY ? 0 : bits;
}
static __device__ __forceinline__ uint4 sendable(float4 v)
{
    return make_uint4(sendable(v.x), sendable(v.y), sendable(v.z), sendable(v.w));
}
static __device__ __forceinline__ float4 floats_of(uint4 v)
{
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                       __uint_as_float(v.w));
}
static __device__ __forceinline__ bool has_come(uint4 v)
{
    return v.x != EXCHANGE_EMPTY && v.y != EXCHANGE_EMPTY && v.z != EXCHANGE_EMPTY && v.w != EXCHANGE_EMPTY;
}
static __device__ __forceinline__ uint4 *four_at(u64 base, u64 i)
{
    return (uint4 *)base + i;
}

// Four numbers that came; their place is empty again.
static __device__ __forceinline__ uint4 take(uint4 *at, uint4 v, const struct exchange_peers &peers,
                                             u32 sender)
{
    struct patience p = { 0, 0 };

    while (!has_come(v) && !gives_up(p, peers, sender))
        v = peer_load(at);
    peer_store(at, make_uint4(EXCHANGE_EMPTY, EXCHANGE_EMPTY, EXCHANGE_EMPTY, EXCHANGE_EMPTY));
    return v;
}

// The sum of all ranks' four numbers; came: a first look at what the others sent.
template <u32 N>
static __device__ __forceinline__ float4 add_up(const struct exchange_peers &peers, uint4 own,
                                                const uint4 (&came)[N], u64 turn, u64 i)
{
    float4 sum = make_float4(0, 0, 0, 0);

#pragma unroll
    for (u32 r = 0; r < N; r++) {
        if (r >= peers.n)
            break;
        float4 v =
            floats_of(r == peers.rank ? own : take(four_at(peers.from[r] + turn, i), came[r], peers, r));
        sum = r == 0 ? v : make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    return sum;
}

template <u32 N>
static __device__ __forceinline__ void look(const struct exchange_peers &peers, uint4 (&came)[N], u64 turn,
                                            u64 i)
{
#pragma unroll
    for (u32 r = 0; r < N; r++)
        if (r < peers.n && r != peers.rank)
            came[r] = peer_load(four_at(peers.from[r] + turn, i));
}

static __device__ __forceinline__ void send(const struct exchange_peers &peers, uint4 v, u64 turn, u64 i)
{
    for (u32 k = 1; k < peers.n; k++) { // the next rank first, so that not all send to one
        u32 r = peers.rank + k < peers.n ? peers.rank + k : peers.rank + k - peers.n;
        peer_store(four_at(peers.to[r] + turn, i), v);
    }
}

// Fours in use, and where this all-reduce's room is.
static __device__ __forceinline__ u64 n_fours(const struct all_reduce_params &p)
{
    return ((u64)n_rows_of(p.step, p.rows) * p.n_cols + 3) / 4;
}
static __device__ __forceinline__ u64 turn_of(const struct all_reduce_params &p)
{
    return (p.step->reserved[STEP_EXCHANGED] + p.index) % 2 * p.turn_bytes;
}
