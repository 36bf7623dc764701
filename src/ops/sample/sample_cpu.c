// sample_cpu.c - the definition first: all candidates are sorted, cut and drawn from. The fast kernel
// follows, which finds the same ids.
//
// In the fast kernel a candidate is one number of 64 bits, the order of its logit above and of its id below:
// earlier candidates are larger. Logits are read once from end to end, for the largest of each block of 8
// (row_kernels.h). These give the best token and a number that k tokens reach; only blocks that reach it are
// read again. Without top_k, only as many are sorted as top_p and min_p need, so the other probabilities are
// added up in another order than in the definition: the two ids can differ where the sum is within rounding
// of top_p.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ops/rows.h"
#include "ops/sample/sample.h"
#include "ops/vec/row_kernels.h"

struct sampled_row { // an output row, and the inputs of step 2
    const struct sample_params *p;
    const float *logits;              // [n], unchanged
    const uint32_t *seen;             // [n_seen], the end of the token history, the row's own token last
    const uint32_t *mask;             // a bit for each token, with SAMPLE_MASKED
    const struct sample_bias *biases; // [p->n_biases]
    uint32_t n, n_seen, position;
    uint32_t *work; // room for [n] of 64 bits, then [n] logits and the fast kernel's block maxima
};

static float *altered_logits(const struct sampled_row *r)
{
    return (float *)(r->work + 2 * (size_t)r->n);
}

static void alter_bias(const struct sampled_row *r, float *logits)
{
    for (uint32_t i = 0; i < r->p->n_biases; i++)
        if (r->biases[i].token < r->n)
            logits[r->biases[i].token] += r->biases[i].bias;
}

static void alter_mask(const struct sampled_row *r, float *logits)
{
    for (uint32_t i = 0; i < r->n && r->p->flags & SAMPLE_MASKED; i++)
        logits[i] = r->mask[i >> 5] >> (i & 31) & 1 ? logits[i] : -INFINITY;
}

// ---- the definition: the steps of sample.h, one after the other

struct candidate {
    float logit;
    uint32_t id;
};

