// embed_cpu.c - the definition. Decoding one row is a copy for memory's purposes; nothing faster is needed.
#include <string.h>
#include "ops/embed/embed.h"
#include "ops/rows.h"

static void embed_row(const struct cpu_call *call, uint32_t row)
{
    const struct embed_args *args = cpu_args(call);
    const struct weight *table = cpu_weight(call, EMBED_TABLE);
    const uint32_t *history = cpu_base(call, EMBED_HISTORY); // [n_slots, history_stride]
    float *out = cpu_row(call, EMBED_OUT, row);              // [n_cols]
    uint32_t token = step_tokens(call->step)[row];

    if (token == STEP_TOKEN_HISTORY)
        token = history[(uint64_t)step_slots(call->step)[row] * args->history_stride +
                        step_positions(call->step)[row]];
    if (token >= STEP_TOKEN_POOLED && token - STEP_TOKEN_POOLED < args->n_pooled) {
        const float *pool = cpu_base(call, EMBED_POOL); // [n_pooled, n_cols]
        memcpy(out, pool + (size_t)(token - STEP_TOKEN_POOLED) * args->n_cols, args->n_cols * sizeof *out);
        return;
    }
    if (token >= args->n_tokens)
        token = 0; // the row of a sequence whose last result was invalid: it is not used
    quant_info(table->format)->decode(cpu_row(call, EMBED_TABLE, token), out, args->n_cols);
    for (uint32_t c = 0; c < args->n_cols && args->scale != 1; c++)
        out[c] *= args->scale;
}

// The engine has checked that positions are below the table's rows.
static void add_table_row(const struct cpu_call *call, uint32_t row)
{
    const struct embed_args *args = cpu_args(call);
    const struct weight *table = cpu_weight(call, EMBED_TABLE);
    const struct quant_info *info = quant_info(table->format);
    uint32_t from = args->by == EMBED_POSITION ? step_positions(call->step)[row] : 0;
    const unsigned char *at = cpu_row(call, EMBED_TABLE, from < args->n_tokens ? from : 0);
    float *out = cpu_row(call, EMBED_OUT, row), decoded[256];

    for (uint32_t c = 0, n; c < args->n_cols; c += n) {
        n = args->n_cols - c < 256 ? args->n_cols - c : 256;
        info->decode(at + c / info->block_elements * info->block_bytes, decoded, n);
        for (uint32_t i = 0; i < n; i++)
            out[c + i] += decoded[i];
    }
}

static void embed_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t row = first; row < last; row++)
        if (((const struct embed_args *)cpu_args(call))->by == EMBED_TOKEN)
            embed_row(call, row);
        else
            add_table_row(call, row);
}

// A few rows; the table is large.
static void embed_reads(const struct cpu_call *call, cpu_tell *tell, void *arg)
{
    (void)call, (void)tell, (void)arg;
}

const struct cpu_op cpu_op_embed = {
    .name = "embed", .by_rows = true, .reads = embed_reads, .plain = { plan_rows, embed_run }
};
