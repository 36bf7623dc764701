// sample_cpu.c - the definition.
//
// A candidate is one number of 64 bits, the order of its logit above and of its id below: what comes first is larger. Logits are read once
// from end to end, for the largest of each block of 8 (row_kernels.h): among these the best token and a number that k tokens reach are
// found, and only blocks that reach it are looked at again. Without top_k only as many are sorted as top_p and min_p ask for.
#include <float.h>
#include <math.h>
#include <string.h>
#include "ops/rows.h"
#include "ops/sample/sample.h"
#include "ops/vec/row_kernels.h"

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

struct token_window { // the window of the log
    const uint32_t *tokens;
    uint32_t n;
};

// counts: [n]. Rows of pictures are no tokens.
static void penalise(float *logits, uint32_t *counts, uint32_t n, const struct sample_params *p, const struct token_window *seen)
{
    for (uint32_t i = 0; i < seen->n; i++)
        if (seen->tokens[i] < n)
            counts[seen->tokens[i]]++;
    for (uint32_t i = 0; i < seen->n; i++) {
        uint32_t token = seen->tokens[i], n_seen = token < n ? counts[token] : 0;
        if (n_seen == 0)
            continue; // done at its first sighting
        counts[token] = 0;
        logits[token] = logits[token] > 0 ? logits[token] / p->repeat_penalty : logits[token] * p->repeat_penalty;
        logits[token] -= p->presence_penalty + (float)n_seen * p->frequency_penalty;
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

// ---- steps 3 to 5

struct sampled_row {
    const float *logits; // [n], after step 2
    uint32_t n, n_tops;
    float *tops; // [n_tops]: the largest of logits[b], logits[b + n_tops], ...
    float temperature;
    uint64_t *candidates; // [n], room
};

static bool tops_plain(const float *x, uint32_t n, float *tops, uint32_t n_tops)
{
    bool valid = true;

    for (uint32_t b = 0; b < n_tops; b++)
        tops[b] = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        valid = valid && x[i] < INFINITY;
        tops[i % n_tops] = x[i] > tops[i % n_tops] ? x[i] : tops[i % n_tops];
    }
    return valid;
}

// The token with the largest logit, ties to the lowest id; n when there is none above -infinity.
static uint32_t best_of(const struct sampled_row *r)
{
    float top = -INFINITY;
    uint32_t best = r->n;

    for (uint32_t b = 0; b < r->n_tops; b++)
        top = r->tops[b] > top ? r->tops[b] : top;
    for (uint32_t b = 0; top > -INFINITY && b < r->n_tops; b++)
        for (uint32_t i = b; r->tops[b] == top && i < r->n; i += r->n_tops)
            best = r->logits[i] == top && i < best ? i : best;
    return best;
}

static uint32_t count_from(const float *x, uint32_t n, float least)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++)
        count += x[i] >= least;
    return count;
}