static int plain_order(const void *first, const void *second)
{
    const struct candidate *a = first, *b = second;

    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static void plain_penalise(const struct sampled_row *r, float *logits)
{
    const struct sample_params *p = r->p;
    uint32_t *counts = r->work;

    memset(counts, 0, r->n * sizeof *counts);
    for (uint32_t i = 0; i < r->n_seen; i++)
        if (r->seen[i] < r->n) // rows of pictures are not tokens
            counts[r->seen[i]]++;
    for (uint32_t t = 0; t < r->n; t++) {
        if (counts[t] == 0)
            continue;
        logits[t] = logits[t] > 0 ? logits[t] / p->repeat_penalty : logits[t] * p->repeat_penalty;
        logits[t] -= p->presence_penalty + (float)counts[t] * p->frequency_penalty;
    }
}

// c: [n], sorted. weights: [n], room; a weight is a probability times a constant.
static uint32_t plain_draw(const struct sampled_row *r, const struct candidate *c, uint32_t n, float *weights)
{
    const struct sample_params *p = r->p;
    uint32_t kept = 0;
    float total = 0, kept_sum = 0, sum = 0;

    n = p->top_k && p->top_k < n ? p->top_k : n;
    for (uint32_t i = n; i-- > 0;) // the smallest first
        total += weights[i] = expf(c[i].logit - c[0].logit);
    while (kept < n &&
           (kept == 0 || (kept_sum < p->top_p * total && weights[kept] >= p->min_p && weights[kept] > 0)))
        kept_sum += weights[kept++];
    float goal = sample_random(p->seed[0], p->seed[1], r->position) * kept_sum;
    for (uint32_t i = 0; i < kept; i++)
        if ((sum += weights[i]) > goal)
            return c[i].id;
    return c[kept - 1].id;
}

static uint32_t plain_sample(const struct sampled_row *r)
{
    struct candidate *c = (struct candidate *)(void *)r->work;
    float *logits = altered_logits(r), temperature = r->p->temperature;
    uint32_t n = 0;

    for (uint32_t t = 0; t < r->n; t++)
        if (!(r->logits[t] < INFINITY))
            return STEP_TOKEN_INVALID;
    memcpy(logits, r->logits, r->n * sizeof *logits);
    alter_bias(r, logits);
    plain_penalise(r, logits);
    alter_mask(r, logits);
    for (uint32_t t = 0; t < r->n; t++)
        if (logits[t] > -INFINITY)
            c[n++] = (struct candidate){ temperature == 0 ? logits[t] : logits[t] / temperature, t };
    if (n == 0)
        return STEP_TOKEN_INVALID;
    qsort(c, n, sizeof *c, plain_order);
    return temperature == 0 ? c[0].id : plain_draw(r, c, n, logits);
}

// ---- the fast kernel

static uint64_t packed_candidate(float logit, uint32_t id)
{
    uint32_t bits;

    logit += 0.0f; // turns -0 into 0
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

// Brings the k first candidates to the beginning, as a heap.
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

// As plain_penalise, but only seen tokens are visited.
static void penalise(const struct sampled_row *r, float *logits)
{
    const struct sample_params *p = r->p;
    uint32_t *counts = r->work;

    memset(counts, 0, r->n * sizeof *counts);
    for (uint32_t i = 0; i < r->n_seen; i++)
        if (r->seen[i] < r->n)
            counts[r->seen[i]]++;
    for (uint32_t i = 0; i < r->n_seen; i++) {
        uint32_t token = r->seen[i], n_seen = token < r->n ? counts[token] : 0;
        if (n_seen == 0)
            continue; // done when it was first seen
        counts[token] = 0;
        logits[token] =
            logits[token] > 0 ? logits[token] / p->repeat_penalty : logits[token] * p->repeat_penalty;
        logits[token] -= p->presence_penalty + (float)n_seen * p->frequency_penalty;
    }
}

struct search {          // in one row, after step 2
    const float *logits; // [n]
    uint32_t n, n_tops;
    float *tops; // [n_tops]: the largest of logits[b], logits[b + n_tops], ...
    float temperature;
    uint64_t *candidates; // [n], room
};

// The token with the largest logit, ties to the lowest id; n when there is none above -infinity.
static uint32_t best_of(const struct search *s)
{
    float top = -INFINITY;
    uint32_t best = s->n;

    for (uint32_t b = 0; b < s->n_tops; b++)
        top = s->tops[b] > top ? s->tops[b] : top;
    for (uint32_t b = 0; top > -INFINITY && b < s->n_tops; b++)
        for (uint32_t i = b; s->tops[b] == top && i < s->n; i += s->n_tops)
            best = s->logits[i] == top && i < best ? i : best;
    return best;
}

static uint32_t count_from(const float *x, uint32_t n, float least)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++)
        count += x[i] >= least;
    return count;
}

// A number that at least k of x reach, and not many more where few steps of bisection find one. -infinity
// when fewer than k are above -infinity.
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

