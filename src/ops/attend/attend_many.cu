// attend_many.cu - attend.h for many rows with fp16 pages and heads of 64 or 128: tensor cores and online softmax (FlashAttention-2;
// Dao, 2023) over pages.
//
// A block takes one head and 64 rows of the step, a warp 16 of them. Rows may belong to several sequences: runs of neighbouring positions
// of one slot are handled one after the other, each over its own pages; other rows are masked out meanwhile. Four pages, 64 tokens, are in
// shared memory at a time and the next four on their way. K pages hold [dim][16 tokens] and V pages [token][dim]: both are the
// transposed operand that ldmatrix.trans reads. Both are swizzled in 16-byte words.
#include "device/cuda/kernel.cuh"
#include "ops/attend/attend_cuda.h"

enum { MANY_THREADS = 128, MANY_ROWS = 64, TILE_PAGES = 4 };
#define LOWEST (-1e30f)

struct run { // rows [first, end) of the block: one slot, rising positions
    u32 first, end, slot, position; // of the first row
};

static __device__ __forceinline__ void mma_f16(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void load_transposed(u32 (&r)[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}
static __device__ __forceinline__ void copy_16(u32 to, const void *from, bool exists)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0));
}
static __device__ __forceinline__ u32 two_halves(f32 low, f32 high)
{
    __half2 h = __floats2half2_rn(low, high);
    return *(u32 *)&h;
}

// Byte offsets within a page's K [dim][2 words] and V [16 tokens][D / 8 words].
static __device__ __forceinline__ u32 k_place(u32 dim, u32 half)
{
    return (dim * 2 + (half ^ (dim >> 2 & 1))) * 16;
}
template <u32 D> static __device__ __forceinline__ u32 v_place(u32 token, u32 word)
{
    return (token * (D / 8) + (word ^ (token & 7))) * 16;
}

template <u32 D> struct attention {
    const struct attend_params &p;
    u32 shared, kv_head;
    u32 q[D / 16][4];
    f32 out[D / 8][4];
    f32 top[2], total[2]; // of rows g and g + 8
    u32 position[2];      // ~0: not in this run

    static constexpr u32 page_bytes = PAGE_TOKENS * D * 2, tile_bytes = TILE_PAGES * page_bytes;

    // K of stage s lies at s * 2 tiles, V one tile further.
    __device__ __forceinline__ void fetch(const u32 *table, u32 first_page, u32 last, u32 stage)
    {
        const struct page_shape &shape = p.args.pages;
        u32 to = shared + stage * 2 * tile_bytes;
#pragma unroll
        for (u32 i = threadIdx.x; i < TILE_PAGES * D * 2; i += MANY_THREADS) {
            u32 page = i / (D * 2), word = i % (D * 2);
            u32 token = (first_page + page) * PAGE_TOKENS;
            bool exists = token <= last, written = token + word / (D / 8) <= last; // what nobody wrote may be a NaN
            u64 at = page_at(&shape, exists ? table[first_page + page] : 0, kv_head) + word * 8;
            copy_16(to + page * page_bytes + k_place(word / 2, word % 2), (const __half *)p.k_pages + at, exists);
            copy_16(to + tile_bytes + page * page_bytes + v_place<D>(word / (D / 8), word % (D / 8)), (const __half *)p.v_pages + at, written);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }

    __device__ __forceinline__ void load_q(u32 row, u32 head, bool exists, u32 which)
    {
        const f32 *from = p.q + ((u64)row * p.args.n_heads + head) * D + (threadIdx.x & 3) * 2;
        f32 scale = p.args.scale * 1.4426950408889634f; // base 2 from here on
#pragma unroll
        for (u32 k = 0; k < D / 16; k++)
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                float2 v = exists ? *(const float2 *)(from + k * 16 + half * 8) : make_float2(0, 0);
                q[k][which + 2 * half] = two_halves(v.x * scale, v.y * scale);
            }
    }

    // Scores of one page: 16 rows x 16 tokens.
    __device__ __forceinline__ void page_scores(u32 at, f32 (&s)[2][4])
    {
        u32 lane = threadIdx.x & 31;
#pragma unroll
        for (u32 k = 0; k < D / 16; k++) {
            u32 b[4]; // dims 0-7 and 8-15 of tokens 0-7, then of tokens 8-15
            load_transposed(b, at + k_place(k * 16 + lane % 8 + lane / 8 % 2 * 8, lane / 16));
            mma_f16(s[0], q[k], b[0], b[1]);
            mma_f16(s[1], q[k], b[2], b[3]);
        }
    }

    __device__ __forceinline__ void page_values(u32 at, const u32 (&weights)[4])
    {
        u32 lane = threadIdx.x & 31;
#pragma unroll
        for (u32 n = 0; n < D / 16; n++) {
            u32 b[4]; // tokens 0-7 and 8-15 of dims 0-7, then of dims 8-15
            load_transposed(b, at + v_place<D>(lane % 8 + lane / 8 % 2 * 8, 2 * n + lane / 16));
            mma_f16(out[2 * n], weights, b[0], b[1]);
            mma_f16(out[2 * n + 1], weights, b[2], b[3]);
        }
    }

    __device__ __forceinline__ bool seen(u32 token, u32 which)
    {
        u32 window = p.args.window;
        return position[which] != ~0u && token <= position[which] && (!window || token + window > position[which]);
    }

    __device__ __forceinline__ void tile(u32 stage, u32 first_token)
    {
        u32 t = threadIdx.x & 3, k_at = shared + stage * 2 * tile_bytes;
        f32 s[TILE_PAGES][2][4] = {}, higher[2] = { top[0], top[1] };

#pragma unroll
        for (u32 page = 0; page < TILE_PAGES; page++) {
            page_scores(k_at + page * page_bytes, s[page]);
#pragma unroll
            for (u32 i = 0; i < 8; i++) { // column of the fragment: 8 (i / 4) + 2 t + i % 2, row i / 2 % 2
                u32 token = first_token + page * PAGE_TOKENS + i / 4 * 8 + 2 * t + i % 2, which = i / 2 % 2;
                f32 &v = s[page][i / 4][i % 4];
                v = seen(token, which) ? v : LOWEST;
                higher[which] = fmaxf(higher[which], v);
            }
        }
        rescale(higher);
#pragma unroll
        for (u32 page = 0; page < TILE_PAGES; page++) {
            u32 weights[4];
#pragma unroll
            for (u32 i = 0; i < 8; i += 2) {
                u32 which = i / 2 % 2;
                f32 a = weight(s[page][i / 4][i % 4], which), b = weight(s[page][i / 4][i % 4 + 1], which);
                total[which] += a + b;
                weights[i / 2] = two_halves(a, b);
            }
            page_values(k_at + tile_bytes + page * page_bytes, weights);
        }
    }

    __device__ __forceinline__ f32 weight(f32 score, u32 which)
    {
        return score <= LOWEST ? 0 : exp2f(score - top[which]);
    }

    __device__ __forceinline__ void rescale(f32 (&higher)[2])
    {
#pragma unroll
        for (u32 which = 0; which < 2; which++) {
            higher[which] = fmaxf(higher[which], __shfl_xor_sync(~0u, higher[which], 1));
            higher[which] = fmaxf(higher[which], __shfl_xor_sync(~0u, higher[which], 2));
            f32 keep = exp2f(top[which] - higher[which]);
            top[which] = higher[which];
            total[which] *= keep;
#pragma unroll
            for (u32 n = 0; n < D / 8; n++) {
                out[n][2 * which] *= keep;
                out[n][2 * which + 1] *= keep;
            }
        }
    }

    __device__ __forceinline__ void put(u32 row, u32 head, u32 which)
    {
        f32 sum = total[which];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (position[which] == ~0u)
            return;
        f32 *to = p.out + ((u64)row * p.args.n_heads + head) * D + (threadIdx.x & 3) * 2;
#pragma unroll
        for (u32 n = 0; n < D / 8; n++)
            *(float2 *)(to + n * 8) = make_float2(out[n][2 * which] / sum, out[n][2 * which + 1] / sum);
    }
};

