// trellis_factor.c - see trellis_factor.h.
#include "model_tools/trellis/trellis_factor.h"
#include <math.h>
#include "base/mem.h"
#include "model_tools/trellis/hadamard.h"
#include "quant/exl3.h"
#include "quant/quant.h"

enum { TILE = EXL3_TILE };

// Of the transformed inputs, with a fortieth of their mean on the diagonal.
static void transform_moments(const struct trellis_factor_source *s, double *l, float *row)
{
    const uint32_t n = s->n_in;
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) {
            bool there = i < s->cols && j < s->cols;
            double m = !there ? 0 : s->moments ? s->moments[(size_t)i * s->cols + j] : i == j;
            l[(size_t)i * n + j] =
                m * (double)quant_half_to_float(s->suh[i]) * (double)quant_half_to_float(s->suh[j]);
        }
    for (uint32_t pass = 0; pass < 2; pass++) // rows, then columns by way of the transpose
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t j = 0; j < n; j++)
                row[j] = (float)(pass ? l[(size_t)j * n + i] : l[(size_t)i * n + j]);
            hadamard(row, n, 1);
            for (uint32_t j = 0; j < n; j++)
                *(pass ? &l[(size_t)j * n + i] : &l[(size_t)i * n + j]) = (double)row[j];
        }
    for (uint32_t i = 0; i < n; i++)
        sum += l[(size_t)i * n + i];
    for (uint32_t i = 0; i < n; i++)
        l[(size_t)i * n + i] += sum > 0 ? 0.025 * sum / n : 1;
}

// Cholesky's factor, in the lower triangle. The diagonal's addition keeps it positive; what rounding leaves
// at or below zero becomes tiny.
static void factorise(double *a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j <= i; j++) {
            double sum = a[(size_t)i * n + j];
            for (uint32_t k = 0; k < j; k++)
                sum -= a[(size_t)i * n + k] * a[(size_t)j * n + k];
            if (i == j)
                a[(size_t)i * n + i] = sqrt(sum > 1e-30 ? sum : 1e-30);
            else
                a[(size_t)i * n + j] = sum / a[(size_t)j * n + j];
        }
}

// From Cholesky's factor to L, whose blocks on the diagonal are 1: rows below a block times its inverse.
static void make_unit_blocks(double *a, uint32_t n)
{
    for (uint32_t b = 0; b < n; b += TILE)
        for (uint32_t i = b + TILE; i < n; i++) {
            double *row = a + (size_t)i * n + b;
            for (uint32_t j = TILE; j-- > 0;) {
                for (uint32_t k = j + 1; k < TILE; k++)
                    row[j] -= row[k] * a[(size_t)(b + k) * n + b + j];
                row[j] /= a[(size_t)(b + j) * n + b + j];
            }
        }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i / TILE * TILE; j < n; j++)
            a[(size_t)i * n + j] = i == j;
}

bool trellis_factor(const struct trellis_factor_source *source, struct thread_pool *pool, double *l,
                    struct err *err)
{
    float *row = mem_alloc_array(source->n_in, sizeof *row);

    (void)pool;
    if (!row)
        return err_memory(err, "the factor of moments");
    transform_moments(source, l, row);
    factorise(l, source->n_in);
    make_unit_blocks(l, source->n_in);
    mem_free(row);
    return true;
}
