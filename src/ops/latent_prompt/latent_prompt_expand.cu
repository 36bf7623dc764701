// latent_prompt_expand.cu - latent_prompt on Hopper: which rows' keys are expanded, and their keys and values
// from the latents in pages of F16; see latent_prompt.h.
//
// Computes   k[h] = [Wuk[h]^T latent, rotated], v[h] = Wuv[h] latent   for 64 keys of a run and all heads.
//
//                                64 numbers of a head (N)
//                              +-------------------------+
//     64 keys (M) of a         |  a chunk, in registers  |    grid: one block an SM; block: two consumer
//     warpgroup, in registers  +-------------------------+    warpgroups of 64 keys each, one producer warp
//                                512 latents (K)
//
// latent_prompt_runs finds the runs: one block. latent_prompt_weights makes both matrices fp16 chunks, Wuk
// transposed. latent_prompt_expand keeps a warpgroup's latents in registers, a page a warp, and streams the
// matrices through three stages; a block takes all heads of the same keys in turn. A warp's row g is token 2
// g of its page and row g + 8 token 2 g + 1, so that words of a page become rows. Results become chunks in
// shared memory, which leave by bulk copies. Tokens behind the last become zero.
// Bound by arithmetic, and by reading the matrices from the L2 cache.
#include "gemm/cuda/row_plain.cuh"
#include "ops/latent/latent_weights.cuh"
#include "ops/latent_prompt/latent_prompt.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- runs

enum { MOST_STEP_ROWS = 1 << 16 };

// Run [first, end) is taken where it is long enough and its keys have room.
static __device__ __forceinline__ void take_run(const struct latent_prompt_params &p,
                                                struct latent_runs &runs, u32 first, u32 end)
{
    if (end - first < LATENT_PROMPT_ROWS || runs.n == LATENT_MOST_RUNS)
        return;
    u32 position = step_positions(p.step)[first],
        n_tiles = (position + end - first + PROMPT_TILE - 1) / PROMPT_TILE;
    if (runs.n_tiles + n_tiles > p.most_tiles)
        return;
    runs.at[runs.n++] = { first,    end - first,  step_slots(p.step)[first],
                          position, runs.n_tiles, runs.n_query_tiles };
    runs.n_tiles += n_tiles;
    runs.n_query_tiles += (end - first + PROMPT_QUERIES - 1) / PROMPT_QUERIES;
}

// starts: a bit for each row of n that begins a run.
static __device__ __forceinline__ void find_runs(const struct latent_prompt_params &p, const u32 *starts,
                                                 u32 n, struct latent_runs &runs)
{
    u32 first = 0;

    runs.n = runs.n_tiles = runs.n_query_tiles = 0;
    for (u32 i = 0; i < (n + 31) / 32; i++)
        for (u32 bits = starts[i]; bits; bits &= bits - 1) {
            u32 at = i * 32 + __ffs((int)bits) - 1;
            take_run(p, runs, first, at);
            first = at;
        }
    take_run(p, runs, first, n);
}

