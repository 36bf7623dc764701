// trellis_search.cu - a block of 16 inputs as EXL3: what is wanted of it, then the best path for each tile;
// see trellis_search.h. The same bits as the plain loop: costs are rounded as written, sums are in its order.
//
// trellis_search_wanted   a warp has one of the eight sums of 32 outputs, a thread the block's 16 rows of one
//                         output; l is brought to shared memory.   grid: (n_out / 32, matrices); block: 8
//                         warps
//
// trellis_search_BITS     a block finds the path of one tile, then of the next. It is bound by issuing
//                         instructions: 512 steps of 65,536 states, seven instructions each.
//
//                tails     0 .. RUN - 1 | RUN .. | ...       TAILS = 65536 >> BITS, in GROUPS rounds of all
//                threads
//   top 0                |  thread 0    |   1    | ...       A state is a tail with BITS bits, the top, above
//   it.
//   ...                  |              |        |           A thread keeps its states' values in registers,
//   two top 2^BITS - 1       |              |        |           in each, for all tiles.
//
// A step: each tail's best state, by the costs before the step of the tails that lead to it, which all of a
// run share. Costs lie in shared memory, twice; the tops that were chosen go to memory, [256, TAILS] a block.
// The ring is closed by two walks (trellis_path.h); one thread walks back.
#include "ops/trellis/trellis_decode.cuh"
#include "ops/trellis_search/trellis_search_cuda.h"

struct wanted_place { // in a matrix
    const f32 *l, *missed;
    u32 first; // row of the block
};

