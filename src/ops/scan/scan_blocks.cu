// scan_blocks.cu - the recurrence of scan.h over the rows of a prompt, 64 at once (the WY form of DeltaNet;
// Yang et al., 2024), in fp32 on tensor cores (device/cuda/tile.cuh).
//
// With g_i the sum of the logarithms of the decays from the block's first row to row i, S the state before
// the block and D_ij = exp(g_i - g_j), each row i of a block of n has (k, q of length 1; b the rule's factor)
//
//   A_ij = b_i (k_i . k_j) D_ij, j < i          P_ij = (q_i . k_j) D_ij, j <= i          T = (I + A)^-1
//   R_i = b_i (v_i - exp(g_i) S^T k_i)          U = T R, or t v without the delta rule
//   out_i = exp(g_i) S^T q_i + sum of P_ij U_j  (+ D v_i)
//   S = exp(g_n) S + sum of exp(g_n - g_j) k_j U_j^T
//
//   scan_prepare:  T and P of all blocks, which know nothing of S   grid: (heads, rows / 32)
//   scan_blocks:   the walk from block to block                     grid: (heads x columns / 32, turns)
//
// Blocks begin at multiples of 64 positions, so that a prompt has the same ones wherever its steps cut it,
// and end early where a state is kept: rows past the end are zeros. 32 columns of a head's state stay in the
// registers of 8 warps, 16 of its d_k rows to each. The next block's k and q are copied during this one's
// products. The walk is bound by the chain of blocks: 0.35 GFLOP each, three times for fp32, on one SM.
#include "device/cuda/tile.cuh"
#include "ops/scan/scan.cuh"

enum { THREADS = 256, DIM = SCAN_BLOCK_DIM, ROWS = SCAN_BLOCK, PART = 16 }; // PART: rows of a product's tile
// Strides in shared memory, by which the loads of a product meet different banks.
enum { KEY_STRIDE = DIM + 4, TILE_STRIDE = ROWS + 4, COLUMN_STRIDE = SCAN_COLUMNS + 8 };

enum { FACTOR_WORDS = sizeof(struct scan_factors) / 16 };

extern __shared__ __align__(16) unsigned char scan_shared[];

struct row_block { // rows of a step
    u32 row, n;
};

// Whether rows `lane` and `lane + 32` from `row` on belong to the block that begins there.
struct row_marks {
    bool inside[2];
};
static __device__ __forceinline__ struct row_marks block_look(const struct step *step, u32 row)
{
    struct row_marks m;
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 i = threadIdx.x % 32 + 32 * half, at = min(row + max(i, 1u), step->n_rows - 1);
        bool follows = step_states_from(step)[at] == STATE_NEXT,
             begins = step_positions(step)[at] % ROWS == 0,
             kept = step_states_to(step)[at - (at > 0)] != STATE_NONE;
        m.inside[half] = i == 0 || (row + i < step->n_rows && follows && !begins && !kept);
    }
    return m;
}
static __device__ __forceinline__ u32 block_rows(const struct row_marks &m)
{
    u64 inside = __ballot_sync(~0u, m.inside[0]) | (u64)__ballot_sync(~0u, m.inside[1]) << 32;
    return ~inside ? (u32)__ffsll((long long)~inside) - 1 : ROWS;
}

// Number `which` (0: k, 1: q) of a row's, and T or P of it.
static __device__ __forceinline__ const f32 *key_at(const struct scan_params &p, u32 key_head, u32 row,
                                                    u32 which)
{
    return p.in + (u64)row * p.args.in_cols + (which ? p.args.q_at : p.args.k_at) + key_head * p.args.d_k;
}
static __device__ __forceinline__ f32 *solved_at(const struct scan_params &p, u32 head, u32 row, u32 which)
{
    return p.solved + (((u64)row * p.args.n_heads + head) * 2 + which) * ROWS;
}

// ---- scan_prepare

struct prepare_room {
    f32 keys[2][ROWS][KEY_STRIDE];                          // k, q
    f32 tied[ROWS][TILE_STRIDE], solved[ROWS][TILE_STRIDE]; // A, T
    double logs[ROWS];                                      // g: differences of long sums
    f32 rule[ROWS], length[2][ROWS];                        // of k and q: what brings them to length 1
};
STATIC_ASSERT(sizeof(struct prepare_room) == SCAN_PREPARE_SHARED);

