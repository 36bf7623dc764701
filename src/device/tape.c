// tape.c - recording, sealing and playing; see tape.h.
//
// Sealing has five parts: report the sticky error, choose the commands that write packed rows (fuse.c), plan
// scratch memory by first and last use, resolve the operands, mark the hazards. Reusing scratch makes new
// hazards, so hazards are marked last, on the final byte ranges.
#include "device/tape_internal.h"
#include <stdarg.h>
#include <string.h>
#include "base/mem.h"
#include "device/fuse.h"
#include "device/step.h"

enum { SCRATCH_ALIGNMENT = 256 };

struct tape *tape_create(struct device *d, struct tape_limits limits)
{
    struct tape *t = mem_alloc(sizeof *t);

    if (!t)
        return NULL;
    t->device = d;
    t->limits = limits;
    t->label = "";
    t->arena = arena_create((size_t)1 << 26);
    if (!t->arena) {
        mem_free(t);
        return NULL;
    }
    return t;
}

void tape_destroy(struct tape *t)
{
    if (!t)
        return;
    if (t->native)
        t->device->ops->drop(t->device, t);
    buffer_release(&t->scratch);
    arena_destroy(t->arena);
    mem_free(t->commands);
    mem_free(t->tensors);
    mem_free(t->segments);
    mem_free(t);
}

const struct tape_limits *tape_limits(const struct tape *t)
{
    return &t->limits;
}

bool tape_supports(const struct tape *t, uint32_t op)
{
    return t->device->ops->supports(t->device, op);
}

bool tape_fuses(const struct tape *t, uint32_t op)
{
    return !t->limits.parts && tape_supports(t, op);
}

void tape_fail(struct tape *t, const char *format, ...)
{
    if (t->error.code != ERR_NONE)
        return;
    char message[384];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    err_set(&t->error, ERR_INPUT, "%s%s%s", t->label, *t->label ? ": " : "", message);
}

// Room for one more element; the array doubles.
static void *tape_grow(struct tape *t, void *array, uint32_t n, uint32_t *capacity, size_t element_bytes)
{
    if (n < *capacity)
        return array;
    uint32_t wanted = *capacity ? *capacity * 2 : 64;
    void *grown = mem_realloc(array, wanted * element_bytes);
    if (!grown) {
        tape_fail(t, "out of memory for the tape");
        return NULL;
    }
    *capacity = wanted;
    return grown;
}

static struct tensor add_tensor(struct tape *t, uint32_t n_cols, enum tensor_rows rows,
                                const struct buffer *bound)
{
    struct tape_tensor_plan *tensors =
        tape_grow(t, t->tensors, t->n_tensors, &t->tensors_capacity, sizeof *tensors);
    uint32_t n_rows = rows == ROWS_STEP ? t->limits.max_rows : t->limits.max_outputs;

    if (!tensors) // with its shape: those who record divide by it before the error is told
        return (struct tensor){ .n_cols = n_cols, .rows = rows };
    t->tensors = tensors;
    tensors[t->n_tensors++] = (struct tape_tensor_plan){ .n_cols = n_cols,
                                                         .rows = rows,
                                                         .first = UINT32_MAX,
                                                         .bytes = (uint64_t)n_rows * n_cols * 4,
                                                         .bound = bound };
    if (bound && bound->bytes < tensors[t->n_tensors - 1].bytes)
        tape_fail(t, "a bound tensor has %llu bytes; %u rows of %u columns need more",
                  (unsigned long long)bound->bytes, n_rows, n_cols);
    return (struct tensor){ .id = t->n_tensors, .n_cols = n_cols, .rows = rows };
}

struct tensor tape_tensor(struct tape *t, uint32_t n_cols, enum tensor_rows rows)
{
    return add_tensor(t, n_cols, rows, NULL);
}

struct tensor tape_tensor_bound(struct tape *t, uint32_t n_cols, enum tensor_rows rows,
                                const struct buffer *b)
{
    return add_tensor(t, n_cols, rows, b);
}

