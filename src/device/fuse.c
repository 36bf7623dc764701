// fuse.c - decides which command writes others' packed input; see fuse.h.
#include "device/fuse.h"
#include "device/tape_internal.h"

enum { MOST_READERS = 4 };

// Who reads a command's result until it is written anew.
struct fuse_readers {
    const struct tape_packing *packing; // of the first that takes it packed; the others must take the same
    const struct weight *norm;
    struct fuse_reader {
        uint32_t at, in;
    } packed[MOST_READERS];
    uint32_t n;
    bool plain; // some read it as fp32
    enum fuse_rows rows;
};

static const struct tape_fusion *rule_for(const struct tape *t, const struct command *from,
                                          const struct command *to, uint32_t in)
{
    for (const struct tape_fusion *r = t->device->fusions; r && r->packing; r++)
        if (r->from == from->op && r->to == to->op && r->in == in)
            return r;
    return NULL;
}

static void add_reader(const struct tape *t, struct fuse_readers *readers, const struct command *from,
                       struct fuse_reader reader)
{
    const struct command *to = &t->commands[reader.at];
    const struct tape_fusion *rule = rule_for(t, from, to, reader.in);
    const struct tape_packing *packing = rule ? rule->packing(t->device, &t->limits, from, to) : NULL;
    const struct weight *norm = packing && rule->norm ? to->operands[rule->norm].weight : NULL;

    if (!packing || readers->n == MOST_READERS ||
        (readers->n && (packing != readers->packing || norm != readers->norm))) {
        readers->plain = true;
        return;
    }
    readers->packing = packing;
    readers->norm = norm;
    readers->rows = readers->n == 0 || rule->rows < readers->rows ? rule->rows : readers->rows;
    readers->packed[readers->n++] = reader;
}

static struct fuse_readers find_readers(const struct tape *t, uint32_t from, uint32_t tensor)
{
    struct fuse_readers readers = { 0 };
    bool written = false;

    for (uint32_t at = from + 1; at < t->n_commands && !written; at++)
        for (uint32_t in = 0; in < t->commands[at].n_operands; in++) {
            const struct operand *o = &t->commands[at].operands[in];
            if (o->tensor == tensor && o->writes)
                written = true;
            else if (o->tensor == tensor)
                add_reader(t, &readers, &t->commands[from], (struct fuse_reader){ at, in });
        }
    return readers;
}

static void drop_rows(struct operand *o)
{
    o->tensor = 0;
    o->buffer = NULL;
    o->bytes = 0;
}

// Leaves out the fp32 rows themselves where no other command uses them.
static void fuse_result(struct tape *t, uint32_t from, uint32_t out, const struct fuse_readers *readers)
{
    struct operand *result = &t->commands[from].operands[out];
    uint32_t tensor = result->tensor, n_cols = t->tensors[tensor - 1].n_cols,
             last = readers->packed[readers->n - 1].at;
    const struct tape_tensor_plan *old = &t->tensors[tensor - 1];
    bool drops = readers->rows != FUSE_ROWS_TOO && !readers->plain && !old->bound && old->first == from &&
                 old->last == last;
    enum tensor_rows kind = old->rows;
    struct tensor packed =
        readers->rows == FUSE_NO_ROWS && !drops ? (struct tensor){ 0 } : tape_tensor(t, n_cols, kind);

    if (packed.id == 0)
        return; // or tape_seal reports the error
    struct tape_tensor_plan *plan = &t->tensors[packed.id - 1], *rows = &t->tensors[tensor - 1];
    struct operand operand = {
        .tensor = packed.id, .type = OPERAND_PACKED, .packing = readers->packing, .norm = readers->norm
    };
    operand.bytes = plan->bytes = readers->packing->bytes(
        kind == ROWS_STEP ? t->limits.max_rows : t->limits.max_outputs, n_cols, readers->norm != NULL);
    plan->first = from;
    plan->last = last;
    for (uint32_t i = 0; i < readers->n; i++) {
        struct command *to = &t->commands[readers->packed[i].at];
        operand.rows = readers->packed[i].in;
        *tape_operand_add(to) = operand;
        if (drops)
            drop_rows(&to->operands[operand.rows]);
    }
    operand.rows = out;
    operand.writes = true;
    *tape_operand_add(&t->commands[from]) = operand;
    if (drops) {
        drop_rows(result);
        rows->first = UINT32_MAX;
    }
}

static void fuse_command(struct tape *t, uint32_t at)
{
    uint32_t done = 0; // a bit for each operand

    for (const struct tape_fusion *r = t->device->fusions; r && r->packing; r++) {
        uint32_t tensor = r->from == t->commands[at].op ? t->commands[at].operands[r->out].tensor : 0;
        if (tensor == 0 || done >> r->out & 1 || t->commands[at].border ||
            t->tensors[tensor - 1].rows != (r->rows == FUSE_OUTPUTS_IF_READ ? ROWS_OUTPUT : ROWS_STEP))
            continue;
        struct fuse_readers readers = find_readers(t, at, tensor);
        if (readers.n)
            fuse_result(t, at, r->out, &readers);
        done |= 1u << r->out;
    }
}

void fuse_commands(struct tape *t)
{
    for (uint32_t i = 0; i + 1 < t->n_commands; i++)
        fuse_command(t, i);
}

const struct operand *fuse_packed(const struct command *c, bool writes)
{
    for (uint32_t i = 0; i < c->n_operands; i++)
        if (c->operands[i].type == OPERAND_PACKED && c->operands[i].writes == writes)
            return &c->operands[i];
    return NULL;
}

static const struct operand *packed_form(const struct command *c, uint32_t rows, bool writes)
{
    for (uint32_t i = 0; i < c->n_operands; i++)
        if (c->operands[i].type == OPERAND_PACKED && c->operands[i].writes == writes &&
            c->operands[i].rows == rows)
            return &c->operands[i];
    return NULL;
}

const struct operand *fuse_packed_input(const struct command *c, uint32_t in)
{
    return packed_form(c, in, false);
}

const struct operand *fuse_packed_result(const struct command *c, uint32_t out)
{
    return packed_form(c, out, true);
}
