// trellis_transform.c - see trellis_transform.h.
#include "model_tools/trellis/trellis_transform.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "model_tools/trellis/hadamard.h"
#include "quant/exl3.h"
#include "quant/quant.h"

enum { STRIP = 64, LARGEST_HALF = 0x7bff };

struct transform_work {
    const struct trellis_transform *t;
    atomic_uint next;
};

// SplitMix64 (Steele et al., 2014).
uint64_t trellis_draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// The root mean square of n numbers, of which those behind n_there are zeros, times `gain`: a half. `sign`:
// 0x8000 where it is negative.
static uint16_t choose_factor(const float *x, uint32_t n_there, uint32_t n, float gain, uint16_t sign)
{
    double sum = 0;

    for (uint32_t i = 0; i < n_there; i++)
        sum += (double)x[i] * (double)x[i];
    uint16_t half = quant_float_to_half((float)sqrt(sum / n) * gain);
    return (half > LARGEST_HALF ? LARGEST_HALF : half) | sign;
}

// Of nothing but zeros a factor is 0, so that what coding misses there is not seen.
static float divided(float x, float factor)
{
    return factor != 0 ? x / factor : signbit(factor) ? -0.0f : 0;
}

static void load_outputs(const struct trellis_transform *t, uint32_t first)
{
    enum { DEEP = 16 };
    float factors[STRIP], block[DEEP][STRIP];

    for (uint32_t o = 0; o < STRIP; o++) {
        uint16_t *svh = &t->svh[first + o];
        bool there = first + o < t->rows;
        *svh = choose_factor(there ? t->w + (size_t)(first + o) * t->cols : NULL, there ? t->cols : 0,
                             t->n_in, 1, *svh);
        factors[o] = quant_half_to_float(*svh);
    }
    for (uint32_t i = 0; i < t->n_in; i += DEEP) {
        for (uint32_t o = 0; o < STRIP; o++)
            for (uint32_t k = 0; k < DEEP; k++) {
                bool there = first + o < t->rows && i + k < t->cols;
                block[k][o] = divided(there ? t->w[(size_t)(first + o) * t->cols + i + k] : 0, factors[o]);
            }
        for (uint32_t k = 0; k < DEEP; k++)
            memcpy(t->to + (size_t)(i + k) * t->n_out + first, block[k], sizeof block[k]);
    }
}

static void load_strips(void *arg, unsigned thread)
{
    struct transform_work *work = arg;

    (void)thread;
    for (uint32_t at; (at = atomic_fetch_add(&work->next, STRIP)) < work->t->n_out;)
        load_outputs(work->t, at);
}

static void turn_rows(void *arg, unsigned thread)
{
    struct transform_work *work = arg;
    const struct trellis_transform *t = work->t;

    (void)thread;
    for (uint32_t i; (i = atomic_fetch_add(&work->next, 1)) < t->n_in;) {
        float *row = t->to + (size_t)i * t->n_out;
        hadamard_row(row, t->n_out);
        t->suh[i] = choose_factor(row, t->n_out, t->n_out, t->gain, t->suh[i]);
        float factor = quant_half_to_float(t->suh[i]);
        for (uint32_t o = 0; o < t->n_out; o++)
            row[o] = divided(row[o], factor);
    }
}

static void turn_strips(void *arg, unsigned thread)
{
    struct transform_work *work = arg;
    const struct trellis_transform *t = work->t;

    (void)thread;
    for (uint32_t at; (at = atomic_fetch_add(&work->next, STRIP)) < t->n_out;)
        hadamard_columns(t->to + at, t->n_in, STRIP, t->n_out);
}

void trellis_transform(const struct trellis_transform *t, struct thread_pool *pool)
{
    static void (*const steps[])(void *arg, unsigned thread) = { load_strips, turn_rows, turn_strips };
    struct transform_work work = { .t = t };
    uint64_t random = t->seed;

    for (uint32_t o = 0; o < t->n_out; o++) // factors begin as their signs
        t->svh[o] = trellis_draw(&random) & 1 ? 0x8000 : 0;
    for (uint32_t i = 0; i < t->n_in; i++)
        t->suh[i] = trellis_draw(&random) & 1 ? 0x8000 : 0;
    for (uint32_t i = 0; i < 3; i++) {
        atomic_store(&work.next, 0);
        thread_pool_run(pool, steps[i], &work);
    }
}