// A warp takes every eighth row, all of its loads at once.
static __device__ void take_rows(const struct scan_params &p, u32 head, const struct row_block &b,
                                 struct prepare_room &room)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32,
        key_head = scan_key_head(p.args.n_heads, p.args.n_k_heads, p.args.flags, head);
    bool delta = p.args.flags & SCAN_DELTA;
    float4 x[ROWS / 8][2];

#pragma unroll
    for (u32 i = 0; i < ROWS / 8; i++)
#pragma unroll
        for (u32 which = 0; which < 2; which++) {
            u32 row = 8 * i + warp;
            x[i][which] = make_float4(0, 0, 0, 0);
            if (row < b.n && 4 * lane < p.args.d_k)
                x[i][which] = ((const float4 *)key_at(p, key_head, b.row + row, which))[lane];
        }
#pragma unroll
    for (u32 i = 0; i < ROWS / 8; i++)
#pragma unroll
        for (u32 which = 0; which < 2; which++) {
            float4 v = x[i][which];
            f32 sum = warp_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
            ((float4 *)room.keys[which][8 * i + warp])[lane] = v;
            if (lane == 0)
                room.length[which][8 * i + warp] =
                    delta ? 1 / sqrtf(sum + SCAN_EPS) / (which ? sqrtf((f32)p.args.d_k) : 1) : 1;
        }
}

static __device__ void take_row_gates(const struct scan_params &p, u32 head, const struct row_block &b,
                                      struct prepare_room &room)
{
    u32 i = threadIdx.x;

    if (i >= ROWS)
        return;
    f32 rule = 0;
    f32 log_decay = i < b.n ? take_gates(p, head, b.row + i, rule) : 0;
    room.rule[i] = rule;
    room.logs[i] = log_decay < -200 ? -200 : log_decay; // its exponential is 0 either way
}

// By one warp.
static __device__ void add_up_logs(struct prepare_room &room)
{
    u32 lane = threadIdx.x;
    double first = room.logs[2 * lane], both = first + room.logs[2 * lane + 1], sum = both;

#pragma unroll
    for (u32 o = 1; o < 32; o *= 2) {
        double before = __shfl_up_sync(~0u, sum, o);
        sum += lane >= o ? before : 0;
    }
    double before = __shfl_up_sync(~0u, sum, 1);
    before = lane > 0 ? before : 0;
    room.logs[2 * lane] = before + first;
    room.logs[2 * lane + 1] = before + both;
}

// A and P: warps 0 to 3 take 16 rows of A each, the others of P.
static __device__ void tie_rows(const struct scan_params &p, u32 head, const struct row_block &b,
                                struct prepare_room &room)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp % 4 * PART, which = warp / 4;
    f32 d[ROWS / 8][4] = {};

    if (first >= b.n || (which == 0 && !(p.args.flags & SCAN_DELTA)))
        return;
#pragma unroll 2
    for (u32 k = 0; k < p.args.d_k; k += 8) {
        struct tf32_parts<4> a = take_a(&room.keys[which][first][k], KEY_STRIDE, 1);
#pragma unroll
        for (u32 j = 0; j < ROWS / 8; j++)
            if (8 * j < first + PART)
                mma_fp32(d[j], a, take_b(&room.keys[0][8 * j][k], 1, KEY_STRIDE));
    }
#pragma unroll
    for (u32 j = 0; j < ROWS / 8; j++)
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            u32 row = first + lane / 4 + e / 2 * 8, column = 8 * j + lane % 4 * 2 + e % 2;
            if (8 * j >= first + PART)
                continue;
            f32 tied = d[j][e] * room.length[which][row] * room.length[0][column] *
                       expf((f32)(room.logs[row] - room.logs[column]));
            if (which == 0)
                room.tied[row][column] = column < row ? room.rule[row] * tied : 0;
            else if (row < b.n)
                solved_at(p, head, b.row + row, 1)[column] = column <= row ? tied : 0;
        }
}

