// sample_cpu.c - the definition.
//
// Candidates are kept in a binary heap ordered by (logit, lowest id first) and popped only as far as the limits ask, so that top-k
// and top-p are exact for any k at about the cost of one pass over the vocabulary.
#include <math.h>
#include <string.h>
#include "ops/rows.h"
#include "ops/sample/sample.h"

struct candidate {
    float logit;
    uint32_t id;
};

static bool comes_first(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(struct candidate *heap, uint32_t n, uint32_t at)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n)
            return;
        if (child + 1 < n && comes_first(heap[child + 1], heap[child]))
            child++;
        if (!comes_first(heap[child], heap[at]))
            return;
        struct candidate c = heap[at];
        heap[at] = heap[child];
        heap[child] = c;
        at = child;
    }
}

static struct candidate heap_pop(struct candidate *heap, uint32_t *n)
{
    struct candidate best = heap[0];
    heap[0] = heap[--*n];
    sift_down(heap, *n, 0);
    heap[*n] = best; // popped ones gather behind the heap, the best last
    return best;
}

// Not one NaN or +infinity, and something above -infinity. Integer comparisons of the bits: the compiler makes vectors of them.
static bool logits_valid(const float *logits, uint32_t n)
{
    uint32_t bad = 0, any = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], 4);
        bad |= (bits & 0x7fffffff) > 0x7f800000 || bits == 0x7f800000;
        any |= bits != 0xff800000;
    }
    return !bad && any;
}

// The largest logit, ties to the lowest id, in 16 lanes at once.
static uint32_t largest(const float *logits, uint32_t n)
{
    enum { LANES = 16 };
    float best[LANES];
    uint32_t at[LANES] = { 0 }, i = 0, id = 0;

    for (uint32_t j = 0; j < LANES; j++)
        best[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t j = 0; j < LANES; j++) {
            bool better = logits[i + j] > best[j];
            best[j] = better ? logits[i + j] : best[j];
            at[j] = better ? i + j : at[j];
        }
    float top = -INFINITY;
    for (uint32_t j = 0; j < LANES; j++)
        if (best[j] > top || (best[j] == top && at[j] < id)) {
            top = best[j];
            id = at[j];
        }
    for (; i < n; i++)
        if (logits[i] > top) {
            top = logits[i];
            id = i;
        }
    return id;
}

struct seen { // the window of the log
    const uint32_t *tokens;
    uint32_t n;
};

static void penalise(struct candidate *c, uint32_t *counts, const struct sample_params *p, const struct seen *seen)
{
    for (uint32_t i = 0; i < seen->n; i++)
        counts[seen->tokens[i]]++;
    for (uint32_t i = 0; i < seen->n; i++) {
        uint32_t token = seen->tokens[i], n = counts[token];
        counts[token] = 0;
        if (n == 0)
            continue; // done at its first sighting
        c[token].logit = c[token].logit > 0 ? c[token].logit / p->repeat_penalty : c[token].logit * p->repeat_penalty;
        c[token].logit -= p->presence_penalty + (float)n * p->frequency_penalty;
    }
}

struct limits { // of one row
    const uint32_t *mask;
    const struct sample_bias *biases;
};

static struct limits limits_of(const struct cpu_call *call, uint32_t output)
{
    const struct sample_args *args = cpu_args(call);
    const uint32_t *words = (const uint32_t *)cpu_base(call, SAMPLE_LIMITS) + (uint64_t)output * args->limits_stride;
    return (struct limits){ words, (const struct sample_bias *)(const void *)(words + sample_mask_words(args->n_tokens)) };
}

static void add_biases(struct candidate *c, uint32_t n, const struct sample_bias *biases, uint32_t n_biases)
{
    for (uint32_t i = 0; i < n_biases; i++)
        if (biases[i].token < n)
            c[biases[i].token].logit += biases[i].bias;
}

// Leaves the candidates that the mask allows, in their order, and returns how many they are.
static uint32_t keep_allowed(struct candidate *c, uint32_t n, const uint32_t *mask)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++)
        if (mask[i >> 5] >> (i & 31) & 1 && c[i].logit > -INFINITY)
            c[kept++] = c[i];
    return kept;
}

static uint32_t best_of(const struct candidate *c, uint32_t n)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < n; i++)
        if (c[i].logit > c[best].logit)
            best = i;
    return c[best].id;
}

// Sum of exp(logit - top) over all n candidates, in order of memory: the heap's order is fixed by the logits.
static float exp_sum(const struct candidate *c, uint32_t n, float top)
{
    float sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += expf(c[i].logit - top);
    return sum;
}