// grid: one block
extern "C" __global__ void __launch_bounds__(PROMPT_RUNS_THREADS)
    latent_prompt_runs(const __grid_constant__ struct latent_prompt_params p)
{
    __shared__ u32 starts[MOST_STEP_ROWS / 32];
    __shared__ struct latent_runs runs;
    const u32 *slots = step_slots(p.step), *positions = step_positions(p.step);
    u32 n = min(p.step->n_rows, (u32)MOST_STEP_ROWS);

    for (u32 i = threadIdx.x; i < (n + 31) / 32 * 32; i += PROMPT_RUNS_THREADS) {
        bool follows = i > 0 && i < n && slots[i] == slots[i - 1] && positions[i] == positions[i - 1] + 1;
        u32 bits = __ballot_sync(~0u, i < n && !follows);
        if (i % 32 == 0)
            starts[i / 32] = bits;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        find_runs(p, starts, n, runs);
    __syncthreads();
    wait_for_inputs();
    for (u32 i = threadIdx.x; i < sizeof runs / 4; i += PROMPT_RUNS_THREADS)
        ((u32 *)p.runs)[i] = ((const u32 *)&runs)[i];
}

// ---- matrices

// Whether something is expanded.
static __device__ __forceinline__ bool turns_begin(const struct latent_prompt_params &p)
{
    return p.runs->n > 0;
}

// 16 rows of a head's Wuv: a block of 32 numbers a thread.
static __device__ __forceinline__ void put_values(const struct latent_prompt_params &p, u32 head, u32 part,
                                                  u8 *to)
{
    u32 words[16], row = part * 16 + threadIdx.x / 16, block = threadIdx.x % 16;

    latent_read_32<false>(p.v_b, head * p.args.n_value + row, block, words);
    wait_for_inputs();
    if (!turns_begin(p))
        return;
    u8 *chunk = to + row / 64 * PROMPT_MATRIX + block / 2 * PROMPT_CHUNK;
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        *(uint4 *)(chunk + word_place(row % 64, block % 2 * 4 + i)) =
            make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
}

// 64 latents of 64 numbers of a head's Wuk, transposed.
static __device__ __forceinline__ void put_keys(const struct latent_prompt_params &p, u32 head, u32 part,
                                                u8 *to)
{
    __shared__ __align__(16) __half room[64][64 + 8]; // [number][latent]
    u32 n_latent = p.args.qk.store.latent_dims, latents = part % PROMPT_LATENT_CHUNKS,
        chunk = part / PROMPT_LATENT_CHUNKS, i = threadIdx.x;

    if (i < 64 * 2) {
        u32 words[16], latent = i / 2, block = i % 2;
        latent_read_32<false>(p.k_b, head * n_latent + latents * 64 + latent, 2 * chunk + block, words);
#pragma unroll
        for (u32 k = 0; k < 32; k++)
            room[block * 32 + k][latent] = __ushort_as_half((unsigned short)(words[k / 2] >> k % 2 * 16));
    }
    __syncthreads();
    wait_for_inputs();
    if (!turns_begin(p))
        return;
    u8 *at = to + chunk * PROMPT_MATRIX + latents * PROMPT_CHUNK;
    for (; i < 64 * 8; i += PROMPT_WEIGHTS_THREADS)
        *(uint4 *)(at + word_place(i / 8, i % 8)) = *(const uint4 *)&room[i / 8][i % 8 * 8];
}

// grid: (parts of Wuk, then parts of Wuv; heads)
extern "C" __global__ void __launch_bounds__(PROMPT_WEIGHTS_THREADS)
    latent_prompt_weights(const __grid_constant__ struct latent_prompt_params p)
{
    u32 head = blockIdx.y, n_x = p.args.qk.project.n_cols / 64, n_v = p.args.n_value / 64,
        n_keys = n_x * PROMPT_LATENT_CHUNKS;
    u8 *to = p.matrices + (u64)head * (n_x + n_v) * PROMPT_MATRIX;

    if (blockIdx.x < n_keys)
        put_keys(p, head, blockIdx.x, to);
    else
        put_values(p, head, blockIdx.x - n_keys, to + n_x * PROMPT_MATRIX);
}

// ---- keys and values

struct expand_room { // shared memory
    u8 stages[PROMPT_STAGES][PROMPT_MATRIX];
    u8 chunk[N_GROUPS][PROMPT_CHUNK];   // on its way out
    u8 rotated[N_GROUPS][PROMPT_CHUNK]; // of all heads' keys
    u64 full[PROMPT_STAGES], empty[PROMPT_STAGES];
};
STATIC_ASSERT(sizeof(struct expand_room) <= PROMPT_EXPAND_SHARED);

static __device__ __forceinline__ void multiply_64(f32 (&d)[8][4], const u32 (&a)[4], u64 b, u32 more)
{
    asm volatile("{\n\t.reg .pred more;\n\tsetp.ne.b32 more, %37, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" N32
                 "}, {%32,%33,%34,%35}, %36, more, 1, 1, 0;\n\t}"
                 : D32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));
}

// What a block does: pairs of tiles times heads, a head's last.
struct expand_units {
    u32 first, end, n_tiles;

    __device__ __forceinline__ expand_units(const struct latent_prompt_params &p)
    {
        u32 n_heads = p.args.qk.project.n_heads, all = p.runs->n_tiles;
        n_tiles = all > p.first_tile ? min(all - p.first_tile, p.n_tiles) : 0;
        u32 n = (n_tiles + N_GROUPS - 1) / N_GROUPS * n_heads;
        first = (u32)((u64)n * blockIdx.x / gridDim.x);
        end = (u32)((u64)n * (blockIdx.x + 1) / gridDim.x);
    }
};

