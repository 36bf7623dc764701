// gemm_hopper.cu - gemm_many for Hopper: wgmma on weights that are dequantised into registers, activations by bulk copies.
//
// One block an SM walks over the tiles: 64 pairs of weight rows by 128 or 256 rows of activations. One thread of a producer warpgroup
// keeps a ring of stages full (64 columns of activations each, stored by ready.cu exactly as shared memory wants them); two warpgroups
// take 32 pairs each, the M side of the instruction, and read their weights straight from memory a step of 128 columns ahead, the
// first of the next tile before the end of this one. While four products run, the next four fragments are dequantised.
// The two meet only through the belt, so that one's results are stored while the other still multiplies.
// The image of another architecture holds no such kernel; pairs.c then takes gemm_many.
#include "ops/matmul/fragments.cuh"
#include "ops/matmul/pairs.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum { CONSUMER_THREADS = 256, HOPPER_THREADS = 384, TILE_PAIRS = 64, STEP_COLUMNS = 128 };

template <u32 ROWS> struct belt {
    static constexpr u32 stages = ROWS == 256 ? 6 : 10, stage_bytes = ROWS * 128, chunk_bytes = READY_ROWS * 128;
    u32 full, empty, data; // in shared memory
    u32 at, phase;

    __device__ __forceinline__ void next()
    {
        if (++at == stages) {
            at = 0;
            phase ^= 1;
        }
    }
};

static __device__ __forceinline__ void barrier_init(u32 barrier, u32 n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n));
}
static __device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void barrier_arrive(u32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
static __device__ __forceinline__ void barrier_wait(u32 barrier, u32 phase)
{
    asm volatile(
        "{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(
            barrier),
        "r"(phase)
        : "memory");
}
static __device__ __forceinline__ void bulk_copy(u32 to, const u8 *from, u32 bytes, u32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(barrier)
                 : "memory");
}

