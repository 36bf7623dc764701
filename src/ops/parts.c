// parts.c - see parts.h.
#include "ops/parts.h"
#include <string.h>
#include "ops/attend_block/attend_block.h"
#include "ops/delta_step/delta_step.h"
#include "ops/latent/latent.h"
#include "ops/latent_block/latent_block.h"
#include "ops/latent_prompt/latent_prompt.h"
#include "ops/moe/moe.h"

static const struct whole {
    uint32_t n_parts; // 0: no parts
    void (*parts)(const struct command *whole, struct command *parts);
} wholes[N_OPS] = {
    [OP_attend_block] = { ATTEND_BLOCK_N_PARTS, attend_block_parts },
    [OP_delta_step] = { DELTA_N_PARTS, delta_step_parts },
    [OP_latent_block] = { LATENT_BLOCK_N_PARTS, latent_block_parts },
    [OP_latent_prompt] = { LATENT_PROMPT_N_PARTS, latent_prompt_parts },
    [OP_latent_qk] = { LATENT_QK_N_PARTS, latent_qk_parts },
    [OP_moe] = { MOE_N_PARTS, moe_parts },
};
STATIC_ASSERT(ATTEND_BLOCK_N_PARTS <= MOST_PARTS && DELTA_N_PARTS <= MOST_PARTS &&
              LATENT_BLOCK_N_PARTS <= MOST_PARTS && LATENT_PROMPT_N_PARTS <= MOST_PARTS &&
              LATENT_QK_N_PARTS <= MOST_PARTS && MOE_N_PARTS <= MOST_PARTS);

uint32_t parts_of(const struct command *whole, struct command parts[MOST_PARTS])
{
    static const struct whole none = { 0 };
    const struct whole *w = whole->op < N_OPS ? &wholes[whole->op] : &none; // borders are no operations

    if (w->n_parts)
        w->parts(whole, parts);
    return w->n_parts;
}

struct command part_of(const struct command *whole, uint16_t op, const char *name, const void *args,
                       size_t args_bytes)
{
    struct command part = { .op = op, .name = name, .label = whole->label };

    memcpy(part.args, args, args_bytes);
    return part;
}

void part_operands(struct command *part, const struct command *whole, const int *from, uint8_t n)
{
    part->n_operands = n;
    for (uint32_t i = 0; i < n; i++)
        if (from[i] != NO_OPERAND)
            part->operands[i] = whole->operands[from[i]];
}
