// row_partition.c - see row_partition.h.
#include "device/cpu/row_partition.h"
#include <string.h>
#include <unistd.h>
#include "base/mem.h"

enum {
    ROWS_PER_THREAD = 4, // with fewer, reading every weight costs more than barriers
    UNEVEN = 4,          // a part may be 1/UNEVEN larger than an even one
    MAX_ROWS = 256,
    MAX_SLOTS = 1024,
    LINE = 64,
};

// Bytes of the last-level cache; 0: unknown.
static uint64_t shared_cache_bytes(void)
{
#if defined(_SC_LEVEL3_CACHE_SIZE)
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (uint64_t)bytes : 0;
#else
    return 0;
#endif
}

static uint64_t weight_bytes(const struct tape *t)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < t->n_commands; i++)
        for (uint32_t j = 0; j < t->commands[i].n_operands; j++)
            bytes += t->commands[i].operands[j].weight ? t->commands[i].operands[j].weight->bytes : 0;
    return bytes;
}

// Number of commands before the first that needs all rows at once.
static uint32_t n_by_rows(const struct tape *t, const struct cpu_op *const *ops)
{
    uint32_t n = 0;

    while (n < t->n_commands && !t->commands[n].border && ops[t->commands[n].op]->by_rows)
        n++;
    return n;
}

// Each thread has its own scratch: no tensor may be written before the partition ends and read after it.
static bool tensors_stay(const struct tape *t, uint32_t n_commands)
{
    for (uint32_t i = 0; i < t->n_tensors; i++)
        if (!t->tensors[i].bound && t->tensors[i].first < n_commands && t->tensors[i].last >= n_commands)
            return false;
    return true;
}

static bool part_open(struct row_part *part, const struct tape *t, uint32_t n_commands)
{
    const uint64_t bytes = (t->scratch.bytes + LINE) / LINE * LINE;

    part->step = mem_alloc(step_bytes(t->limits.max_rows, t->limits.max_outputs));
    part->commands = mem_alloc_array(n_commands, sizeof *part->commands);
    part->scratch =
        (struct buffer){ .device = t->device, .host = mem_alloc_aligned(bytes, LINE), .bytes = bytes };
    return part->step && part->commands && part->scratch.host;
}

bool row_partition_open(struct row_partition *p, const struct tape *t, const struct cpu_op *const *ops,
                        uint32_t n_threads)
{
    bool by_rows = n_threads > 1 && t->limits.max_rows >= n_threads * ROWS_PER_THREAD &&
                   t->limits.max_rows <= MAX_ROWS && weight_bytes(t) <= shared_cache_bytes() / 2;

    *p = (struct row_partition){ .n_commands = n_by_rows(t, ops) };
    if (!by_rows || p->n_commands == 0 || !tensors_stay(t, p->n_commands))
        return true;
    if (!(p->parts = mem_alloc_array(n_threads, sizeof *p->parts)))
        return false;
    while (p->n < n_threads)
        if (!part_open(&p->parts[p->n++], t, p->n_commands))
            return false;
    return true;
}

void row_partition_close(struct row_partition *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        mem_free(p->parts[i].step);
        mem_free(p->parts[i].commands);
        mem_free_aligned(p->parts[i].scratch.host);
    }
    mem_free(p->parts);
}

static bool begins_sequence(const struct step *step, uint32_t r)
{
    return r == 0 || step_slots(step)[r] != step_slots(step)[r - 1];
}

// Whether the rows of every sequence are contiguous.
static bool sequences_are_whole(const struct step *step)
{
    uint64_t seen[MAX_SLOTS / 64] = { 0 };

    for (uint32_t r = 0; r < step->n_rows; r++) {
        uint32_t slot = step_slots(step)[r];
        if (!begins_sequence(step, r))
            continue;
        if (slot >= MAX_SLOTS || seen[slot / 64] >> slot % 64 & 1)
            return false;
        seen[slot / 64] |= (uint64_t)1 << slot % 64;
    }
    return true;
}