// Of all 16 rows that begin at i: sums[r] += l[i][r] * missed[i].
static __device__ __forceinline__ void add_rows(const struct trellis_search_params &p,
                                                const struct wanted_place &at, u32 i,
                                                double (&l)[EXL3_TILE][EXL3_TILE], double (&sums)[EXL3_TILE])
{
    const u32 lane = threadIdx.x % 32;
    f32 missed[EXL3_TILE];

#pragma unroll
    for (u32 k = 0; k < EXL3_TILE; k++)
        missed[k] = at.missed[(u64)(i + k) * p.n_out + blockIdx.x * TRELLIS_WANTED_OUTPUTS + lane];
#pragma unroll
    for (u32 k = lane / EXL3_TILE; k < EXL3_TILE; k += 2)
        l[k][lane % EXL3_TILE] = at.l[(u64)(i + k) * p.n_in + at.first + lane % EXL3_TILE];
    __syncwarp();
#pragma unroll
    for (u32 k = 0; k < EXL3_TILE; k++)
#pragma unroll
        for (u32 r = 0; r < EXL3_TILE; r++)
            sums[r] += l[k][r] * (double)missed[k];
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(TRELLIS_WANTED_THREADS)
    trellis_search_wanted(const __grid_constant__ struct trellis_search_params p)
{
    __shared__ double shared[TRELLIS_SEARCH_SUMS][EXL3_TILE][TRELLIS_WANTED_OUTPUTS]; // at first l, then sums
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, matrix = blockIdx.y;
    const u64 before = (u64)matrix * p.n_in;
    double sums[EXL3_TILE] = { 0 };

    wait_for_inputs();
    if (matrix >= p.step->n_rows)
        return;
    const struct wanted_place place = { p.l + before * p.n_in, p.missed + before * p.n_out,
                                        step_positions(p.step)[matrix] * EXL3_TILE };
    for (u32 i = place.first + (1 + warp) * EXL3_TILE; i < p.n_in; i += TRELLIS_SEARCH_SUMS * EXL3_TILE)
        add_rows(p, place, i, *(double(*)[EXL3_TILE][EXL3_TILE])shared[warp], sums);
#pragma unroll
    for (u32 r = 0; r < EXL3_TILE; r++)
        shared[warp][r][lane] = sums[r];
    __syncthreads();
    for (u32 r = warp; r < EXL3_TILE; r += TRELLIS_SEARCH_SUMS) {
        u64 at = (u64)r * p.n_out + blockIdx.x * TRELLIS_WANTED_OUTPUTS + lane;
        double all = p.w[(before + place.first) * p.n_out + at];
        for (u32 s = 0; s < TRELLIS_SEARCH_SUMS; s++)
            all += shared[s][r][lane];
        p.wanted[(u64)matrix * EXL3_TILE * p.n_out + at] = (f32)all;
    }
}

static __device__ __forceinline__ u32 two_values(const struct trellis_search_params &p, u32 first, u32 second)
{
    return p.factor ? two_of_halves(first, second, p.factor, p.more) : two_of_mul1(first, second);
}
struct search_shared {
    f32 wanted[TRELLIS_STEPS]; // in the ring's order
    u16 states[TRELLIS_STEPS];
    unsigned long long least; // a cost's bits, and its tail
    u32 tail;                 // over which the ring is closed
};

template <u32 BITS, bool IN_MEMORY> struct trellis_searcher {
    static constexpr u32 THREADS = trellis_search_threads(BITS), TOPS = 1u << BITS,
                         TAILS = (u32)TRELLIS_STATES >> BITS, OWN = TAILS / THREADS,
                         RUN = OWN < TOPS ? OWN : TOPS, GROUPS = OWN / RUN,
                         N = OWN * TOPS; // states of a thread

    const struct trellis_search_params &p;
    struct search_shared &shared;
    f32 *costs; // [2, TAILS]
    u8 *choices;
    u32 values[N / 2];

    __device__ __forceinline__ trellis_searcher(const struct trellis_search_params &params,
                                                struct search_shared &s)
        : p(params), shared(s)
    {
        costs = IN_MEMORY ? p.costs + (u64)blockIdx.x * 2 * TAILS : (f32 *)trellis_shared;
        choices = p.choices + (u64)blockIdx.x * TRELLIS_STEPS * TAILS;
#pragma unroll
        for (u32 i = 0; i < N; i += 2)
            values[i / 2] = two_values(p, state_of_place(i), state_of_place(i + 1));
    }

    // Of the thread's places: groups, in each the tops, of each a run.
    static __device__ __forceinline__ u32 first_tail(u32 group)
    {
        return (group * THREADS + threadIdx.x) * RUN;
    }
    static __device__ __forceinline__ u32 state_of_place(u32 i)
    {
        return i / RUN % TOPS * TAILS + first_tail(i / RUN / TOPS) + i % RUN;
    }

    // Kept as halves: outside of the loop over steps, where the compiler would convert them, they had no
    // room.
    __device__ __forceinline__ f32 value(u32 place)
    {
        if (place % 2 == 0)
            keep(values[place / 2]);
        float2 two = __half22float2(*(__half2 *)&values[place / 2]);
        return place % 2 ? two.y : two.x;
    }

    static __device__ __forceinline__ void put_choices(u8 *to, const u32 (&tops)[RUN])
    {
        if constexpr (RUN == 1) {
            to[0] = (u8)tops[0];
        } else if constexpr (RUN == 2) {
            *(u16 *)to = (u16)(tops[0] | tops[1] << 8);
        } else {
#pragma unroll
            for (u32 i = 0; i < RUN; i += 4)
                ((u32 *)to)[i / 4] = tops[i] | tops[i + 1] << 8 | tops[i + 2] << 16 | tops[i + 3] << 24;
        }
    }
    static __device__ __forceinline__ void put_costs(f32 *to, const f32 (&best)[RUN])
    {
        if constexpr (RUN % 4 == 0) {
#pragma unroll
            for (u32 i = 0; i < RUN; i += 4)
                ((float4 *)to)[i / 4] = make_float4(best[i], best[i + 1], best[i + 2], best[i + 3]);
        } else {
#pragma unroll
            for (u32 i = 0; i < RUN; i++)
                to[i] = best[i];
        }
    }

    __device__ __forceinline__ void step(const f32 *before, f32 *behind, u32 at)
    {
        const f32 wanted = shared.wanted[at];

#pragma unroll
        for (u32 g = 0; g < GROUPS; g++) {
            f32 best[RUN];
            u32 tops[RUN];
#pragma unroll
            for (u32 j = 0; j < RUN; j++) {
                best[j] = INFINITY;
                tops[j] = 0;
            }
#pragma unroll
            for (u32 top = 0; top < TOPS; top++) {
                const f32 from = before[(top * TAILS + first_tail(g)) >> BITS];
#pragma unroll
                for (u32 j = 0; j < RUN; j++) {
                    const f32 miss = value((g * TOPS + top) * RUN + j) - wanted,
                              cost = __fadd_rn(from, __fmul_rn(miss, miss));
                    if (cost < best[j]) {
                        best[j] = cost;
                        tops[j] = top;
                    }
                }
            }
            put_costs(behind + first_tail(g), best);
            put_choices(choices + at * TAILS + first_tail(g), tops);
        }
    }

    // All positions from `first` on, around the ring: an even number, so that the last costs lie where the
    // first ones did.
    __device__ __forceinline__ void walk(u32 first)
    {
#pragma unroll 1
        for (u32 i = 0; i < TRELLIS_STEPS; i++) {
            step(costs + i % 2 * TAILS, costs + (i + 1) % 2 * TAILS, (first + i) % TRELLIS_STEPS);
            __syncthreads();
        }
    }

    __device__ __forceinline__ u32 state_at(u32 position, u32 tail) const
    {
        return tail | (u32)choices[position * TAILS + tail] << (16 - BITS);
    }

    // The tail behind the last position on the best walk from the middle around, by the costs behind it.
    __device__ __forceinline__ void close_ring()
    {
        if (threadIdx.x == 0)
            shared.least = ~0ull;
        __syncthreads();
        for (u32 t = threadIdx.x; t < TAILS; t += THREADS)
            atomicMin(&shared.least, (unsigned long long)__float_as_uint(costs[t]) << 32 | t);
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 tail = (u32)shared.least;
            for (u32 at = TRELLIS_STEPS / 2; at-- > 0;)
                tail = state_at(at, tail) >> BITS;
            shared.tail = tail;
        }
        __syncthreads();
    }

    __device__ __forceinline__ void walk_back()
    {
        if (threadIdx.x == 0)
            for (u32 at = TRELLIS_STEPS, tail = shared.tail; at-- > 0;) {
                u32 state = state_at(at, tail);
                shared.states[at] = (u16)state;
                tail = state >> BITS;
            }
        __syncthreads();
    }

    // Two walks by the same instructions, which are many.
    __device__ __forceinline__ void find_states()
    {
#pragma unroll 1
        for (u32 closed = 0; closed < 2; closed++) {
            for (u32 t = threadIdx.x; t < TAILS; t += THREADS)
                costs[t] = !closed || t == shared.tail ? 0 : INFINITY;
            __syncthreads();
            walk(closed ? 0 : TRELLIS_STEPS / 2);
            if (!closed)
                close_ring();
        }
        walk_back();
    }

    // The low bits of each state, the highest bit of a word first.
    __device__ __forceinline__ void put_code(u32 *code) const
    {
        for (u32 i = threadIdx.x; i < 8 * BITS; i += THREADS) {
            u32 word = 0;
            for (u32 at = 32 * i; at < 32 * i + 32; at++)
                word = word << 1 | ((u32)shared.states[at / BITS] >> (BITS - 1 - at % BITS) & 1);
            code[i] = word;
        }
    }

    __device__ __forceinline__ void find(u32 matrix, u32 tile)
    {
        const u32 i = threadIdx.x, out = tile * EXL3_TILE + trellis_output_of(i % TRELLIS_STEPS),
                  in = trellis_input_of(i % TRELLIS_STEPS);
        const u64 before = (u64)matrix * p.n_in + step_positions(p.step)[matrix] * EXL3_TILE; // rows

        if (i < TRELLIS_STEPS)
            shared.wanted[i] = p.wanted[(u64)(matrix * EXL3_TILE + in) * p.n_out + out];
        find_states();
        put_code(p.codes + (before / EXL3_TILE * (p.n_out / EXL3_TILE) + tile) * 8 * BITS);
        if (i < TRELLIS_STEPS) {
            const u64 at = (before + in) * p.n_out + out;
            u32 value = two_values(p, shared.states[i], 0);
            p.missed[at] = p.w[at] - __half22float2(*(__half2 *)&value).x;
        }
        __syncthreads();
    }
};