// Collects candidates that include the first k above -infinity, and returns their number.
static uint32_t gather(const struct search *s, uint32_t k)
{
    float reached = k < s->n_tops / 2 ? reached_by(s->tops, s->n_tops, k) : -INFINITY,
          least = reached / s->temperature;
    // The division may make two different numbers equal. Numbers below this bound cannot become as large as
    // `least`, and are not divided.
    float near = fmaxf(reached - fabsf(reached) * 1e-6f - 1e-30f, -FLT_MAX);
    uint32_t n = 0;

    for (uint32_t b = 0; b < s->n_tops; b++)
        for (uint32_t i = b; s->tops[b] >= near && i < s->n; i += s->n_tops) {
            float logit = s->logits[i];
            if (logit < near)
                continue;
            logit /= s->temperature;
            s->candidates[n] = packed_candidate(logit, i);
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

static uint32_t draw(const struct search *s, const struct sample_params *p, float random)
{
    enum { FIRST_SORTED = 64 };
    uint32_t top_k = p->top_k && p->top_k < s->n ? p->top_k : s->n, n = gather(s, top_k), kept = 0;
    uint32_t limit = top_k < n ? top_k : n,
             n_sorted = top_k < s->n || limit < FIRST_SORTED ? limit : FIRST_SORTED;
    uint64_t *c = s->candidates;

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

static bool is_penalised(const struct sample_params *p)
{
    return p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

static uint32_t fast_sample(const struct sampled_row *r, tops_fn *find_tops)
{
    const struct sample_params *p = r->p;
    float *logits = altered_logits(r);
    struct search s = { r->logits,     r->n,           sample_tops(r->n),
                        logits + r->n, p->temperature, (uint64_t *)(void *)r->work };

    if (!find_tops(s.logits, s.n, s.tops, s.n_tops))
        return STEP_TOKEN_INVALID;
    if (is_penalised(p) || p->n_biases || p->flags & SAMPLE_MASKED) {
        memcpy(logits, r->logits, r->n * sizeof *logits);
        alter_bias(r, logits);
        if (is_penalised(p))
            penalise(r, logits);
        alter_mask(r, logits);
        s.logits = logits;
        find_tops(s.logits, s.n, s.tops, s.n_tops);
    }
    uint32_t best = best_of(&s);
    if (best == s.n)
        return STEP_TOKEN_INVALID;
    return p->temperature == 0 ? best : draw(&s, p, sample_random(p->seed[0], p->seed[1], r->position));
}

// ---- both

static struct sampled_row row_of(const struct cpu_call *call, uint32_t i, const uint32_t *history)
{
    const struct sample_args *args = cpu_args(call);
    const struct sample_params *p = &step_samples(call->step)[i];
    uint32_t position = step_positions(call->step)[step_outputs(call->step)[i]] + args->ahead;
    uint32_t n_seen = p->penalty_window < position + 1 ? p->penalty_window : position + 1;
    struct sampled_row r = { .p = p,
                             .logits = cpu_row(call, SAMPLE_LOGITS, i),
                             .seen = history + position + 1 - n_seen,
                             .n = args->n_tokens,
                             .n_seen = n_seen,
                             .position = position,
                             .work = cpu_row(call, SAMPLE_WORK, i) };

    if (cpu_has(call, SAMPLE_MASK_BIAS)) {
        r.mask = (const uint32_t *)cpu_base(call, SAMPLE_MASK_BIAS) + (uint64_t)i * args->mask_bias_stride;
        r.biases = (const struct sample_bias *)(const void *)(r.mask + sample_mask_words(args->n_tokens));
    }
    return r;
}

static void write_history(const struct cpu_call *call)
{
    const struct sample_args *args = cpu_args(call);
    uint32_t *history = cpu_base(call, SAMPLE_HISTORY);

    for (uint32_t r = 0; r < call->step->n_rows; r++) {
        uint32_t position = step_positions(call->step)[r] + args->ahead;
        if (step_tokens(call->step)[r] != STEP_TOKEN_HISTORY && position < args->history_stride)
            history[(uint64_t)step_slots(call->step)[r] * args->history_stride + position] =
                step_tokens(call->step)[r];
    }
}

static void sample_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    plan->n_phases = 2;
    plan->n_tiles[0] = 1;
    plan->n_tiles[1] = call->step->n_outputs;
}

static void run(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    const struct sample_args *args = cpu_args(call);

    if (range.phase == 0) {
        write_history(call);
        return;
    }
    for (uint32_t i = range.first; i < range.last; i++) {
        uint32_t row = step_outputs(call->step)[i], position = step_positions(call->step)[row] + args->ahead;
        uint32_t *history = (uint32_t *)cpu_base(call, SAMPLE_HISTORY) +
                            (uint64_t)step_slots(call->step)[row] * args->history_stride;
        uint32_t *results = (uint32_t *)cpu_base(call, SAMPLE_RESULTS) + call->step->results_at;
        if (step_samples(call->step)[i].flags & SAMPLE_SKIP)
            continue;
        struct sampled_row sampled = row_of(call, i, history);
        results[i] = rows ? fast_sample(&sampled, rows->tops) : plain_sample(&sampled);
        if (sample_tells_history(call->step, row, args) && results[i] != STEP_TOKEN_INVALID)
            history[position + 1] = results[i];
    }
}

static void sample_plain(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    run(call, (struct row_range){ phase, first, last }, NULL);
}

static void sample_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    run(call, range, rows);
}
ROW_KERNELS(sample_fast)

const struct cpu_op cpu_op_sample = { .name = "sample",
                                      .plain = { sample_plan, sample_plain },
                                      .fast = { ROW_CHOICES(sample_plan, sample_fast) } };
