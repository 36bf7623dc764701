// embed.metal - the operation as defined in embed.h: a threadgroup takes a row of the step, a thread eight
// columns of it.
#include "device/metal/msl.h"
#include "ops/embed/embed.h"
#include "gemm/metal/runs.metalh"

constant uint EMBED_FORMAT [[function_constant(0)]];

inline void put(device f32 *out, f32 value, u32 by)
{
    *out = by == EMBED_TOKEN ? value : *out + value;
}

kernel void embed(constant struct embed_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]],
                  device const uchar *table [[buffer(2)]], device const u32 *history [[buffer(3)]],
                  device const f32 *pool [[buffer(4)]], device f32 *out [[buffer(5)]],
                  uint3 at [[threadgroup_position_in_grid]],
                  uint thread_index [[thread_index_in_threadgroup]],
                  uint3 n_threads [[threads_per_threadgroup]])
{
    u32 row = at.x, n_runs = EMBED_FORMAT <= FORMAT_BF16 && args.n_cols % 8 != 0 ? 0 : args.n_cols / 8;

    if (row >= step.n_rows)
        return;
    u32 token = args.by == EMBED_TOKEN      ? step_tokens(&step)[row]
                : args.by == EMBED_POSITION ? step_positions(&step)[row]
                                            : 0;
    if (token == STEP_TOKEN_HISTORY)
        token = history[u64(step_slots(&step)[row]) * args.history_stride + step_positions(&step)[row]];
    out += u64(row) * args.n_cols;
    if (token >= STEP_TOKEN_POOLED && token - STEP_TOKEN_POOLED < args.n_pooled) {
        pool += u64(token - STEP_TOKEN_POOLED) * args.n_cols;
        for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
            out[c] = pool[c];
        return;
    }
    if (token >= args.n_tokens)
        token = 0; // the row of a sequence whose last result was invalid: it is not used
    table += u64(token) * format_row_bytes(EMBED_FORMAT, args.n_cols);
    for (u32 i = thread_index; i < n_runs; i += n_threads.x) {
        struct run r = run_load(EMBED_FORMAT, table, i);
        for (u32 j = 0; j < 4; j++) {
            put(out + 8 * i + j, r.low[j] * args.scale, args.by);
            put(out + 8 * i + 4 + j, r.high[j] * args.scale, args.by);
        }
    }
    for (u32 c = 8 * n_runs + thread_index; c < args.n_cols; c += n_threads.x) // odd widths of plain formats
        put(out + c, plain_element(EMBED_FORMAT, table, c) * args.scale, args.by);
}