// Steps 4 and 5. Popped candidates lie at heap[n_heap..n_all), the best last.
static uint32_t draw(struct candidate *heap, uint32_t n_all, const struct sample_params *p, float random)
{
    uint32_t n_heap = n_all, limit = p->top_k && p->top_k < n_all ? p->top_k : n_all, kept = 0;
    float kept_sum = 0, total, top;

    for (uint32_t i = n_all / 2; i-- > 0;)
        sift_down(heap, n_all, i);
    top = heap[0].logit;
    if (limit < n_all) {
        for (uint32_t i = 0; i < limit; i++)
            heap_pop(heap, &n_heap);
        total = exp_sum(heap + n_heap, limit, top);
    } else {
        total = exp_sum(heap, n_all, top);
    }
    while (kept < limit && (kept == 0 || kept_sum < p->top_p * total)) {
        struct candidate c = limit < n_all ? heap[n_all - 1 - kept] : heap_pop(heap, &n_heap);
        float weight = expf(c.logit - top);
        if (kept > 0 && (weight < p->min_p || weight == 0))
            break;
        kept_sum += weight;
        kept++;
    }
    float goal = random * kept_sum, sum = 0;
    for (uint32_t i = 0; i < kept; i++) {
        sum += expf(heap[n_all - 1 - i].logit - top);
        if (sum > goal)
            return heap[n_all - 1 - i].id;
    }
    return heap[n_all - kept].id;
}

static uint32_t sample_row(const struct cpu_call *call, uint32_t i, const uint32_t *log)
{
    const struct sample_args *args = cpu_args(call);
    const struct sample_params *p = &step_samples(call->step)[i];
    const float *logits = cpu_row(call, SAMPLE_LOGITS, i); // [n_tokens]
    struct candidate *c = cpu_row(call, SAMPLE_WORK, i);   // [n_tokens], then counts [n_tokens]
    uint32_t position = step_positions(call->step)[step_outputs(call->step)[i]];
    uint32_t n_seen = p->penalty_window < position + 1 ? p->penalty_window : position + 1;
    struct seen seen = { log + position + 1 - n_seen, n_seen };

    if (!logits_valid(logits, args->n_tokens))
        return STEP_TOKEN_INVALID;
    bool penalties = p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
    bool masked = p->flags & SAMPLE_MASKED;
    if (p->temperature == 0 && !penalties && !masked && !p->n_biases)
        return largest(logits, args->n_tokens);
    for (uint32_t t = 0; t < args->n_tokens; t++)
        c[t] = (struct candidate){ logits[t], t };
    if (p->n_biases)
        add_biases(c, args->n_tokens, limits_of(call, i).biases, p->n_biases);
    if (penalties) {
        memset(c + args->n_tokens, 0, args->n_tokens * sizeof(uint32_t));
        penalise(c, (uint32_t *)(c + args->n_tokens), p, &seen);
    }
    uint32_t n = masked ? keep_allowed(c, args->n_tokens, limits_of(call, i).mask) : args->n_tokens;
    if (n == 0)
        return STEP_TOKEN_INVALID;
    if (p->temperature == 0)
        return best_of(c, n);
    for (uint32_t t = 0; t < n; t++)
        c[t].logit /= p->temperature;
    return draw(c, n, p, sample_random(p->seed[0], p->seed[1], position));
}

static void log_rows(const struct cpu_call *call)
{
    const struct sample_args *args = cpu_args(call);
    uint32_t *log = cpu_base(call, SAMPLE_LOG);

    for (uint32_t r = 0; r < call->step->n_rows; r++)
        if (step_tokens(call->step)[r] != STEP_TOKEN_LOGGED)
            log[(uint64_t)step_slots(call->step)[r] * args->log_stride + step_positions(call->step)[r]] =
                step_tokens(call->step)[r];
}

static void sample_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    plan->n_phases = 2;
    plan->n_tiles[0] = 1;
    plan->n_tiles[1] = call->step->n_outputs;
}

static void sample_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct sample_args *args = cpu_args(call);

    if (phase == 0) {
        log_rows(call);
        return;
    }
    for (uint32_t i = first; i < last; i++) {
        uint32_t row = step_outputs(call->step)[i], position = step_positions(call->step)[row];
        uint32_t *log = (uint32_t *)cpu_base(call, SAMPLE_LOG) + (uint64_t)step_slots(call->step)[row] * args->log_stride;
        uint32_t *results = cpu_base(call, SAMPLE_RESULTS);
        if (step_samples(call->step)[i].flags & SAMPLE_SKIP)
            continue;
        results[i] = sample_row(call, i, log);
        if (position + 1 < args->log_stride && results[i] != STEP_TOKEN_INVALID)
            log[position + 1] = results[i];
    }
}

const struct cpu_op cpu_op_sample = { .name = "sample", .plain = { sample_plan, sample_run } };