// T: 16 rows after 16 rows, what the rows above them ask for by products, each other's by substitution.
static __device__ void solve_rows(u32 n, struct prepare_room &room)
{
    u32 column = threadIdx.x % ROWS;

    for (u32 first = 0; first < n; first += PART) {
        if (column < first + PART) {
            u32 row = first + threadIdx.x / ROWS * 4;
            f32 sum[4] = { 0, 0, 0, 0 };
#pragma unroll 4
            for (u32 l = column / PART * PART; l < first; l++)
#pragma unroll
                for (u32 i = 0; i < 4; i++)
                    sum[i] += room.tied[row + i][l] * room.solved[l][column];
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                room.solved[row + i][column] = (row + i == column ? 1 : 0) - sum[i];
        }
        __syncthreads();
        if (threadIdx.x < first + PART) {
            f32 x[PART];
#pragma unroll
            for (u32 i = 0; i < PART; i++) {
                x[i] = room.solved[first + i][column];
#pragma unroll
                for (u32 l = 0; l < i; l++)
                    x[i] -= room.tied[first + i][first + l] * x[l];
                room.solved[first + i][column] = x[i];
            }
        }
        __syncthreads();
    }
}

static __device__ void give_solved(const struct scan_params &p, u32 head, const struct row_block &b,
                                   const struct prepare_room &room)
{
    for (u32 i = threadIdx.x; i < b.n * (ROWS / 4); i += THREADS) {
        u32 row = i / (ROWS / 4), column = i % (ROWS / 4) * 4;
        if (column < row / PART * PART + PART)
            *(float4 *)&solved_at(p, head, b.row + row, 0)[column] =
                *(const float4 *)&room.solved[row][column];
    }
}

static __device__ void give_factors(const struct scan_params &p, u32 head, const struct row_block &b,
                                    const struct prepare_room &room)
{
    u32 i = threadIdx.x;

    if (i >= b.n)
        return;
    f32 decay = expf((f32)room.logs[i]), rule = room.rule[i], key = room.length[0][i];
    p.factors[(u64)(b.row + i) * p.args.n_heads + head] = {
        .found = -rule * decay * key,
        .rule = rule,
        .out = decay * room.length[1][i],
        .kept = key * expf((f32)(room.logs[b.n - 1] - room.logs[i])),
        .decay = decay,
    };
}

static __device__ void prepare(const struct scan_params &p, u32 head, const struct row_block &b)
{
    struct prepare_room &room = *(struct prepare_room *)scan_shared;

    __syncthreads(); // the block before is done
    take_row_gates(p, head, b, room);
    take_rows(p, head, b, room);
    __syncthreads();
    if (threadIdx.x < 32)
        add_up_logs(room);
    __syncthreads();
    give_factors(p, head, b, room);
    tie_rows(p, head, b, room);
    __syncthreads();
    if (!(p.args.flags & SCAN_DELTA))
        return;
    solve_rows(b.n, room);
    give_solved(p, head, b, room);
}

// Which of the 32 rows from `first` on begin a block of a long sequence, a bit each.
static __device__ __forceinline__ u32 block_begins(const struct step *step, u32 first)
{
    u32 row = first + threadIdx.x % 32, n_rows = step->n_rows, last = n_rows - 1;
    bool cut = step_positions(step)[min(row, last)] % ROWS == 0 ||
               step_states_to(step)[max(min(row, last), 1u) - 1] != STATE_NONE;
    u32 sequences = sequence_begins(step, first, 32),
        begins = sequences | __ballot_sync(~0u, row < n_rows && cut), found = 0;

    for (; begins; begins &= begins - 1) {
        u32 i = (u32)__ffs((int)begins) - 1, rest = sequences >> i;
        bool alone = rest & 1 && rest & ((1u << SCAN_LONG) - 2); // another begins too soon: a common case
        if (!alone && scan_is_long(step, first + i))
            found |= 1u << i;
    }
    return found;
}

// The blocks that begin within 32 rows of the step.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    scan_prepare(const __grid_constant__ struct scan_params p)
{
    u32 first = blockIdx.y * 32, begins = first < p.step->n_rows ? block_begins(p.step, first) : 0;

    wait_for_inputs();
    for (; begins; begins &= begins - 1) {
        u32 row = first + (u32)__ffs((int)begins) - 1;
        prepare(p, blockIdx.x, { row, block_rows(block_look(p.step, row)) });
    }
}

// ---- scan_blocks

struct walk_room {
    f32 keys[2][2][ROWS][KEY_STRIDE];                            // of this block and the next: k, q
    f32 tiles[2][ROWS][TILE_STRIDE];                             // T, P
    f32 values[ROWS][COLUMN_STRIDE], moved[ROWS][COLUMN_STRIDE]; // v, then R; U
    f32 state[DIM][COLUMN_STRIDE];
    struct scan_factors factors[ROWS];
};
STATIC_ASSERT(sizeof(struct walk_room) == SCAN_BLOCKS_SHARED);