// A number that at least k of x reach, and not many more where few steps of bisection find one. -infinity when fewer than k are above that.
static float reached_by(const float *x, uint32_t n, uint32_t k)
{
    float low = INFINITY, high = -INFINITY;
    uint32_t above = 0;

    for (uint32_t i = 0; i < n; i++) {
        above += x[i] > -INFINITY;
        low = x[i] > -INFINITY && x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    for (uint32_t i = 0; above > k + k / 4 && i < 16; i++) {
        float middle = low / 2 + high / 2;
        uint32_t n_from = count_from(x, n, middle);
        if (n_from < k) {
            high = middle;
        } else {
            low = middle;
            above = n_from;
        }
    }
    return above < k ? -INFINITY : low;
}

// Fills in candidates among which are the first k, as far as they are above -infinity, and returns how many.
static uint32_t gather(const struct sampled_row *r, uint32_t k)
{
    float reached = k < r->n_tops / 2 ? reached_by(r->tops, r->n_tops, k) : -INFINITY, least = reached / r->temperature;
    // The division may make one number of two. What is below this cannot become as large as `least`, and is not divided.
    float near = fmaxf(reached - fabsf(reached) * 1e-6f - 1e-30f, -FLT_MAX);
    uint32_t n = 0;

    for (uint32_t b = 0; b < r->n_tops; b++)
        for (uint32_t i = b; r->tops[b] >= near && i < r->n; i += r->n_tops) {
            float logit = r->logits[i];
            if (logit < near)
                continue;
            logit /= r->temperature;
            r->candidates[n] = candidate(logit, i);
            n += logit >= least;
        }
    return n;
}

// Sum of exp(logit - top), from the last to the first: the order is fixed by the logits.
static float exp_sum(const uint64_t *c, uint32_t n, float top)
{
    float sum = 0;

    while (n-- > 0)
        sum += expf(logit_of(c[n]) - top);
    return sum;
}

static uint32_t draw(const struct sampled_row *r, const struct sample_params *p, float random)
{
    enum { FIRST_SORTED = 64 };
    uint32_t top_k = p->top_k && p->top_k < r->n ? p->top_k : r->n, n = gather(r, top_k), kept = 0;
    uint32_t limit = top_k < n ? top_k : n, n_sorted = top_k < r->n || limit < FIRST_SORTED ? limit : FIRST_SORTED;
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
static void alter(const struct cpu_call *call, uint32_t i, const struct token_window *seen, float *logits, uint32_t *counts)
{
    const struct sample_args *args = cpu_args(call);
    const struct sample_params *p = &step_samples(call->step)[i];

    memcpy(logits, cpu_row(call, SAMPLE_LOGITS, i), args->n_tokens * sizeof *logits);
    if (p->n_biases)
        add_biases(logits, args->n_tokens, limits_of(call, i).biases, p->n_biases);
    if (p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0) {
        memset(counts, 0, args->n_tokens * sizeof *counts);
        penalise(logits, counts, args->n_tokens, p, seen);
    }
    if (p->flags & SAMPLE_MASKED)
        keep_allowed(logits, args->n_tokens, limits_of(call, i).mask);
}

// candidates [n_tokens] of 64 bits, counts in their place; logits [n_tokens]; tops
static uint32_t sample_row(const struct cpu_call *call, uint32_t i, const uint32_t *log, tops_fn *find_tops)
{
    const struct sample_args *args = cpu_args(call);
    const struct sample_params *p = &step_samples(call->step)[i];
    uint32_t *work = cpu_row(call, SAMPLE_WORK, i), n = args->n_tokens;
    float *logits = (float *)(work + 2 * (size_t)n);
    struct sampled_row r = { cpu_row(call, SAMPLE_LOGITS, i), n, sample_tops(n), logits + n, p->temperature,
                             (uint64_t *)(void *)work };
    uint32_t position = step_positions(call->step)[step_outputs(call->step)[i]];
    uint32_t n_seen = p->penalty_window < position + 1 ? p->penalty_window : position + 1;

    if (!find_tops(r.logits, r.n, r.tops, r.n_tops))
        return STEP_TOKEN_INVALID;
    if (p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0 || p->n_biases ||
        p->flags & SAMPLE_MASKED) {
        alter(call, i, &(struct token_window){ log + position + 1 - n_seen, n_seen }, logits, work);
        r.logits = logits;
        find_tops(r.logits, r.n, r.tops, r.n_tops);
    }
    uint32_t best = best_of(&r);
    if (best == n)
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

static void run(const struct cpu_call *call, struct row_range range, tops_fn *find_tops)
{
    const struct sample_args *args = cpu_args(call);

    if (range.phase == 0) {
        log_rows(call);
        return;
    }
    for (uint32_t i = range.first; i < range.last; i++) {
        uint32_t row = step_outputs(call->step)[i], position = step_positions(call->step)[row];
        uint32_t *log = (uint32_t *)cpu_base(call, SAMPLE_LOG) + (uint64_t)step_slots(call->step)[row] * args->log_stride;
        uint32_t *results = cpu_base(call, SAMPLE_RESULTS);
        if (step_samples(call->step)[i].flags & SAMPLE_SKIP)
            continue;
        results[i] = sample_row(call, i, log, find_tops);
        if (position + 1 < args->log_stride && results[i] != STEP_TOKEN_INVALID)
            log[position + 1] = results[i];
    }
}

static void sample_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    run(call, (struct row_range){ phase, first, last }, tops_plain);
}

static void sample_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    run(call, range, rows->tops);
}
ROW_KERNELS(sample_fast)

const struct cpu_op cpu_op_sample = { .name = "sample",
                                      .plain = { sample_plan, sample_run },
                                      .fast = { ROW_CHOICES(sample_plan, sample_fast) } };