static __device__ __forceinline__ u64 tile_descriptor(u32 at) // 128-byte rows, swizzled; groups of 8 rows 1024 bytes apart
{
    return 0x4000004000010000ull | (at & 0x3FFFF) >> 4;
}
#define S8(n)  "%" #n "0,%" #n "1,%" #n "2,%" #n "3,%" #n "4,%" #n "5,%" #n "6,%" #n "7,%" #n "8,%" #n "9,"
#define D4(i)  "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define D16(i) D4(i), D4(i + 1), D4(i + 2), D4(i + 3)
#define D64(i) D16(i), D16(i + 4), D16(i + 8), D16(i + 12)
static __device__ __forceinline__ void wgmma(f32 (&d)[16][4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," S8(1) S8(2) S8(3) S8(4)
                     S8(5) "%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, 1, 1, 1, 0;"
                 : D64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
static __device__ __forceinline__ void wgmma(f32 (&d)[32][4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," S8(1) S8(2) S8(3) S8(4)
                     S8(5) S8(6) S8(7) S8(8) S8(9) S8(10)
                         S8(11) "%120,%121,%122,%123,%124,%125,%126,%127}, {%128,%129,%130,%131}, %132, 1, 1, 1, 0;"
                 : D64(0), D64(16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// What a lane holds of its two rows of weights: 128 columns made ready, and the next 128 as loaded. Plain numbers need no making
// ready: each half of them is replaced as soon as it is used, which saves the registers of a second copy.
template <u32 F> struct lane_weights {
    static constexpr bool plain = F == PLANES_BF16 || F == PLANES_F16;
    struct strip<F> next[2];
    struct prepared<F> now[2];
    struct pair r;

    __device__ __forceinline__ void load(const struct pairs_params &p, u32 step)
    {
        u32 block = step * 4 + threadIdx.x % 4;
        strip_load<F>(next[0], p.w[r.matrix[0]], r.row[0], block);
        strip_load<F>(next[1], p.w[r.matrix[1]], r.row[1], block);
    }
    template <u32 H> __device__ __forceinline__ void load_half(const struct pairs_params &p, u32 step)
    {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const struct planes &w = p.w[r.matrix[i]];
            u32 n_blocks = w.n_cols / 32, block = min(step * 4 + threadIdx.x % 4, n_blocks - 1);
            const uint4 *at = (const uint4 *)w.quants + ((u64)r.row[i] * n_blocks + block) * 4;
            now[i].q[H] = __ldg(at + H);
            now[i].q[2 + H] = __ldg(at + 2 + H);
        }
    }
    __device__ __forceinline__ void begin(const struct pairs_params &p)
    {
        if constexpr (plain) {
            load_half<0>(p, 0);
            load_half<1>(p, 0);
        } else {
            load(p, 0);
        }
    }
    // Before a step's first half: `step` is the one that comes after it.
    __device__ __forceinline__ void turn(const struct pairs_params &p, u32 step)
    {
        if constexpr (!plain) {
            strip_prepare<F>(now[0], next[0]);
            strip_prepare<F>(now[1], next[1]);
            load(p, step);
        }
    }
    template <u32 H> __device__ __forceinline__ void fragments(const struct pairs_params &p, u32 step, u32 (&a)[4][4])
    {
        fragment<4 * H>(a[0]);
        fragment<4 * H + 1>(a[1]);
        fragment<4 * H + 2>(a[2]);
        fragment<4 * H + 3>(a[3]);
        if constexpr (plain)
            load_half<H>(p, step);
    }
    template <u32 S> __device__ __forceinline__ void fragment(u32 (&a)[4])
    {
        strip_step<F, S>(now[0], a[0], a[2]);
        strip_step<F, S>(now[1], a[1], a[3]);
    }
};

struct tile {
    u32 first_pair, first_row;
};

// The k-th product of the tiles' walk: neighbours share weights, so that these are read from memory once.
template <u32 ROWS> static __device__ __forceinline__ struct tile tile_at(u32 item, u32 n_row_tiles)
{
    return { item / n_row_tiles * TILE_PAIRS, item % n_row_tiles * ROWS };
}

struct walk {
    u32 n_rows, n_row_tiles, n_items, n_steps;
};
template <u32 ROWS> static __device__ __forceinline__ struct walk walk_of(const struct pairs_params &p)
{
    struct walk w;
    w.n_rows = n_rows_of(p.step, p.rows);
    w.n_row_tiles = (w.n_rows + ROWS - 1) / ROWS;
    w.n_items = w.n_row_tiles * ((p.n_pairs + TILE_PAIRS - 1) / TILE_PAIRS);
    w.n_steps = p.ready_cols / STEP_COLUMNS;
    return w;
}

template <u32 ROWS>
static __device__ __forceinline__ void produce(const struct pairs_params &p, struct belt<ROWS> belt, const struct walk &w)
{
    u32 n_stages = p.ready_cols / 64;

    for (u32 item = blockIdx.x; item < w.n_items; item += gridDim.x) {
        u32 chunk = tile_at<ROWS>(item, w.n_row_tiles).first_row / READY_ROWS, bytes = belt.chunk_bytes;
        const u8 *from = p.ready + (u64)chunk * n_stages * bytes;
        bool second =
            ROWS == 256 && (chunk + 1) * READY_ROWS < w.n_rows; // what lies in its place otherwise is multiplied for nothing
        for (u32 k = 0; k < n_stages; k++, belt.next()) {
            u32 full = belt.full + 8 * belt.at, to = belt.data + belt.at * belt.stage_bytes;
            barrier_wait(belt.empty + 8 * belt.at, belt.phase ^ 1);
            barrier_expect(full, second ? 2 * bytes : bytes);
            bulk_copy(to, from + (u64)k * bytes, bytes, full);
            if (second)
                bulk_copy(to + bytes, from + (u64)(n_stages + k) * bytes, bytes, full);
        }
    }
}

// All fragments are complete before the first product: what would be computed between two of them makes them wait for each other.
#define A4(i) "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])
static __device__ __forceinline__ void fence(u32 (&a)[4][4])
{
    asm volatile("wgmma.fence.sync.aligned;" : A4(0), A4(1), A4(2), A4(3)::"memory");
}

// 64 columns' products, which run on while the next fragments are made. before: the stage that the ones still running read.
template <u32 ROWS>
static __device__ __forceinline__ void multiply(f32 (&d)[ROWS / 8][4], u32 (&a)[4][4], struct belt<ROWS> &belt, u32 *before)
{
    barrier_wait(belt.full + 8 * belt.at, belt.phase);
    u64 tile = tile_descriptor(belt.data + belt.at * belt.stage_bytes);
    fence(a);
#pragma unroll
    for (u32 k = 0; k < 4; k++)
        wgmma(d, a[k], tile + 2 * k);
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory"); // the four before are done
    if (*before != ~0u && threadIdx.x % 32 == 0)
        barrier_arrive(belt.empty + 8 * *before);
    *before = belt.at;
    belt.next();
}

// The ends of a tile. Each thread holds, of its pair, rows 2 t and 2 t + 1 of every eight.
template <u32 F, u32 ROWS> struct ending {
    const struct pairs_params &p;
    const struct pair &r;
    f32 (&d)[ROWS / 8][4];
    u32 first_row, n_rows; // of this thread: first_row + 8 n and the one after

    static constexpr f32 back = strip<F>::scale_back;
    static constexpr u32 batch = lane_weights<F>::plain ? 4 : 8; // rows at a time, in eights; plain weights leave fewer registers

    __device__ __forceinline__ u32 row(u32 n, u32 which) const
    {
        return first_row + 8 * n + which;
    }

    // Two neighbouring outputs a row, with what is added to them loaded some rows at a time.
    __device__ __forceinline__ void plain()
    {
        f32 *out = p.out[0] + r.row[0];
        const f32 *add = p.add ? p.add + r.row[0] : nullptr, *bias = p.bias[0];
        float2 b = bias ? make_float2(bias[r.row[0]], bias[r.row[1]]) : make_float2(0, 0);
#pragma unroll
        for (u32 n = 0; n < ROWS / 8; n += batch) {
            float2 in[batch][2];
#pragma unroll
            for (u32 i = 0; i < 2 * batch; i++) {
                u32 at = row(n + i / 2, i % 2);
                in[i / 2][i % 2] = add && at < n_rows ? *(const float2 *)(add + (u64)at * p.out_stride[0]) : make_float2(0, 0);
            }
#pragma unroll
            for (u32 i = 0; i < 2 * batch; i++) {
                u32 at = row(n + i / 2, i % 2);
                const f32 *v = d[n + i / 2] + i % 2;
                if (at < n_rows)
                    *(float2 *)(out + (u64)at * p.out_stride[0]) =
                        make_float2(v[0] * back + b.x + in[i / 2][i % 2].x, v[2] * back + b.y + in[i / 2][i % 2].y);
            }
        }
    }

    __device__ __forceinline__ void gated()
    {
        f32 *out = p.out[0] + r.row[0];
#pragma unroll
        for (u32 n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 2; i++)
                if (row(n, i) < n_rows)
                    out[(u64)row(n, i) * p.out_stride[0]] = activation_of(p.activation, d[n][i] * back) * (d[n][2 + i] * back);
    }

    // q, k or v, with the angles and places of some rows loaded at a time.
    __device__ __forceinline__ void rope()
    {
        u32 m = r.matrix[0], head_dim = p.rope.pages.head_dim;
        bool turns = r.turn != ~0u, keeps = m > 0 && p.mode == PAIRS_ROPE;
        const f32 *bias = p.bias[m];
        f32 *out = p.out[m];
        float2 b = bias ? make_float2(bias[r.row[0]], bias[r.row[1]]) : make_float2(0, 0);
        // From a page's first number to this head's and dim's; pages are fp16 here.
        u32 from_page[2], token_stride = m == 1 ? 1 : head_dim, page_numbers = p.rope.pages.n_kv_heads * PAGE_TOKENS * head_dim;
        for (u32 k = 0; k < 2; k++)
            from_page[k] = r.row[k] / head_dim * PAGE_TOKENS * head_dim + r.row[k] % head_dim * (m == 1 ? PAGE_TOKENS : 1);
        __half *pages = (__half *)(m == 1 ? p.k_pages : p.v_pages);
#pragma unroll
        for (u32 n = 0; n < ROWS / 8; n += batch / 2) {
            float2 angle[batch];
            u32 position[batch], page[batch];
#pragma unroll
            for (u32 i = 0; i < batch; i++) {
                u32 at = min(row(n + i / 2, i % 2), n_rows - 1);
                angle[i] = turns ? *(const float2 *)(p.angles + (u64)at * p.rope.n_dims + r.turn) : make_float2(1, 0);
                position[i] = keeps ? step_positions(p.step)[at] : 0;
                page[i] = keeps ? step_slots(p.step)[at] * p.rope.pages.max_pages + position[i] / PAGE_TOKENS : 0;
            }
#pragma unroll
            for (u32 i = 0; i < batch; i++)
                page[i] = keeps ? p.table[page[i]] : 0;
#pragma unroll
            for (u32 i = 0; i < batch; i++) {
                const f32 *v = d[n + i / 2] + i % 2;
                f32 x = v[0] * back + b.x, y = v[2] * back + b.y;
                f32 sums[2] = { x * angle[i].x - y * angle[i].y, y * angle[i].x + x * angle[i].y };
                u32 at = row(n + i / 2, i % 2);
                if (at >= n_rows)
                    continue;
#pragma unroll
                for (u32 k = 0; k < 2; k++)
                    if (keeps)
                        pages[(u64)page[i] * page_numbers + from_page[k] + position[i] % PAGE_TOKENS * token_stride] =
                            __float2half_rn(sums[k]);
                    else
                        out[(u64)at * p.out_stride[m] + r.row[k]] = sums[k];
            }
        }
    }

    // One output at a time: rows of an odd number of outputs, and gate over up.
    __device__ __forceinline__ void single()
    {
        const f32 *bias = p.bias[0];
        f32 b[2] = { bias ? bias[r.row[0]] : 0, bias ? bias[r.row[1]] : 0 };
#pragma unroll
        for (u32 n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u64 at = (u64)row(n, i % 2) * p.out_stride[0] + r.row[i / 2];
                if (row(n, i % 2) >= n_rows || (i / 2 && !r.second))
                    continue;
                f32 v = d[n][i] * back + b[i / 2] + (p.add ? p.add[at] : 0);
                p.out[0][at] = p.mode == PAIRS_GATE_OVER ? activation_of(p.activation, v) * p.out[0][at] : v;
            }
    }

    __device__ __forceinline__ void all()
    {
        if (p.mode == PAIRS_GATED)
            gated();
        else if (p.mode >= PAIRS_ROPE)
            rope();
        else if (p.mode == PAIRS_PLAIN && p.out_stride[0] % 2 == 0)
            plain();
        else
            single();
    }
};

template <u32 F, u32 ROWS> static __device__ __forceinline__ void consume(const struct pairs_params &p, struct belt<ROWS> belt)
{
    u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, own = warp * 8 + lane / 4;
    struct lane_weights<F> w;
    f32 d[ROWS / 8][4];
    u32 a[2][4][4];

    // Which tile is first depends on the number of rows, which is older than any launch of this step.
    struct walk k = walk_of<ROWS>(p);
    u32 item = blockIdx.x;
    auto find = [&](u32 at) {
        return pair_find(p, p.first_pair + min(tile_at<ROWS>(at, k.n_row_tiles).first_pair + own, p.n_pairs - 1));
    };
    w.r = find(item);
    w.begin(p);
    wait_for_inputs();
    for (; item < k.n_items; item += gridDim.x) {
        struct pair r = w.r;
        u32 before = ~0u; // the stage that products in flight still read
#pragma unroll
        for (u32 n = 0; n < ROWS / 8; n++) {
            d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0;
            asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])); // before the first fence
        }
        for (u32 s = 0; s < k.n_steps; s++) {
            bool last = s + 1 == k.n_steps;
            if (last && item + gridDim.x < k.n_items)
                w.r = find(item + gridDim.x);
            u32 then = last ? 0 : s + 1;
            w.turn(p, then);
            w.template fragments<0>(p, then, a[0]);
            multiply<ROWS>(d, a[0], belt, &before);
            w.template fragments<1>(p, then, a[1]);
            multiply<ROWS>(d, a[1], belt, &before);
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (lane == 0)
            barrier_arrive(belt.empty + 8 * before);
        struct tile t = tile_at<ROWS>(item, k.n_row_tiles);
        if (t.first_pair + own < p.n_pairs) {
            struct ending<F, ROWS> end = {
                p, r, d, t.first_row + lane % 4 * 2, k.n_rows
            };
            end.all();
        }
    }
}

template <u32 F, u32 ROWS> static __device__ __forceinline__ void gemm_hopper(const struct pairs_params &p)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct belt<ROWS> belt = {
    };

    belt.data = (u32)__cvta_generic_to_shared(shared);
    belt.full = belt.data + belt.stages * belt.stage_bytes;
    belt.empty = belt.full + 8 * belt.stages;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < belt.stages; i++) {
            barrier_init(belt.full + 8 * i, 1);
            barrier_init(belt.empty + 8 * i, CONSUMER_THREADS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMER_THREADS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        wait_for_inputs();
        if (threadIdx.x == CONSUMER_THREADS)
            produce<ROWS>(p, belt, walk_of<ROWS>(p));
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        consume<F, ROWS>(p, belt);
    }
}

#define GEMM_HOPPER(name, F, ROWS)                                                 \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS, 1)                \
        gemm_hopper_##ROWS##_##name(const __grid_constant__ struct pairs_params p) \
    {                                                                              \
        gemm_hopper<F, ROWS>(p);                                                   \
    }
#define BOTH(name, F)         \
    GEMM_HOPPER(name, F, 128) \
    GEMM_HOPPER(name, F, 256)
BOTH(f16, PLANES_F16)
BOTH(bf16, PLANES_BF16)
BOTH(q4_0, PLANES_Q4_0)
BOTH(q4_1, PLANES_Q4_1)
BOTH(q5_0, PLANES_Q5_0)
BOTH(q5_1, PLANES_Q5_1)
BOTH(q8_0, PLANES_Q8_0)
BOTH(q2_k, PLANES_Q2_K)
BOTH(q3_k, PLANES_Q3_K)
BOTH(q4_k, PLANES_Q4_K)
BOTH(q5_k, PLANES_Q5_K)
BOTH(q6_k, PLANES_Q6_K)
BOTH(iq4_nl, PLANES_IQ4_NL)
BOTH(iq4_xs, PLANES_IQ4_XS)
BOTH(mxfp4, PLANES_MXFP4)
#endif