struct block_walk {
    const struct scan_params &p;
    struct walk_room &room;
    u32 head, key_head, column;     // the first
    f32 state[SCAN_COLUMNS / 8][4]; // rows 16 * warp + .. of all columns, as a product has them
};

static __device__ void fetch_keys(const struct block_walk &w, const struct row_block &b, u32 stage)
{
    for (u32 i = threadIdx.x; i < 2 * ROWS * DIM / 4; i += THREADS) {
        u32 which = i / (ROWS * DIM / 4), row = i / (DIM / 4) % ROWS, at = i % (DIM / 4) * 4;
        if (at < w.p.args.d_k)
            copy_begin(&w.room.keys[stage][which][row][at],
                       key_at(w.p, w.key_head, b.row + (row < b.n ? row : 0), which) + at, row < b.n);
    }
}

static __device__ void fetch_tiles(const struct block_walk &w, const struct row_block &b)
{
    const struct scan_args &a = w.p.args;

    for (u32 i = threadIdx.x; i < 2 * ROWS * ROWS / 4; i += THREADS) {
        u32 which = i / (ROWS * ROWS / 4), row = i / (ROWS / 4) % ROWS, at = i % (ROWS / 4) * 4;
        if (at < row / PART * PART + PART && (which || a.flags & SCAN_DELTA))
            copy_begin(&w.room.tiles[which][row][at],
                       solved_at(w.p, w.head, b.row + (row < b.n ? row : 0), which) + at, row < b.n);
    }
    for (u32 i = threadIdx.x; i < ROWS * SCAN_COLUMNS / 4; i += THREADS) {
        u32 row = i / (SCAN_COLUMNS / 4), at = i % (SCAN_COLUMNS / 4) * 4;
        bool exists = row < b.n && w.column + at < a.d_v;
        copy_begin(&w.room.values[row][at],
                   w.p.in + (u64)(b.row + (exists ? row : 0)) * a.in_cols + a.v_at + w.head * a.d_v +
                       (exists ? w.column + at : 0),
                   exists);
    }
    for (u32 i = threadIdx.x; i < ROWS * FACTOR_WORDS; i += THREADS) {
        u32 row = i / FACTOR_WORDS, at = i % FACTOR_WORDS * 4;
        const struct scan_factors *from =
            &w.p.factors[(u64)(b.row + (row < b.n ? row : 0)) * a.n_heads + w.head];
        copy_begin((f32 *)&w.room.factors[row] + at, (const f32 *)from + at, row < b.n);
    }
}

// The place in device memory of the two columns of tile j that a lane has, or none.
static __device__ __forceinline__ f32 *state_at(const struct block_walk &w, u32 which, u32 j, u32 half)
{
    const struct scan_args &a = w.p.args;
    u32 lane = threadIdx.x % 32, row = threadIdx.x / 32 * PART + lane / 4 + 8 * half,
        column = w.column + 8 * j + lane % 4 * 2;

    return row < a.d_k && column < a.d_v ? w.p.states + (u64)which * a.state_words + a.state_at +
                                               ((u64)w.head * a.d_k + row) * a.d_v + column
                                         : nullptr;
}

static __device__ void take_state(struct block_walk &w, u32 from)
{
#pragma unroll
    for (u32 j = 0; j < SCAN_COLUMNS / 8; j++)
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const f32 *at = from != STATE_ZERO ? state_at(w, from, j, half) : nullptr;
            w.state[j][2 * half] = at ? at[0] : 0;
            w.state[j][2 * half + 1] = at ? at[1] : 0;
        }
}

static __device__ void give_state(const struct block_walk &w, u32 to)
{
#pragma unroll
    for (u32 j = 0; j < SCAN_COLUMNS / 8; j++)
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            f32 *at = state_at(w, to, j, half);
            if (at) {
                at[0] = w.state[j][2 * half];
                at[1] = w.state[j][2 * half + 1];
            }
        }
}

static __device__ void share_state(const struct block_walk &w)
{
    u32 lane = threadIdx.x % 32, row = threadIdx.x / 32 * PART + lane / 4;

#pragma unroll
    for (u32 j = 0; j < SCAN_COLUMNS / 8; j++)
#pragma unroll
        for (u32 half = 0; half < 2; half++)
            *(float2 *)&w.room.state[row + 8 * half][8 * j + lane % 4 * 2] =
                make_float2(w.state[j][2 * half], w.state[j][2 * half + 1]);
}

