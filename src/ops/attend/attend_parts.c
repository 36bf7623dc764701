// attend_parts.c - see attend_parts.h. The plain definition: one part is the row itself.
#include "ops/attend/attend_parts.h"
#include <math.h>
#include <string.h>
#include "ops/attend/attend_metal.h"

static uint32_t row_words(uint32_t n_cols)
{
    return attend_parts_words(ATTEND_MOST_PARTS, n_cols, ATTEND_SPAN);
}

static uint64_t parts_bytes(uint32_t max_rows, uint32_t n_cols, bool norm)
{
    (void)norm;
    return (uint64_t)max_rows * row_words(n_cols) * sizeof(float);
}

static void parts_pack(const struct packed_rows *from, void *packed)
{
    uint32_t n_spans = from->n_cols / ATTEND_SPAN;

    for (uint32_t r = 0; r < from->n_rows; r++) {
        float *words = (float *)packed + (uint64_t)r * row_words(from->n_cols),
              *part = words + ATTEND_PARTS_AT;
        memcpy(words, &(uint32_t){ 1 }, sizeof(uint32_t));
        memcpy(part, from->rows + (uint64_t)r * from->n_cols, from->n_cols * sizeof(float));
        for (uint32_t i = 0; i < n_spans; i++) {
            part[from->n_cols + i] = 0;
            part[from->n_cols + n_spans + i] = 1;
        }
    }
}

// Column c of the row with these parts.
static float merged(const float *words, uint32_t n_cols, uint32_t c)
{
    uint32_t n, at = n_cols + c / ATTEND_SPAN, n_spans = n_cols / ATTEND_SPAN,
                stride = attend_part_words(n_cols, ATTEND_SPAN);
    float row_max = -INFINITY, row_sum = 0, sum = 0;

    memcpy(&n, words, sizeof n);
    words += ATTEND_PARTS_AT;
    for (uint32_t i = 0; i < n && i < ATTEND_MOST_PARTS; i++)
        row_max = fmaxf(row_max, words[i * stride + at]);
    for (uint32_t i = 0; i < n && i < ATTEND_MOST_PARTS; i++) {
        const float *part = words + i * stride;
        float weight = expf(part[at] - row_max);
        row_sum += weight * part[at + n_spans];
        sum += weight * part[c];
    }
    return sum / row_sum;
}

static void parts_unpack(const void *packed, const struct packed_rows *to)
{
    for (uint32_t r = 0; r < to->n_rows; r++)
        for (uint32_t c = 0; c < to->n_cols; c++)
            to->rows[(uint64_t)r * to->n_cols + c] =
                merged((const float *)packed + (uint64_t)r * row_words(to->n_cols), to->n_cols, c);
}

const struct tape_packing attend_parts = { "parts", parts_bytes, parts_pack, parts_unpack };
