// tape_diff.c - plays a tape on two devices, command by command, and measures the error of each result.
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "device/fuse.h"
#include "device/step.h"
#include "device/tape_internal.h"

// The bytes of one operand on both devices, on the host.
struct both_sides {
    unsigned char *a, *b;
};

static bool copy_over(const struct operand *from, const struct operand *to, struct err *err)
{
    unsigned char *bytes = mem_alloc(from->bytes);
    bool ok = bytes ? buffer_read(from->buffer, from->offset, bytes, from->bytes, err) &&
                          buffer_write((struct buffer *)to->buffer, to->offset, bytes, from->bytes, err)
                    : err_memory(err, "a copy of an operand");
    mem_free(bytes);
    return ok;
}

// Packed rows of one command on the host: the fp32 rows as the device has them, and the norm's scale.
struct packed_copy {
    const struct operand *packed, *rows;
    float *numbers, *norm;
    void *bytes;
};

static void packed_release(struct packed_copy *p)
{
    mem_free(p->numbers);
    mem_free(p->norm);
    mem_free(p->bytes);
}

// `rows`: the operand whose rows are packed, of this or of the other device's command.
static bool packed_open(struct packed_copy *p, const struct operand *packed, const struct operand *rows,
                        struct err *err)
{
    const struct weight *norm = packed->norm;

    *p = (struct packed_copy){ packed, rows, mem_alloc(rows->bytes), norm ? mem_alloc(norm->bytes) : NULL,
                               mem_alloc(packed->bytes) };
    if (p->numbers && p->bytes && (p->norm || !norm))
        return buffer_read(rows->buffer, rows->offset, p->numbers, rows->bytes, err) &&
               (!norm || buffer_read(&norm->buffer, 0, p->norm, norm->bytes, err));
    return err_memory(err, "a copy of packed rows");
}

static struct packed_rows packed_rows_of(const struct packed_copy *p, uint32_t n_rows)
{
    return (struct packed_rows){ p->numbers, p->norm, n_rows, (uint32_t)(p->rows->row_bytes / 4) };
}

// b's packed input becomes that of a's rows: the plain definition of the packing makes it.
static bool align_packed(const struct command *a, const struct operand *packed, struct err *err)
{
    const struct operand *rows = &a->operands[packed->rows];
    struct packed_copy p;
    bool ok = packed_open(&p, packed, rows, err);
    if (ok) {
        struct packed_rows all = packed_rows_of(&p, (uint32_t)(rows->bytes / rows->row_bytes));
        packed->packing->pack(&all, p.bytes);
        ok = buffer_write((struct buffer *)packed->buffer, packed->offset, p.bytes, packed->bytes, err);
    }
    packed_release(&p);
    return ok;
}

static bool align_inputs(const struct command *a, const struct command *b, struct err *err)
{
    for (uint32_t i = 0; i < a->n_operands; i++) {
        const struct operand *from = &a->operands[i], *to = &b->operands[i];
        if (!from->buffer || from->weight || from->type == OPERAND_PACKED || from->bytes != to->bytes)
            continue;
        if (!copy_over(from, to, err))
            return false;
    }
    for (uint32_t i = 0; i < b->n_operands; i++)
        if (b->operands[i].type == OPERAND_PACKED && !b->operands[i].writes &&
            !align_packed(a, &b->operands[i], err))
            return false;
    return true;
}

static float number_at(const unsigned char *bytes, enum operand_type type, uint64_t i)
{
    if (type == OPERAND_F32)
        return ((const float *)bytes)[i];
    uint16_t bits = ((const uint16_t *)bytes)[i];
    return type == OPERAND_F16 ? quant_half_to_float(bits) : quant_bf16_to_float(bits);
}

static double squared_error(const struct both_sides *at, enum operand_type type, uint64_t n)
{
    double error = 0, norm = 0;

    for (uint64_t i = 0; i < n; i++) {
        double a = number_at(at->a, type, i), b = number_at(at->b, type, i);
        if (isnan(a) != isnan(b))
            return INFINITY;
        double d = isnan(a) || a == b ? 0 : a - b;
        error += d * d;
        norm += isnan(a) ? 0 : a * a;
    }
    return error == 0 ? 0 : error / (norm > 1e-30 ? norm : 1e-30);
}

static double compare_bytes(const struct tape *t, const struct operand *o, const struct both_sides *at,
                            const struct step *step)
{
    uint64_t bytes = o->bytes;

    if (o->tensor)
        bytes = o->row_bytes * tape_operand_rows(t, o, step);
    if (o->type == OPERAND_U32)
        return memcmp(at->a, at->b, bytes) == 0 ? 0 : INFINITY;
    return squared_error(at, o->type, bytes / (o->type == OPERAND_F32 ? 4 : 2));
}