template <u32 CHUNKS>
static __device__ __forceinline__ void bring_matrices(const struct latent_prompt_params &p,
                                                      struct expand_room &room, const struct expand_units &u)
{
    struct ring<PROMPT_STAGES> stage;
    u32 n_heads = p.args.qk.project.n_heads, head = u.first % n_heads;

    for (u32 i = u.first; i < u.end; i++) {
        const u8 *from = p.matrices + (u64)head * CHUNKS * PROMPT_MATRIX;
        for (u32 c = 0; c < CHUNKS; c++, stage.next()) {
            u32 full = shared_address(&room.full[stage.at]);
            wait_for_stage(shared_address(&room.empty[stage.at]), stage.phase ^ 1);
            expect_bytes(full, PROMPT_MATRIX);
            bulk_copy(shared_address(room.stages[stage.at]), from + (u64)c * PROMPT_MATRIX, PROMPT_MATRIX,
                      full);
        }
        head = head + 1 == n_heads ? 0 : head + 1;
    }
}

// A warp's 16 tokens as rows of a product, 16 dims at a time.
struct page_rows {
    const u32 *words; // of two tokens
    bool has[2];      // the thread's

    __device__ __forceinline__ page_rows(const struct latent_prompt_params &p, u32 tile)
    {
        const struct latent_runs &runs = *p.runs;
        u32 at = p.first_tile + tile, i = 0, lane = threadIdx.x % 32;
        while (i + 1 < runs.n && runs.at[i + 1].tile <= at)
            i++;
        const struct latent_run &r = runs.at[i];
        u32 first = (at - r.tile) * PROMPT_TILE + threadIdx.x / 32 % 4 * PAGE_TOKENS,
            end = r.position + r.n_rows,
            page = first < end ? p.table[(u64)r.slot * p.args.qk.store.pages.max_pages + first / PAGE_TOKENS]
                               : 0;
        words = (const u32 *)(p.pages + (u64)page * LATENT_KEY * PAGE_TOKENS * 2) + lane / 4;
        has[0] = first + lane / 4 * 2 < end;
        has[1] = first + lane / 4 * 2 + 1 < end;
    }
    __device__ __forceinline__ void load(u32 dim, u32 (&a)[4]) const
    {
        u32 t = threadIdx.x % 4 * 2, low[2], high[2];
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            low[k] = words[(dim + t + 8 * k) * (PAGE_TOKENS / 2)];
            high[k] = words[(dim + t + 8 * k + 1) * (PAGE_TOKENS / 2)];
            a[2 * k] = has[0] ? __byte_perm(low[k], high[k], 0x5410) : 0;
            a[2 * k + 1] = has[1] ? __byte_perm(low[k], high[k], 0x7632) : 0;
        }
    }
};

// Eight columns of the thread's two tokens into a chunk.
static __device__ __forceinline__ void put_word(u32 chunk, u32 word, u32 first, u32 second)
{
    u32 token = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 * 2, part = threadIdx.x % 4 * 4;

    asm volatile("st.shared.u32 [%0], %1;" ::"r"(chunk + word_place(token, word) + part), "r"(first)
                 : "memory");
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(chunk + word_place(token + 1, word) + part), "r"(second)
                 : "memory");
}

static __device__ __forceinline__ void send_chunk(u8 *to, u32 from)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "n"((int)PROMPT_CHUNK)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
static __device__ __forceinline__ void wait_for_sent() // until shared memory is read
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