// A warp has 16 rows of a block and 16 columns: two tiles of a product.
struct warp_place {
    u32 rows, columns;
};
static __device__ __forceinline__ struct warp_place warp_place()
{
    return { threadIdx.x / 32 % 4 * PART, threadIdx.x / 128 * PART };
}
// Where number e of tile j is.
static __device__ __forceinline__ u32 row_of(const struct warp_place &at, u32 e)
{
    return at.rows + threadIdx.x % 32 / 4 + e / 2 * 8;
}
static __device__ __forceinline__ u32 column_of(const struct warp_place &at, u32 j, u32 e)
{
    return at.columns + 8 * j + threadIdx.x % 4 * 2 + e % 2;
}

// S^T k and S^T q, of rows as they lie in the step.
static __device__ void ask_state(const struct block_walk &w, u32 stage, struct fp32_sums (&found)[2],
                                 struct fp32_sums (&out)[2])
{
    struct warp_place at = warp_place();
    bool delta = w.p.args.flags & SCAN_DELTA;

#pragma unroll 4
    for (u32 k = 0; k < w.p.args.d_k; k += 8) {
        struct tf32_parts<4> keys = {}, queries = take_a(&w.room.keys[stage][1][at.rows][k], KEY_STRIDE, 1);
        if (delta)
            keys = take_a(&w.room.keys[stage][0][at.rows][k], KEY_STRIDE, 1);
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            struct tf32_parts<2> s = take_b(&w.room.state[k][at.columns + 8 * j], COLUMN_STRIDE, 1);
            mma_fp32(out[j], queries, s);
            if (delta)
                mma_fp32(found[j], keys, s);
        }
    }
}

// d += T or P times what lies in `columns`: no row reads those below it.
static __device__ void add_rows(const struct block_walk &w, u32 which,
                                const f32 (&columns)[ROWS][COLUMN_STRIDE], struct fp32_sums (&d)[2])
{
    struct warp_place at = warp_place();

#pragma unroll 2
    for (u32 k = 0; k < at.rows + PART; k += 8) {
        struct tf32_parts<4> a = take_a(&w.room.tiles[which][at.rows][k], TILE_STRIDE, 1);
#pragma unroll
        for (u32 j = 0; j < 2; j++)
            mma_fp32(d[j], a, take_b(&columns[k][at.columns + 8 * j], COLUMN_STRIDE, 1));
    }
}

// U, for all to read.
static __device__ void move_rows(const struct block_walk &w, const struct fp32_sums (&found)[2])
{
    struct warp_place at = warp_place();
    bool delta = w.p.args.flags & SCAN_DELTA;
    struct fp32_sums moved[2] = {};

#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 row = row_of(at, i % 4), column = column_of(at, i / 4, i % 4);
        const struct scan_factors &f = w.room.factors[row];
        f32 asked = f.rule * w.room.values[row][column];
        if (delta)
            w.room.values[row][column] = asked + f.found * fp32_sum(found[i / 4], i % 4);
        else
            w.room.moved[row][column] = asked;
    }
    if (delta) {
        __syncthreads();
        add_rows(w, 0, w.room.values, moved);
#pragma unroll
        for (u32 i = 0; i < 8; i++)
            w.room.moved[row_of(at, i % 4)][column_of(at, i / 4, i % 4)] = fp32_sum(moved[i / 4], i % 4);
    }
    __syncthreads();
}

static __device__ void give_out(const struct block_walk &w, const struct row_block &b,
                                const struct fp32_sums (&asked)[2])
{
    const struct scan_args &a = w.p.args;
    struct warp_place at = warp_place();
    f32 skip = w.p.d ? w.p.d[w.head] : 0;
    struct fp32_sums moved[2] = {};

    add_rows(w, 1, w.room.moved, moved);
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 row = row_of(at, i % 4), column = column_of(at, i / 4, i % 4);
        f32 out = w.room.factors[row].out * fp32_sum(asked[i / 4], i % 4) + fp32_sum(moved[i / 4], i % 4);
        if (w.p.d)
            out += skip * w.room.values[row][column];
        if (row < b.n && w.column + column < a.d_v)
            w.p.out[((u64)(b.row + row) * a.n_heads + w.head) * a.d_v + w.column + column] = out;
    }
}