void tape_label(struct tape *t, const char *format, ...)
{
    char text[128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *label = arena_printf(t->arena, "%s", text);
    if (label)
        t->label = label;
    else
        tape_fail(t, "out of memory for a label");
}

struct command *tape_add(struct tape *t, uint16_t op, const char *name, const void *args, uint32_t args_bytes)
{
    CHECK(args_bytes <= TAPE_ARGS_BYTES && !t->sealed);
    struct command *commands;

    if (t->error.code != ERR_NONE ||
        !(commands = tape_grow(t, t->commands, t->n_commands, &t->commands_capacity, sizeof *commands)))
        return NULL;
    t->commands = commands;
    struct command *c = &commands[t->n_commands++];
    memset(c, 0, sizeof *c);
    c->op = op;
    c->name = name;
    c->label = t->label;
    memcpy(c->args, args, args_bytes);
    return c;
}

struct operand *tape_operand_add(struct command *c)
{
    CHECK(c->n_operands < TAPE_MAX_OPERANDS);
    return &c->operands[c->n_operands++];
}

static void touch_tensor(struct tape *t, struct command *c, struct tensor v, bool writes)
{
    if (!c)
        return;
    struct operand *o = tape_operand_add(c);
    if (v.id == 0)
        return;
    struct tape_tensor_plan *plan = &t->tensors[v.id - 1];
    uint32_t at = (uint32_t)(c - t->commands);

    *o = (struct operand){
        .tensor = v.id, .bytes = plan->bytes, .row_bytes = (uint64_t)v.n_cols * 4, .writes = writes
    };
    if (plan->first == UINT32_MAX && !writes && !plan->bound)
        tape_fail(t, "%s reads a tensor that no command has written", c->name);
    plan->first = plan->first == UINT32_MAX ? at : plan->first;
    plan->last = at;
}

void tape_reads(struct tape *t, struct command *c, struct tensor v)
{
    touch_tensor(t, c, v, false);
}

void tape_writes(struct tape *t, struct command *c, struct tensor v)
{
    touch_tensor(t, c, v, true);
}

void tape_reads_weight(struct tape *t, struct command *c, const struct weight *w)
{
    (void)t;
    if (!c)
        return;
    struct operand *o = tape_operand_add(c);
    if (w)
        *o = (struct operand){
            .buffer = &w->buffer, .bytes = w->bytes, .row_bytes = w->bytes / w->n_rows, .weight = w
        };
}

void tape_works_in(struct tape *t, struct command *c, struct tensor v)
{
    touch_tensor(t, c, v, true);
    if (c)
        c->operands[c->n_operands - 1].type = OPERAND_PRIVATE;
}

void tape_reads_buffer(struct tape *t, struct command *c, const struct buffer *b)
{
    (void)t;
    if (c)
        *tape_operand_add(c) = (struct operand){ .buffer = b, .bytes = b ? b->bytes : 0 };
}

void tape_writes_buffer(struct tape *t, struct command *c, const struct buffer *b, enum operand_type type)
{
    (void)t;
    if (c)
        *tape_operand_add(c) =
            (struct operand){ .buffer = b, .bytes = b->bytes, .writes = true, .type = type };
}

// in and out are bound, or out is no tensor.
static void add_border(struct tape *t, uint16_t op, const char *name, struct tensor in, struct tensor out)
{
    struct exchange_args args = { .index = t->n_exchanges, .n_cols = in.n_cols, .rows = in.rows };
    struct command *c = tape_add(t, op, name, &args, sizeof args);
    bool is_played = t->exchange && op != TAPE_BORDER &&
                     (op != TAPE_ALL_REDUCE || t->limits.max_rows <= t->exchange->most_rows);

    if (!c)
        return;
    CHECK(t->tensors[in.id - 1].bound && (out.id == 0 || t->tensors[out.id - 1].bound));
    c->border = !is_played;
    tape_reads(t, c, in);
    tape_writes(t, c, out);
    if (is_played) // so that they follow each other
        tape_writes_buffer(t, c, t->exchange->inbox, OPERAND_PRIVATE);
    t->n_exchanges += is_played && op == TAPE_ALL_REDUCE;
}

void tape_border(struct tape *t, struct tensor v)
{
    add_border(t, TAPE_BORDER, "border", v, v);
}

void tape_all_reduce(struct tape *t, struct tensor v)
{
    add_border(t, TAPE_ALL_REDUCE, "all_reduce", v, v);
}

void tape_all_gather(struct tape *t, struct tensor part, struct tensor whole)
{
    add_border(t, TAPE_ALL_GATHER, "all_gather", part, whole);
}

void tape_tell(struct tape *t, const struct buffer *results, const struct buffer *history,
               uint32_t history_stride)
{
    struct exchange_args args = { .rows = ROWS_OUTPUT, .history_stride = history_stride };
    struct command *c = t->exchange ? tape_add(t, TAPE_TELL, "tell", &args, sizeof args) : NULL;

    if (!c)
        return;
    tape_reads_buffer(t, c, results);
    if (results)
        tape_reads_buffer(t, c, history);
    else
        tape_writes_buffer(t, c, history, OPERAND_U32);
    tape_writes_buffer(t, c, t->exchange->inbox, OPERAND_PRIVATE);
}

void tape_exchange_on_device(struct tape *t, const struct exchange *x)
{
    CHECK(t->n_commands == 0 && (!x || (t->device->queue && t->device->queue->prepare)));
    t->exchange = x;
}

uint32_t tape_n_exchanges(const struct tape *t)
{
    return t->n_exchanges;
}

bool tape_prepare(struct tape *t, const struct buffer *step, bool *at_once, struct err *err)
{
    const struct device_queue *queue = t->device->queue;

    CHECK(t->sealed);
    if (queue && queue->prepare && !queue->prepare(t->device, t, step, err))
        return false;
    *at_once = t->plays_at_once;
    return true;
}

static bool tensors_overlap_in_time(const struct tape_tensor_plan *a, const struct tape_tensor_plan *b)
{
    return a->first <= b->last && b->first <= a->last;
}

// The lowest offset at which tensors[index] overlaps no tensor placed earlier that lives at the same time.
static uint64_t lowest_offset(const struct tape *t, uint32_t index)
{
    const struct tape_tensor_plan *v = &t->tensors[index];
    uint64_t offset = 0;

    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < index; i++) {
            const struct tape_tensor_plan *o = &t->tensors[i];
            if (o->bound || o->first == UINT32_MAX || !tensors_overlap_in_time(o, v))
                continue;
            if (offset < o->offset + o->bytes && o->offset < offset + v->bytes) {
                offset =
                    (o->offset + o->bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
                moved = true;
            }
        }
    }
    return offset;
}