template <u32 X_CHUNKS, u32 V_CHUNKS> struct expander { // of a warpgroup
    static constexpr u32 n_chunks = X_CHUNKS + 1 + V_CHUNKS;
    const struct latent_prompt_params &p;
    struct expand_room &room;
    u32 group, chunk, rotated;
    bool sends;
    struct ring<PROMPT_STAGES> stage;
    u32 latents[LATENT_VALUE / 16][4];

    __device__ __forceinline__ expander(const struct latent_prompt_params &p, struct expand_room &room)
        : p(p), room(room), group(threadIdx.x / GROUP_THREADS)
    {
        chunk = shared_address(room.chunk[group]);
        rotated = shared_address(room.rotated[group]);
        sends = threadIdx.x % GROUP_THREADS == 0;
    }
    // The tile's latents to registers, and what rotates to shared memory.
    __device__ __forceinline__ void load(u32 tile)
    {
        struct page_rows rows(p, tile);
#pragma unroll
        for (u32 k = 0; k < LATENT_VALUE / 16; k++)
            rows.load(16 * k, latents[k]);
        if (sends)
            wait_for_sent();
        group_sync(group);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            u32 a[4];
            rows.load(LATENT_VALUE + 16 * k, a);
            put_word(rotated, 2 * k, a[0], a[1]);
            put_word(rotated, 2 * k + 1, a[2], a[3]);
        }
        show_stores();
        group_sync(group);
    }
    __device__ __forceinline__ void multiply(f32 (&d)[8][4])
    {
        u64 matrix = tile_descriptor(shared_address(room.stages[stage.at]));
        wait_for_stage(shared_address(&room.full[stage.at]), stage.phase);
        settle(d);
        settle(latents);
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < LATENT_VALUE / 16; k++)
            multiply_64(d, latents[k], matrix + k / 4 * (PROMPT_CHUNK >> 4) + k % 4 * NEXT_COLUMNS, k > 0);
        wgmma_commit();
        wgmma_finish();
        settle(d);
        if (sends)
            leave_stage(shared_address(&room.empty[stage.at]));
        stage.next();
    }
    // All chunks of a head. exists: its tile does.
    __device__ __forceinline__ void expand(u32 head, u32 tile, bool exists)
    {
        u8 *to = tile_at(p, head, tile, n_chunks);
        if (sends && exists)
            send_chunk(to + X_CHUNKS * PROMPT_CHUNK, rotated);
        for (u32 c = 0; c < X_CHUNKS + V_CHUNKS; c++) {
            f32 d[8][4];
            multiply(d);
            if (sends)
                wait_for_sent();
            group_sync(group);
#pragma unroll
            for (u32 j = 0; j < 8; j++)
                put_word(chunk, j, two_numbers<false>(d[j][0], d[j][1]),
                         two_numbers<false>(d[j][2], d[j][3]));
            show_stores();
            group_sync(group);
            if (sends && exists)
                send_chunk(to + (c < X_CHUNKS ? c : c + 1) * PROMPT_CHUNK, chunk);
        }
    }
};

template <u32 X_CHUNKS, u32 V_CHUNKS>
static __device__ __forceinline__ void expand_tiles(const struct latent_prompt_params &p)
{
    extern __shared__ __align__(1024) u8 shared[];
    struct expand_room &room = *(struct expand_room *)shared;

    if (threadIdx.x == 0) {
        for (u32 i = 0; i < PROMPT_STAGES; i++) {
            barrier_begin(shared_address(&room.full[i]), 1);
            barrier_begin(shared_address(&room.empty[i]), N_GROUPS);
        }
        show_barriers();
    }
    wait_for_inputs();
    __syncthreads();
    const struct expand_units u(p);
    if (threadIdx.x >= N_GROUPS * GROUP_THREADS) {
        give_registers();
        if (threadIdx.x < N_GROUPS * GROUP_THREADS + 32 && elect_one())
            bring_matrices<X_CHUNKS + V_CHUNKS>(p, room, u);
        return;
    }
    take_registers();
    struct expander<X_CHUNKS, V_CHUNKS> e(p, room);
    u32 n_heads = p.args.qk.project.n_heads, tile = ~0u;
    for (u32 i = u.first; i < u.end; i++) {
        u32 at = i / n_heads * N_GROUPS + e.group;
        bool exists = at < u.n_tiles;
        if (at != tile)
            e.load(exists ? at : u.n_tiles - 1);
        tile = at;
        e.expand(i % n_heads, at, exists);
    }
    if (e.sends)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#define LATENT_PROMPT_EXPAND(name, X_CHUNKS, V_CHUNKS)                                     \
    extern "C" __global__ void __launch_bounds__(PROMPT_THREADS, 1)                        \
        latent_prompt_expand_##name(const __grid_constant__ struct latent_prompt_params p) \
    {                                                                                      \
        expand_tiles<X_CHUNKS, V_CHUNKS>(p);                                               \
    }
LATENT_PROMPT_EXPAND(256_256, 3, 4) // named by numbers of a key and of a value
LATENT_PROMPT_EXPAND(192_128, 2, 2)
LATENT_PROMPT_EXPAND(128_128, 1, 2)
#endif