struct comparison {
    struct tape *a, *b;
    const struct step *step;
};

static bool compare_operand(const struct comparison *c, uint32_t command, uint32_t operand, double *error,
                            struct err *err)
{
    const struct operand *a = &c->a->commands[command].operands[operand],
                         *b = &c->b->commands[command].operands[operand];
    struct both_sides at = { mem_alloc(a->bytes), mem_alloc(a->bytes) };
    bool ok = at.a && at.b ? buffer_read(a->buffer, a->offset, at.a, a->bytes, err) &&
                                 buffer_read(b->buffer, b->offset, at.b, a->bytes, err)
                           : err_memory(err, "two copies of an operand");
    if (ok)
        *error = compare_bytes(c->a, a, &at, c->step);
    mem_free(at.a);
    mem_free(at.b);
    return ok;
}

static double packed_error(struct packed_copy *p, const unsigned char *made, float *unpacked, uint32_t n_rows)
{
    const struct tape_packing *packing = p->packed->packing;
    struct packed_rows rows = packed_rows_of(p, n_rows), other = rows;

    other.rows = unpacked;
    packing->pack(&rows, p->bytes);
    packing->unpack(p->bytes, &rows);
    packing->unpack(made, &other);
    return squared_error(&(struct both_sides){ (unsigned char *)rows.rows, (unsigned char *)unpacked },
                         OPERAND_F32, (uint64_t)n_rows * rows.n_cols);
}

// What b packed, against what the plain definition packs of b's own fp32 rows, or of a's where b left them
// out; both are unpacked.
static bool compare_packed(const struct comparison *c, uint32_t index, const struct operand *packed,
                           struct tape_difference *d, struct err *err)
{
    const struct command *command = &c->b->commands[index];
    struct packed_copy p;
    const struct operand *a = &c->a->commands[index].operands[packed->rows],
                         *b = &command->operands[packed->rows], *rows = b->buffer ? b : a;
    unsigned char *made = mem_alloc(packed->bytes);
    float *unpacked = mem_alloc(rows->bytes);
    bool ok = packed_open(&p, packed, rows, err) &&
              (made && unpacked ? buffer_read(packed->buffer, packed->offset, made, packed->bytes, err)
                                : err_memory(err, "a copy of packed rows"));
    double error = ok ? packed_error(&p, made, unpacked, tape_operand_rows(c->a, a, c->step)) : 0;
    if (error > d->error) {
        d->error = error;
        d->operand = (uint32_t)(packed - command->operands);
    }
    packed_release(&p);
    mem_free(made);
    mem_free(unpacked);
    return ok;
}

// The largest error of the operands that the command wrote.
static bool compare_command(const struct comparison *c, uint32_t index, struct tape_difference *d,
                            struct err *err)
{
    const struct command *command = &c->a->commands[index], *other = &c->b->commands[index];

    *d = (struct tape_difference){ .label = command->label, .name = command->name, .command = index };
    for (uint32_t i = 0; i < command->n_operands; i++) {
        const struct operand *o = &command->operands[i];
        double error = 0;
        if (!o->buffer || !other->operands[i].buffer || !o->writes || o->type == OPERAND_PRIVATE ||
            o->type == OPERAND_PACKED)
            continue;
        if (!compare_operand(c, index, i, &error, err))
            return false;
        if (error >= d->error) {
            d->error = error;
            d->operand = i;
        }
    }
    for (uint32_t i = 0; i < other->n_operands; i++)
        if (other->operands[i].type == OPERAND_PACKED && other->operands[i].writes &&
            !compare_packed(c, index, &other->operands[i], d, err))
            return false;
    return true;
}

bool tape_diff(struct tape *a, struct tape *b, const struct buffer *steps[2], tape_on_command *on_command,
               void *arg, struct err *err)
{
    unsigned char *host = mem_alloc(steps[0]->bytes);
    struct comparison c = { a, b, (const struct step *)host };
    bool ok = host ? buffer_read(steps[0], 0, host, steps[0]->bytes, err) : err_memory(err, "the step");

    if (ok && a->n_commands != b->n_commands)
        ok = err_set(err, ERR_INPUT, "the tapes have %u and %u commands; record them alike", a->n_commands,
                     b->n_commands);
    for (uint32_t i = 0; ok && i < a->n_commands; i++) {
        struct tape_difference d = { 0 };
        if (a->commands[i].op >= TAPE_TELL && b->commands[i].op >= TAPE_TELL)
            continue; // there are no other ranks
        ok = align_inputs(&a->commands[i], &b->commands[i], err) && tape_play_one(a, steps[0], i, err) &&
             tape_play_one(b, steps[1], i, err) && compare_command(&c, i, &d, err);
        if (ok && !on_command(arg, &d))
            break;
    }
    mem_free(host);
    return ok;
}
