// shares.c - see shares.h.
//
// Measured on two Zen 5 cores with 16 sequences of a program over ingot_submit and ingot_step, tokens/s by
// tiles and by rows: 8 MB of weights 42,500 and 46,700, 80 MB 2,774 and 3,235, 640 MB 646 and 577. With 8
// sequences 37,600 and 41,000, 2,076 and 2,799, 507 and 495.
#include "device/cpu/shares.h"
#include <string.h>
#include <unistd.h>
#include "base/mem.h"

enum {
    ROWS_PER_THREAD = 4, // with fewer, reading every weight costs more than barriers
    UNEVEN = 4,          // a quarter more than an even share is let pass
    MAX_ROWS = 256,
    MAX_SLOTS = 1024,
    LINE = 64,
};

// The cache that processors share; 0: unknown.
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

// How many commands there are before the first that wants all rows at once.
static uint32_t n_by_rows(const struct tape *t, const struct cpu_op *const *ops)
{
    uint32_t n = 0;

    while (n < t->n_commands && ops[t->commands[n].op]->by_rows)
        n++;
    return n;
}

// Values of the first commands that later ones use lie in scratch, of which each thread has its own.
static bool tensors_stay(const struct tape *t, uint32_t n_commands)
{
    for (uint32_t i = 0; i < t->n_tensors; i++)
        if (!t->tensors[i].bound && t->tensors[i].first < n_commands && t->tensors[i].last >= n_commands)
            return false;
    return true;
}

static bool share_open(struct share *share, const struct tape *t, uint32_t n_commands)
{
    const uint64_t bytes = (t->scratch.bytes + LINE) / LINE * LINE;

    share->step = mem_alloc(step_bytes(t->limits.max_rows, t->limits.max_outputs));
    share->commands = mem_alloc_array(n_commands, sizeof *share->commands);
    share->scratch =
        (struct buffer){ .device = t->device, .host = mem_alloc_aligned(bytes, LINE), .bytes = bytes };
    return share->step && share->commands && share->scratch.host;
}

bool shares_open(struct shares *s, const struct tape *t, const struct cpu_op *const *ops, uint32_t n_threads)
{
    bool by_rows = n_threads > 1 && t->limits.max_rows >= n_threads * ROWS_PER_THREAD &&
                   t->limits.max_rows <= MAX_ROWS && weight_bytes(t) <= shared_cache_bytes() / 2;

    *s = (struct shares){ .n_commands = n_by_rows(t, ops) };
    if (!by_rows || s->n_commands == 0 || !tensors_stay(t, s->n_commands))
        return true;
    if (!(s->of = mem_alloc_array(n_threads, sizeof *s->of)))
        return false;
    while (s->n < n_threads)
        if (!share_open(&s->of[s->n++], t, s->n_commands))
            return false;
    return true;
}

void shares_close(struct shares *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        mem_free(s->of[i].step);
        mem_free(s->of[i].commands);
        mem_free_aligned(s->of[i].scratch.host);
    }
    mem_free(s->of);
}

static bool begins_sequence(const struct step *step, uint32_t r)
{
    return r == 0 || step_slots(step)[r] != step_slots(step)[r - 1];
}

// Each sequence's rows follow each other.
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

// The row nearest to `wanted` with which a sequence begins, or the step's end.
static uint32_t nearest_begin(const struct step *step, uint32_t wanted)
{
    uint32_t below = wanted, above = wanted;

    while (!begins_sequence(step, below))
        below--;
    while (above < step->n_rows && !begins_sequence(step, above))
        above++;
    return wanted - below <= above - wanted ? below : above;
}

bool shares_deal(struct shares *s, const struct step *step)
{
    uint32_t n = step->n_rows;

    if (s->n == 0 || n < s->n * ROWS_PER_THREAD || !sequences_are_whole(step))
        return false;
    for (uint32_t i = 0; i < s->n; i++) {
        s->of[i].first = i == 0 ? 0 : s->of[i - 1].end;
        s->of[i].end = i + 1 == s->n ? n : nearest_begin(step, n * (i + 1) / s->n);
        if ((s->of[i].end - s->of[i].first) * s->n > n + n / UNEVEN + s->n)
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

static void take_rows(struct share *share, const struct step *step, uint32_t n_rows, uint32_t n_outputs)
{
    struct step *mine = share->step;
    uint32_t *words = (uint32_t *)mine, *outputs = words + step_at_outputs(step->max_rows);

    *mine = *step;
    mine->n_rows = n_rows;
    mine->n_outputs = n_outputs;
    memcpy(words + step_at_tokens(), step_tokens(step) + share->first_row, n_rows * sizeof *words);
    memcpy(words + step_at_positions(step->max_rows), step_positions(step) + share->first_row,
           n_rows * sizeof *words);
    memcpy(words + step_at_slots(step->max_rows), step_slots(step) + share->first_row,
           n_rows * sizeof *words);
    for (uint32_t i = 0; i < n_outputs; i++)
        outputs[i] = step_outputs(step)[share->first_output + i] - share->first_row;
    memcpy(words + step_at_samples(step->max_rows, step->max_outputs),
           step_samples(step) + share->first_output, n_outputs * sizeof(struct sample_params));
}

// Values of the tape's own scratch lie in the thread's; in others, which belong to all, the share's rows are
// found further on.
static void take_commands(struct share *share, const struct tape *t, uint32_t n_commands)
{
    memcpy(share->commands, t->commands, n_commands * sizeof *share->commands);
    for (uint32_t i = 0; i < n_commands; i++)
        for (uint32_t j = 0; j < share->commands[i].n_operands; j++) {
            struct operand *o = &share->commands[i].operands[j];
            if (o->tensor && !t->tensors[o->tensor - 1].bound)
                o->buffer = &share->scratch;
            else if (o->tensor)
                o->offset +=
                    o->row_bytes *
                    (t->tensors[o->tensor - 1].rows == ROWS_STEP ? share->first_row : share->first_output);
        }
}

const struct share *share_take(struct shares *s, const struct tape *t, const struct step *step,
                               uint32_t thread)
{
    struct share *share = &s->of[thread];
    uint32_t first_output = n_outputs_below(step, share->first),
             n_outputs = n_outputs_below(step, share->end) - first_output;

    if (share->first_row != share->first || share->first_output != first_output ||
        share->commands[0].name == NULL) {
        share->first_row = share->first;
        share->first_output = first_output;
        take_commands(share, t, s->n_commands);
    }
    take_rows(share, step, share->end - share->first, n_outputs);
    return share;
}