// The first row of a sequence, or the step's end, whichever is nearest to `wanted`.
static uint32_t nearest_begin(const struct step *step, uint32_t wanted)
{
    uint32_t below = wanted, above = wanted;

    while (!begins_sequence(step, below))
        below--;
    while (above < step->n_rows && !begins_sequence(step, above))
        above++;
    return wanted - below <= above - wanted ? below : above;
}

bool row_partition_assign(struct row_partition *p, const struct step *step)
{
    uint32_t n = step->n_rows;

    if (p->n == 0 || n < p->n * ROWS_PER_THREAD || !sequences_are_whole(step))
        return false;
    for (uint32_t i = 0; i < p->n; i++) {
        p->parts[i].first = i == 0 ? 0 : p->parts[i - 1].end;
        p->parts[i].end = i + 1 == p->n ? n : nearest_begin(step, n * (i + 1) / p->n);
        if ((p->parts[i].end - p->parts[i].first) * p->n > n + n / UNEVEN + p->n)
            return false;
    }
    return true;
}

static uint32_t n_outputs_below(const struct step *step, uint32_t row)
{
    uint32_t n = 0;

    while (n < step->n_outputs && step_outputs(step)[n] < row)
        n++;
    return n;
}

static void take_rows(struct row_part *part, const struct step *step, uint32_t n_rows, uint32_t n_outputs)
{
    struct step *mine = part->step;
    uint32_t *words = (uint32_t *)mine, *outputs = words + step_at_outputs(step->max_rows);

    *mine = *step;
    mine->n_rows = n_rows;
    mine->n_outputs = n_outputs;
    memcpy(words + step_at_tokens(), step_tokens(step) + part->first_row, n_rows * sizeof *words);
    memcpy(words + step_at_positions(step->max_rows), step_positions(step) + part->first_row,
           n_rows * sizeof *words);
    memcpy(words + step_at_slots(step->max_rows), step_slots(step) + part->first_row, n_rows * sizeof *words);
    memcpy(words + step_at_states_from(step->max_rows), step_states_from(step) + part->first_row,
           n_rows * sizeof *words);
    memcpy(words + step_at_states_to(step->max_rows), step_states_to(step) + part->first_row,
           n_rows * sizeof *words);
    for (uint32_t i = 0; i < n_outputs; i++)
        outputs[i] = step_outputs(step)[part->first_output + i] - part->first_row;
    memcpy(words + step_at_samples(step->max_rows, step->max_outputs),
           step_samples(step) + part->first_output, n_outputs * sizeof(struct sample_params));
}

// Scratch operands move to the thread's own scratch. Bound tensors are shared: the part's rows are at an
// offset.
static void take_commands(struct row_part *part, const struct tape *t, uint32_t n_commands)
{
    memcpy(part->commands, t->commands, n_commands * sizeof *part->commands);
    for (uint32_t i = 0; i < n_commands; i++)
        for (uint32_t j = 0; j < part->commands[i].n_operands; j++) {
            struct operand *o = &part->commands[i].operands[j];
            if (o->tensor && !t->tensors[o->tensor - 1].bound)
                o->buffer = &part->scratch;
            else if (o->tensor)
                o->offset +=
                    o->row_bytes *
                    (t->tensors[o->tensor - 1].rows == ROWS_STEP ? part->first_row : part->first_output);
        }
}

const struct row_part *row_partition_take(struct row_partition *p, const struct tape *t,
                                          const struct step *step, uint32_t thread)
{
    struct row_part *part = &p->parts[thread];
    uint32_t first_output = n_outputs_below(step, part->first),
             n_outputs = n_outputs_below(step, part->end) - first_output;

    if (part->first_row != part->first || part->first_output != first_output ||
        part->commands[0].name == NULL) {
        part->first_row = part->first;
        part->first_output = first_output;
        take_commands(part, t, p->n_commands);
    }
    take_rows(part, step, part->end - part->first, n_outputs);
    return part;
}