template <u32 BITS, bool IN_MEMORY>
static __device__ __forceinline__ void trellis_search(const struct trellis_search_params &p)
{
    __shared__ struct search_shared shared;
    struct trellis_searcher<BITS, IN_MEMORY> s(p, shared);
    const u32 across = p.n_out / EXL3_TILE;

    wait_for_inputs();
    for (u32 i = blockIdx.x; i < p.step->n_rows * across; i += gridDim.x)
        s.find(i / across, i % across);
}

#define TRELLIS_SEARCH(bits, name, in_memory)                                                  \
    extern "C" __global__ void __launch_bounds__(trellis_search_threads(bits), 1)              \
        trellis_search_##name##_##bits(const __grid_constant__ struct trellis_search_params p) \
    {                                                                                          \
        trellis_search<bits, in_memory>(p);                                                    \
    }
TRELLIS_SEARCH(1, memory, true)
TRELLIS_SEARCH(2, memory, true)
TRELLIS_SEARCH(2, shared, false)
TRELLIS_SEARCH(3, shared, false)
TRELLIS_SEARCH(4, shared, false)
TRELLIS_SEARCH(5, shared, false)
TRELLIS_SEARCH(6, shared, false)
TRELLIS_SEARCH(7, shared, false)
TRELLIS_SEARCH(8, shared, false)