static bool plan_scratch(struct tape *t, struct err *err)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < t->n_tensors; i++) {
        struct tape_tensor_plan *v = &t->tensors[i];
        if (v->bound || v->first == UINT32_MAX)
            continue;
        v->offset = lowest_offset(t, i);
        if (v->offset + v->bytes > bytes)
            bytes = v->offset + v->bytes;
    }
    return bytes == 0 || buffer_alloc_local(t->device, bytes, &t->scratch, err);
}

static void resolve_operands(struct tape *t)
{
    for (uint32_t i = 0; i < t->n_commands; i++)
        for (uint32_t j = 0; j < t->commands[i].n_operands; j++) {
            struct operand *o = &t->commands[i].operands[j];
            if (o->tensor == 0)
                continue;
            const struct tape_tensor_plan *v = &t->tensors[o->tensor - 1];
            o->buffer = v->bound ? v->bound : &t->scratch;
            o->offset = v->bound ? 0 : v->offset;
        }
}

static bool find_segments(struct tape *t, struct err *err)
{
    uint32_t n = 1;

    for (uint32_t i = 0; i < t->n_commands; i++)
        n += t->commands[i].border;
    t->segments = mem_alloc_array(n, sizeof *t->segments);
    if (!t->segments)
        return err_memory(err, "the segments of a tape");
    for (uint32_t i = 0; i < t->n_commands; i++) {
        t->segments[t->n_segments].last = i;
        if (t->commands[i].border)
            t->segments[++t->n_segments].first = i + 1;
    }
    t->segments[t->n_segments++].last = t->n_commands;
    return true;
}

bool tape_seal(struct tape *t, struct err *err)
{
    CHECK(!t->sealed);
    resolve_operands(t); // bound tensors need their addresses: a device's choice may depend on them
    if (t->error.code == ERR_NONE)
        fuse_commands(t);
    if (t->error.code != ERR_NONE) {
        if (err)
            *err = t->error;
        return false;
    }
    if (!plan_scratch(t, err))
        return err_prefix(err, "scratch of the tape");
    if (t->device->outlines)
        return true;
    resolve_operands(t);
    hazard_mark(t->commands, t->n_commands);
    t->sealed = find_segments(t, err) && t->device->ops->seal(t->device, t, err);
    return t->sealed;
}

uint32_t tape_n_segments(const struct tape *t)
{
    return t->n_segments;
}

const struct command *tape_segment_border(const struct tape *t, uint32_t segment)
{
    return segment + 1 < t->n_segments ? &t->commands[t->segments[segment].last] : NULL;
}

