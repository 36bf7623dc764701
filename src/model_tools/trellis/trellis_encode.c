// trellis_encode.c - see trellis_encode.h.
//
// Inputs are rows here, as in the file: w[input][output]. With E the error of the coded matrix and M the
// moments of the transformed inputs, the squared error of outputs is the trace of E^T M E. M = L D L^T in
// blocks of 16 makes it a sum over blocks of L^T E weighed by D; from the last block to the first each is
// coded as w - (L^T E of those behind it).
#include "model_tools/trellis/trellis_encode.h"
#include <math.h>
#include "base/mem.h"
#include "model_tools/trellis/trellis_factor.h"
#include "model_tools/trellis/trellis_transform.h"
#include "ops/trellis_search/trellis_path.h"

enum { TILE = EXL3_TILE };

struct encoder {
    const struct trellis_source *source;
    struct trellis_code *code;
    float *w, *missed; // [n_in, n_out]: what is to be coded; what coding it missed
    double *l;         // [n_in, n_in]: L
};

bool trellis_gain(uint32_t bits, enum exl3_codebook codebook, float *best, struct err *err)
{
    struct trellis_path *path = mem_alloc(trellis_path_bytes(bits));
    uint64_t random = 1;
    float tile[TILE][TILE], scaled[TILE][TILE], decoded[TILE][TILE];
    double least = INFINITY;
    uint16_t code[TILE * EXL3_MAX_BITS];

    if (!path)
        return err_memory(err, "the trellis of a matrix");
    trellis_path_prepare(path, bits, codebook, false);
    for (uint32_t i = 0; i < TILE * TILE; i++) {
        double sum = 0; // of twelve numbers from 0 to 1: nearly normal
        for (int k = 0; k < 12; k++)
            sum += (double)(trellis_draw(&random) >> 11) * 0x1p-53;
        tile[i / TILE][i % TILE] = (float)(sum - 6);
    }
    for (float gain = 0.76f; gain < 1.2f; gain += 0.04f) {
        double miss = 0;
        for (uint32_t i = 0; i < TILE * TILE; i++)
            scaled[i / TILE][i % TILE] = tile[i / TILE][i % TILE] / gain;
        trellis_path_find(path, (const float(*)[TILE])scaled, code, decoded);
        for (uint32_t i = 0; i < TILE * TILE; i++)
            miss += pow((double)(decoded[i / TILE][i % TILE] * gain - tile[i / TILE][i % TILE]), 2);
        if (miss < least) {
            least = miss;
            *best = gain;
        }
    }
    mem_free(path);
    return true;
}

static bool make_room(struct encoder *e, struct err *err)
{
    struct trellis_code *c = e->code;
    const size_t n = (size_t)c->n_in * c->n_out, words = n / TILE * e->source->bits;

    e->w = mem_alloc_array(n, sizeof *e->w);
    e->missed = mem_alloc_array(n, sizeof *e->missed);
    e->l = mem_alloc_array((size_t)c->n_in * c->n_in, sizeof *e->l);
    c->codes = mem_alloc_array(words + c->n_in + c->n_out, sizeof *c->codes);
    c->suh = c->codes ? c->codes + words : NULL;
    c->svh = c->codes ? c->suh + c->n_in : NULL;
    return (e->w && e->missed && e->l && c->codes) || err_memory(err, "the trellis of a matrix");
}

static double relative_error(const struct encoder *e)
{
    double missed = 0, all = 0;

    for (size_t i = 0; i < (size_t)e->code->n_in * e->code->n_out; i++) {
        missed += (double)e->missed[i] * (double)e->missed[i];
        all += (double)e->w[i] * (double)e->w[i];
    }
    return all > 0 ? missed / all : 0;
}

static bool prepare(struct encoder *e, struct thread_pool *pool, struct err *err)
{
    const struct trellis_source *s = e->source;
    struct trellis_code *c = e->code;

    if (!make_room(e, err))
        return false;
    trellis_transform(&(struct trellis_transform){ s->w, s->rows, s->cols, c->n_in, c->n_out, s->gain,
                                                   s->seed, e->w, c->suh, c->svh },
                      pool);
    return trellis_factor(&(struct trellis_factor_source){ s->moments, c->suh, s->cols, c->n_in }, pool, e->l,
                          err);
}

static bool code_blocks(const struct encoder *e, uint32_t n, const struct trellis_workers *workers,
                        struct err *err)
{
    struct trellis_blocks blocks = { .n = n,
                                     .n_in = e->code->n_in,
                                     .n_out = e->code->n_out,
                                     .bits = e->source->bits,
                                     .codebook = e->source->codebook,
                                     .goes_on = workers->goes_on,
                                     .arg = workers->arg };

    for (uint32_t i = 0; i < n; i++)
        blocks.at[i] = (struct trellis_blocks_matrix){ e[i].w, e[i].l, e[i].code->codes, e[i].missed };
    return trellis_blocks_code(workers->device, &blocks, err);
}

uint64_t trellis_encode_bytes(uint32_t rows, uint32_t cols)
{
    return exl3_padded(cols) *
           (exl3_padded(rows) * 2ull * sizeof(float) + exl3_padded(cols) * (uint64_t)sizeof(double));
}

bool trellis_encode(const struct trellis_source *sources, uint32_t n, const struct trellis_workers *workers,
                    struct trellis_code *codes, struct err *err)
{
    struct encoder encoders[TRELLIS_TOGETHER] = { 0 };
    bool ok = true;

    for (uint32_t i = 0; i < n; i++) {
        codes[i] = (struct trellis_code){ .n_in = exl3_padded(sources[i].cols),
                                          .n_out = exl3_padded(sources[i].rows) };
        encoders[i] = (struct encoder){ .source = &sources[i], .code = &codes[i] };
        ok = ok && prepare(&encoders[i], workers->pool, err);
    }
    ok = ok && code_blocks(encoders, n, workers, err);
    for (uint32_t i = 0; i < n; i++) {
        codes[i].error = ok ? relative_error(&encoders[i]) : 0;
        mem_free(encoders[i].w);
        mem_free(encoders[i].missed);
        mem_free(encoders[i].l);
        if (!ok)
            trellis_code_free(&codes[i]);
    }
    return ok;
}

void trellis_code_free(struct trellis_code *code)
{
    mem_free(code->codes);
    *code = (struct trellis_code){ 0 };
}