// The run of rows that begins at `first`: every thread finds the same.
static __device__ struct run run_at(const struct attend_params &p, u32 base, u32 first, u32 n)
{
    const u32 *slots = step_slots(p.step) + base, *positions = step_positions(p.step) + base;
    struct run r = { first, first + 1, slots[first], positions[first] };

    while (r.end < n && slots[r.end] == r.slot && positions[r.end] == r.position + (r.end - first))
        r.end++;
    return r;
}

template <u32 D> static __device__ __forceinline__ void run_through(struct attention<D> &a, const struct run &r, u32 base)
{
    u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32, last = r.position + (r.end - r.first) - 1, window = a.p.args.window;
    u32 first_page = window && r.position >= window ? (r.position - window + 1) / PAGE_TOKENS : 0, end_page = last / PAGE_TOKENS + 1;
    const u32 *table = a.p.table + (u64)r.slot * a.p.args.pages.max_pages;
    u32 warp_last = 0;

#pragma unroll
    for (u32 which = 0; which < 2; which++) {
        u32 row = warp * 16 + lane / 4 + 8 * which;
        bool mine = row >= r.first && row < r.end;
        a.position[which] = mine ? r.position + row - r.first : ~0u;
        a.load_q(base + row, blockIdx.y, mine, which);
        a.top[which] = LOWEST;
        a.total[which] = 0;
    }
#pragma unroll
    for (u32 n = 0; n < D / 8; n++)
        a.out[n][0] = a.out[n][1] = a.out[n][2] = a.out[n][3] = 0;
    if (r.first < warp * 16 + 16 && r.end > warp * 16)
        warp_last = r.position + min(r.end, warp * 16 + 16) - r.first; // one beyond
    a.fetch(table, first_page, last, 0);
    for (u32 page = first_page, stage = 0; page < end_page; page += TILE_PAGES, stage ^= 1) {
        a.fetch(table, page + TILE_PAGES, last, stage ^ 1);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        if (page * PAGE_TOKENS < warp_last)
            a.tile(stage, page * PAGE_TOKENS);
        __syncthreads();
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    a.put(base + warp * 16 + lane / 4, blockIdx.y, 0);
    a.put(base + warp * 16 + lane / 4 + 8, blockIdx.y, 1);
}

template <u32 D> static __device__ __forceinline__ void attend_many(const struct attend_params &p)
{
    extern __shared__ __align__(128) unsigned char many_shared[];
    u32 base = blockIdx.x * MANY_ROWS;

    wait_for_inputs();
    if (base >= p.step->n_rows)
        return;
    u32 n = min((u32)MANY_ROWS, p.step->n_rows - base);
    struct attention<D> a = { p, (u32)__cvta_generic_to_shared(many_shared), blockIdx.y / (p.args.n_heads / p.args.pages.n_kv_heads) };
    for (u32 first = 0; first < n;) {
        struct run r = run_at(p, base, first, n);
        run_through<D>(a, r, base);
        first = r.end;
    }
}

extern "C" __global__ void __launch_bounds__(MANY_THREADS) attend_many_64(const __grid_constant__ struct attend_params p)
{
    attend_many<64>(p);
}
extern "C" __global__ void __launch_bounds__(MANY_THREADS) attend_many_128(const __grid_constant__ struct attend_params p)
{
    attend_many<128>(p);
}