static __device__ void move_state(struct block_walk &w, const struct row_block &b, u32 stage)
{
    u32 first = threadIdx.x / 32 * PART, t = threadIdx.x % 4;
    f32 decay = w.room.factors[b.n - 1].decay;

    if (first >= w.p.args.d_k)
        return;
    struct fp32_sums added[SCAN_COLUMNS / 8] = {};
#pragma unroll 4
    for (u32 k = 0; k < b.n; k += 8) {
        struct tf32_parts<4> keys = take_a(&w.room.keys[stage][0][k][first], 1, KEY_STRIDE);
        f32 kept[2] = { w.room.factors[k + t].kept, w.room.factors[k + t + 4].kept };
#pragma unroll
        for (u32 j = 0; j < SCAN_COLUMNS / 8; j++)
            mma_fp32(added[j], keys, take_b(&w.room.moved[k][8 * j], COLUMN_STRIDE, 1, kept[0], kept[1]));
    }
#pragma unroll
    for (u32 i = 0; i < SCAN_COLUMNS / 2; i++)
        w.state[i / 4][i % 4] = decay * w.state[i / 4][i % 4] + fp32_sum(added[i / 4], i % 4);
}

// The block that begins at `row`, if the sequence goes on there.
static __device__ __forceinline__ struct row_block block_at(const struct step *step, u32 row)
{
    return { row, sequence_goes_on(step, row) ? block_rows(block_look(step, row)) : 0 };
}

// The rows of the sequence that begins at `row`; where they end. What the step says of the block behind the
// next is asked for before this one's products, and used after them.
static __device__ u32 walk_blocks(struct block_walk &w, u32 row)
{
    const struct step *step = w.p.step;
    struct row_block b = { row, block_rows(block_look(step, row)) }, next = block_at(step, row + b.n);

    take_state(w, step_states_from(step)[row]);
    __syncthreads(); // the sequence before is done
    fetch_keys(w, b, 0);
    copies_close();
    for (u32 stage = 0; b.n > 0; stage ^= 1) {
        struct row_block behind = { next.row + next.n, 0 };
        struct row_marks marks = block_look(step, behind.row);
        bool goes_on = next.n > 0 && sequence_goes_on(step, behind.row);
        u32 to = step_states_to(step)[next.row - 1];

        __syncthreads(); // the block before is done
        fetch_tiles(w, b);
        copies_close();
        if (next.n > 0)
            fetch_keys(w, next, stage ^ 1);
        copies_close();
        share_state(w);
        copies_wait<2>();
        __syncthreads();
        struct fp32_sums found[2] = {}, out[2] = {};
        ask_state(w, stage, found, out);
        copies_wait<1>();
        __syncthreads();
        move_rows(w, found);
        give_out(w, b, out);
        move_state(w, b, stage);
        if (to != STATE_NONE)
            give_state(w, to);
        behind.n = goes_on ? block_rows(marks) : 0;
        b = next;
        next = behind;
    }
    return b.row;
}

// Blocks of the grid take the long sequences of a step in turns.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    scan_blocks(const __grid_constant__ struct scan_params p)
{
    u32 n_slices = (p.args.d_v + SCAN_COLUMNS - 1) / SCAN_COLUMNS, head = blockIdx.x / n_slices, turn = 0,
        n_rows = p.step->n_rows;
    struct block_walk w = { p, *(struct walk_room *)scan_shared, head,
                            scan_key_head(p.args.n_heads, p.args.n_k_heads, p.args.flags, head),
                            blockIdx.x % n_slices * SCAN_COLUMNS };

    wait_for_inputs();
    for (u32 row = 0; row < n_rows;) {
        u32 begins = sequence_begins(p.step, row, 32), i = (u32)__ffs((int)begins) - 1,
            behind = begins & (begins - 1);
        if (!begins) {
            row += 32;
            continue;
        }
        bool alone = behind && (u32)__ffs((int)behind) - 1 - i < SCAN_LONG; // a common case
        bool mine = !alone && scan_is_long(p.step, row + i) && turn++ % gridDim.y == blockIdx.y;
        row = mine ? walk_blocks(w, row + i) : behind ? row + (u32)__ffs((int)behind) - 1 : row + 32;
    }
}