uint32_t tape_segment_of(const struct tape *t, uint32_t first, uint32_t last)
{
    for (uint32_t i = 0; i < t->n_segments; i++)
        if (t->segments[i].first == first && t->segments[i].last == last)
            return i;
    return UINT32_MAX;
}

bool tape_play_segment(struct tape *t, const struct buffer *step, uint32_t segment, struct err *err)
{
    CHECK(t->sealed && segment < t->n_segments);
    struct tape_segment s = t->segments[segment];

    t->device->counters.plays += segment == 0;
    return s.first == s.last || t->device->ops->play(t->device, t, step, s.first, s.last, err);
}

bool tape_play(struct tape *t, const struct buffer *step, struct err *err)
{
    CHECK(t->n_segments == 1);
    return tape_play_segment(t, step, 0, err);
}

bool tape_play_one(struct tape *t, const struct buffer *step, uint32_t index, struct err *err)
{
    return t->device->ops->play(t->device, t, step, index, index + 1, err) &&
           t->device->ops->wait(t->device, err);
}

bool tape_play_timed(struct tape *t, const struct buffer *step, struct play_times *times, struct err *err)
{
    CHECK(t->sealed && t->device->timing);
    t->device->counters.plays++;
    return t->device->timing->play(t->device, t, step, times, err);
}

bool tape_play_repeated(struct tape *t, const struct buffer *step, uint32_t index, uint32_t n,
                        struct err *err)
{
    bool ok = true;

    for (uint32_t i = 0; i < n && ok; i++)
        ok = t->device->ops->play(t->device, t, step, index, index + 1, err);
    return ok && t->device->ops->wait(t->device, err);
}

bool tape_play_watched(struct tape *t, const struct buffer *step, uint32_t segment,
                       const struct tape_watch *watch, struct err *err)
{
    struct tape_segment s = t->segments[segment];
    struct step *host = mem_alloc(step->bytes);
    bool ok = host ? buffer_read(step, 0, host, step->bytes, err) : err_memory(err, "the step");

    for (uint32_t i = s.first; i < s.last && ok; i++)
        ok = watch->before(watch->arg, &t->commands[i], host, err) && tape_play_one(t, step, i, err);
    mem_free(host);
    return ok;
}

uint32_t tape_n_commands(const struct tape *t)
{
    return t->n_commands;
}

const struct command *tape_command(const struct tape *t, uint32_t index)
{
    return &t->commands[index];
}

uint32_t tape_operand_rows(const struct tape *t, const struct operand *o, const struct step *step)
{
    if (o->tensor == 0)
        return 0;
    return t->tensors[o->tensor - 1].rows == ROWS_STEP ? step->n_rows : step->n_outputs;
}

uint32_t tape_n_barriers(const struct tape *t)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < t->n_commands; i++)
        n += t->commands[i].barrier;
    return n;
}

uint64_t tape_scratch_bytes(const struct tape *t)
{
    return t->scratch.bytes;
}

static uint64_t operand_bytes(const struct command *c, bool writes)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < c->n_operands; i++)
        if (c->operands[i].buffer && c->operands[i].writes == writes)
            bytes += c->operands[i].bytes;
    return bytes;
}

static void print_kernels(const struct tape *t, uint32_t command, FILE *to)
{
    const char *name = NULL;

    for (uint32_t i = 0; t->device->ops->kernel && (name = t->device->ops->kernel(t, command, i)); i++)
        fprintf(to, "%s%s", i ? " + " : ", by ", name);
}

void tape_print(const struct tape *t, FILE *to)
{
    fprintf(to, "tape: %u commands, %u barriers, %.2f MiB scratch, up to %u rows and %u outputs on %s\n",
            t->n_commands, tape_n_barriers(t), (double)t->scratch.bytes / 1048576, t->limits.max_rows,
            t->limits.max_outputs, t->device->name);
    for (uint32_t i = 0; i < t->n_commands; i++) {
        const struct command *c = &t->commands[i];
        const struct operand *in = fuse_packed(c, false), *out = fuse_packed(c, true);
        fprintf(to, "%5u %s %-11s %-24s may read %11llu, write %10llu bytes", i, c->barrier ? "|" : " ",
                c->name, c->label, (unsigned long long)operand_bytes(c, false),
                (unsigned long long)operand_bytes(c, true));
        print_kernels(t, i, to);
        fprintf(to, "%s%s", in ? ", reads packed " : "", in ? in->packing->name : "");
        fprintf(to, "%s%s%s\n", out ? ", writes packed " : "", out ? out->packing->name : "",
                out && out->norm ? " with norm" : "");
    }
}
