// sample_cpu.c - the definition.
//
// A candidate is one number of 64 bits, the order of its logit above and of its id below: what comes first is larger. The first k are
// found with a heap of k, first among blocks of 16 tokens by their largest, then among the tokens of those k blocks: no other block can
// hold one of them. Without top_k only as many are sorted as top_p and min_p ask for.
#include <math.h>
#include <string.h>
#include "ops/rows.h"
#include "ops/sample/sample.h"

static uint64_t candidate(float logit, uint32_t id)
{
    uint32_t bits;

    logit += 0.0f; // -0 is no less than 0
    memcpy(&bits, &logit, 4);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~id;
}

static uint32_t id_of(uint64_t candidate)
{
    return ~(uint32_t)candidate;
}

static float logit_of(uint64_t candidate)
{
    uint32_t bits = (uint32_t)(candidate >> 32);
    float logit;

    bits = bits >> 31 ? bits & 0x7fffffff : ~bits;
    memcpy(&logit, &bits, 4);
    return logit;
}

// The root is the smallest.
static void sift_down(uint64_t *heap, uint32_t n, uint32_t at)
{
    uint64_t moved = heap[at];

    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= moved)
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void swap(uint64_t *a, uint64_t *b)
{
    uint64_t c = *a;
    *a = *b;
    *b = c;
}

// Brings the k that come first to the beginning, as a heap.
static void select_first(uint64_t *c, uint32_t n, uint32_t k)
{
    for (uint32_t i = k / 2; i-- > 0;)
        sift_down(c, k, i);
    for (uint32_t i = k; i < n; i++)
        if (c[i] > c[0]) {
            swap(&c[i], &c[0]);
            sift_down(c, k, 0);
        }
}

