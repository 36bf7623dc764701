// fuse.c - decides which command writes the next one's packed input; see fuse.h.
#include "device/fuse.h"
#include "device/tape_internal.h"

static bool rule_fits(const struct tape *t, const struct tape_fusion *rule, const struct command *from,
                      const struct command *to)
{
    uint32_t tensor = rule->from == from->op && rule->to == to->op ? from->operands[rule->out].tensor : 0;

    return tensor && to->operands[rule->in].tensor == tensor && t->tensors[tensor - 1].rows == ROWS_STEP;
}

static void fuse_pair(struct tape *t, uint32_t at, const struct tape_fusion *rule,
                      const struct tape_packing *packing)
{
    struct command *from = &t->commands[at], *to = &t->commands[at + 1];
    uint32_t n_cols = t->tensors[from->operands[rule->out].tensor - 1].n_cols;
    const struct weight *norm = rule->norm ? to->operands[rule->norm].weight : NULL;
    struct tensor packed = tape_tensor(t, n_cols, ROWS_STEP);

    if (packed.id == 0)
        return; // tape_seal reports the error
    struct tape_tensor_plan *plan = &t->tensors[packed.id - 1];
    struct operand operand = {
        .tensor = packed.id, .type = OPERAND_PACKED, .packing = packing, .norm = norm
    };
    operand.bytes = plan->bytes = packing->bytes(t->limits.max_rows, n_cols, norm != NULL);
    plan->first = at;
    plan->last = at + 1;
    operand.rows = rule->in;
    *tape_operand_add(to) = operand;
    operand.rows = rule->out;
    operand.writes = true;
    *tape_operand_add(from) = operand;
}

void fuse_commands(struct tape *t)
{
    for (uint32_t i = 0; i + 1 < t->n_commands; i++)
        for (const struct tape_fusion *rule = t->device->fusions; rule && rule->packing; rule++) {
            const struct command *from = &t->commands[i], *to = &t->commands[i + 1];
            if (!rule_fits(t, rule, from, to))
                continue;
            const struct tape_packing *packing = rule->packing(t->device, &t->limits, from, to);
            if (packing)
                fuse_pair(t, i, rule, packing);
            break;
        }
}

const struct operand *fuse_packed(const struct command *c, bool writes)
{
    for (uint32_t i = 0; i < c->n_operands; i++)
        if (c->operands[i].type == OPERAND_PACKED && c->operands[i].writes == writes)
            return &c->operands[i];
    return NULL;
}