static void sort_first(uint64_t *c, uint32_t n, uint32_t k)
{
    select_first(c, n, k);
    while (k-- > 1) {
        swap(&c[0], &c[k]);
        sift_down(c, k, 0);
    }
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

static void penalise(float *logits, uint32_t *counts, const struct sample_params *p, const struct seen *seen)
{
    for (uint32_t i = 0; i < seen->n; i++)
        counts[seen->tokens[i]]++;
    for (uint32_t i = 0; i < seen->n; i++) {
        uint32_t token = seen->tokens[i], n = counts[token];
        counts[token] = 0;
        if (n == 0)
            continue; // done at its first sighting
        logits[token] = logits[token] > 0 ? logits[token] / p->repeat_penalty : logits[token] * p->repeat_penalty;
        logits[token] -= p->presence_penalty + (float)n * p->frequency_penalty;
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

static void add_biases(float *logits, uint32_t n, const struct sample_bias *biases, uint32_t n_biases)
{
    for (uint32_t i = 0; i < n_biases; i++)
        if (biases[i].token < n)
            logits[biases[i].token] += biases[i].bias;
}

static void keep_allowed(float *logits, uint32_t n, const uint32_t *mask)
{
    for (uint32_t i = 0; i < n; i++)
        logits[i] = mask[i >> 5] >> (i & 31) & 1 ? logits[i] : -INFINITY;
}

// ---- steps 4 and 5

enum { BLOCK = 16 };

struct row {
    const float *logits; // [n], after step 2
    uint32_t n;
    float temperature;
    uint64_t *candidates; // [n], room
};

static float largest_of_block(const float *logits)
{
    float best[4] = { logits[0], logits[1], logits[2], logits[3] };

    for (uint32_t i = 4; i < BLOCK; i += 4)
        for (uint32_t j = 0; j < 4; j++)
            best[j] = logits[i + j] > best[j] ? logits[i + j] : best[j];
    best[0] = best[0] > best[1] ? best[0] : best[1];
    best[2] = best[2] > best[3] ? best[2] : best[3];
    return best[0] > best[2] ? best[0] : best[2];
}

// Appends the tokens [first, last) that are at least so likely; returns how many.
static uint32_t add_tokens(const struct row *r, uint32_t first, uint32_t last, float least, uint64_t *to)
{
    uint32_t n = 0;

    for (uint32_t i = first; i < last; i++) {
        float logit = r->logits[i] / r->temperature;
        to[n] = candidate(logit, i);
        n += logit >= least;
    }
    return n;
}

// Fills in candidates among which are the first k, and returns how many.
static uint32_t gather(const struct row *r, uint32_t k)
{
    uint32_t n_blocks = k < r->n / BLOCK / 2 ? r->n / BLOCK : 0, n = 0; // few tokens: all of them, else k + 16 * k find room
    uint64_t *c = r->candidates;
    float least = -INFINITY;

    for (uint32_t b = 0; b < n_blocks; b++)
        c[b] = candidate(largest_of_block(r->logits + (size_t)b * BLOCK) / r->temperature, b);
    if (n_blocks > 0) {
        select_first(c, n_blocks, k);
        least = logit_of(c[0]); // k tokens are at least as likely
        for (uint32_t i = 0; i < k; i++)
            n += add_tokens(r, id_of(c[i]) * BLOCK, id_of(c[i]) * BLOCK + BLOCK, least, c + k + n);
        memmove(c, c + k, n * sizeof *c);
    }
    return n + add_tokens(r, n_blocks * BLOCK, r->n, least, c + n);
}

// Sum of exp(logit - top), from the last to the first: the order is fixed by the logits.
static float exp_sum(const uint64_t *c, uint32_t n, float top)
{
    float sum = 0;

    while (n-- > 0)
        sum += expf(logit_of(c[n]) - top);
    return sum;
}

static uint32_t draw(const struct row *r, const struct sample_params *p, float random)
{
    enum { FIRST_SORTED = 64 };
    uint32_t limit = p->top_k && p->top_k < r->n ? p->top_k : r->n, n = gather(r, limit), kept = 0;
    uint32_t n_sorted = limit < r->n || limit < FIRST_SORTED ? limit : FIRST_SORTED;
    uint64_t *c = r->candidates;

    sort_first(c, n, n_sorted);
    float kept_sum = 0, top = logit_of(c[0]), total = exp_sum(c, limit, top);
    while (kept < limit && (kept == 0 || kept_sum < p->top_p * total)) {
        if (kept == n_sorted) {
            n_sorted = n_sorted < limit / 8 ? n_sorted * 8 : limit;
            sort_first(c, n, n_sorted);
        }
        float weight = expf(logit_of(c[kept]) - top);
        if (kept > 0 && (weight < p->min_p || weight == 0))
            break;
        kept_sum += weight;
        kept++;
    }
    float goal = random * kept_sum, sum = 0;
    for (uint32_t i = 0; i < kept; i++) {
        sum += expf(logit_of(c[i]) - top);
        if (sum > goal)
            return id_of(c[i]);
    }
    return id_of(c[kept - 1]);
}

// Step 2, in a copy. counts: [n], room.
static void alter(const struct cpu_call *call, uint32_t i, const struct seen *seen, float *logits, uint32_t *counts)
{
    const struct sample_args *args = cpu_args(call);
    const struct sample_params *p = &step_samples(call->step)[i];

    memcpy(logits, cpu_row(call, SAMPLE_LOGITS, i), args->n_tokens * sizeof *logits);
    if (p->n_biases)
        add_biases(logits, args->n_tokens, limits_of(call, i).biases, p->n_biases);
    if (p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0) {
        memset(counts, 0, args->n_tokens * sizeof *counts);
        penalise(logits, counts, p, seen);
    }
    if (p->flags & SAMPLE_MASKED)
        keep_allowed(logits, args->n_tokens, limits_of(call, i).mask);
}

static uint32_t sample_row(const struct cpu_call *call, uint32_t i, const uint32_t *log)
{
    const struct sample_args *args = cpu_args(call);
    const struct sample_params *p = &step_samples(call->step)[i];
    uint32_t *work =
        cpu_row(call, SAMPLE_WORK, i); // candidates [n_tokens] of 64 bits, counts in their place, then logits [n_tokens]
    float *logits = (float *)(work + 2 * (size_t)args->n_tokens);
    struct row r = { cpu_row(call, SAMPLE_LOGITS, i), args->n_tokens, p->temperature, (uint64_t *)(void *)work };
    uint32_t position = step_positions(call->step)[step_outputs(call->step)[i]];
    uint32_t n_seen = p->penalty_window < position + 1 ? p->penalty_window : position + 1;

    if (!logits_valid(r.logits, r.n))
        return STEP_TOKEN_INVALID;
    if (p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0 || p->n_biases ||
        p->flags & SAMPLE_MASKED) {
        alter(call, i, &(struct seen){ log + position + 1 - n_seen, n_seen }, logits, work);
        r.logits = logits;
    }
    uint32_t best = largest(r.logits, r.n);
    if (r.logits[best] == -INFINITY)
        return STEP_TOKEN_INVALID;
    return p->temperature == 0 ? best : draw(&r, p, sample_random(p->seed[0], p->seed[1], position));
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
