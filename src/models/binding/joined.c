// joined.c - reads matrices that a file does not hold as products want them, or in a format without kernels;
// see struct joined_tensor.
#include <string.h>
#include "models/binding/joined.h"
#include "base/mem.h"
#include "models/trellis_tensor.h"
#include "quant/mxfp4.h"

struct joined_tensor *joined_create(struct model *m, uint32_t n_parts)
{
    struct joined_tensor *j = mem_alloc(sizeof *j + n_parts * (sizeof *j->parts + sizeof *j->trellis));

    if (!j)
        return NULL;
    j->next = m->joined;
    m->joined = j;
    j->parts = (const struct file_tensor **)(j + 1);
    j->n_halves = 1;
    return j;
}

// Where a row of the whole lies: matrix `matrix` of a part, and the row in it.
struct source_row {
    const struct file_tensor *part;
    uint64_t matrix, row;
};

static struct source_row source_of(const struct joined_tensor *j, uint64_t row)
{
    uint64_t matrix = row / j->rows + j->first_matrix, i = row % j->rows;
    bool apart = j->n_parts > 1;

    return (struct source_row){ j->parts[apart ? matrix : 0], apart ? 0 : matrix,
                                j->alternate ? i * j->n_halves + j->half : (uint64_t)j->half * j->rows + i };
}

// The row's number in its part, which holds matrices row by row.
static uint64_t row_of(const struct joined_tensor *j, const struct source_row *s)
{
    uint64_t rows = j->slice_rows ? j->slice_rows : (uint64_t)j->rows * j->n_halves;
    return s->matrix * rows + j->slice_first + s->row;
}

static void read_plain(const struct joined_tensor *j, const struct source_row *s, uint64_t col, uint64_t n,
                       unsigned char *to)
{
    const struct quant_info *info = quant_info(s->part->format);
    const uint64_t cols = j->all_cols ? j->all_cols : j->cols;

    col += j->first_col;
    if (!s->part->data) { // joined itself
        model_tensor_read(s->part, row_of(j, s) * cols + col, n, to);
        return;
    }
    const unsigned char *row = s->part->data + row_of(j, s) * quant_row_bytes(s->part->format, cols);
    if (info->spread)
        info->spread(row, col, to, n);
    else
        memcpy(to, row + col / info->block_elements * info->block_bytes,
               n / info->block_elements * info->block_bytes);
}

static void read_column(const struct joined_tensor *j, const struct source_row *s, uint64_t col, uint64_t n,
                        unsigned char *to)
{
    const uint64_t bytes = quant_info(j->tensor.format)->block_bytes,
                   stride = (uint64_t)j->rows * j->n_halves, all = j->slice_rows ? j->slice_rows : j->cols;
    const unsigned char *at =
        s->part->data + ((s->matrix * all + j->slice_first + col) * stride + s->row) * bytes;

    for (uint64_t i = 0; i < n; i++, at += stride * bytes, to += bytes)
        if (bytes == 2)
            memcpy(to, at, 2);
        else
            memcpy(to, at, 4);
}

// Byte i of a checkpoint's block holds elements 2i and 2i + 1, of a GGUF file's i and i + 16; the low half is
// the first.
static void pair_halves(const unsigned char *neighbours, uint8_t *halves)
{
    for (uint32_t i = 0; i < 8; i++) {
        unsigned low = neighbours[i], high = neighbours[i + 8];
        halves[2 * i] = (uint8_t)((low & 15) | (high & 15) << 4);
        halves[2 * i + 1] = (uint8_t)(low >> 4 | (high & 0xf0));
    }
}

static void read_mxfp4(const struct joined_tensor *j, const struct source_row *s, uint64_t col, uint64_t n,
                       unsigned char *to)
{
    uint64_t block = (row_of(j, s) * j->cols + col) / 32;

    for (uint64_t end = block + n / 32; block < end; block++, to += sizeof(struct mxfp4)) {
        struct mxfp4 b = { .e = j->scales->data[block] };
        pair_halves(s->part->data + block * sizeof b.q, b.q);
        memcpy(to, &b, sizeof b);
    }
}

static void read_plus_one(const struct joined_tensor *j, uint64_t first, uint64_t n, float *to)
{
    const struct file_tensor *t = j->parts[0];
    const struct quant_info *info = quant_info(t->format);

    info->decode(t->data + first * info->block_bytes, to, n); // a vector of plain numbers
    for (uint64_t i = 0; i < n; i++)
        to[i] += 1;
}

// All of a stack whose matrices lie transposed, in blocks: rows there are columns here.
static void read_decoded(const struct joined_tensor *j, float *to)
{
    const struct quant_info *info = quant_info(j->parts[0]->format);
    uint64_t row_bytes = quant_row_bytes(j->parts[0]->format, j->rows);
    float decoded[MODEL_TURNED_ROWS];

    for (uint64_t m = 0; m < j->tensor.dims[0]; m++, to += (size_t)j->rows * j->cols)
        for (uint32_t c = 0; c < j->cols; c++) {
            info->decode(j->parts[0]->data +
                             ((m + j->first_matrix) * j->slice_rows + j->slice_first + c) * row_bytes,
                         decoded, j->rows);
            for (uint32_t r = 0; r < j->rows; r++)
                to[(size_t)r * j->cols + c] = decoded[r];
        }
}

uint64_t model_tensor_range(const struct file_tensor *t)
{
    const struct joined_tensor *j = (const struct joined_tensor *)t;
    const uint64_t all = t->dims[0] * t->dims[1] * t->dims[2];
    bool whole = t->data || (j->transposed && quant_info(j->parts[0]->format)->block_elements > 1);

    return whole ? all : (uint64_t)EXL3_BLOCK * j->cols;
}

void model_tensor_read(const struct file_tensor *t, uint64_t first, uint64_t n, void *to)
{
    const struct joined_tensor *j = (const struct joined_tensor *)t;
    const struct quant_info *info = quant_info(t->format);
    unsigned char *at = to;

    if (t->data) {
        memcpy(to, t->data + first / info->block_elements * info->block_bytes,
               n / info->block_elements * info->block_bytes);
        return;
    }
    if (j->plus_one) {
        read_plus_one(j, first, n, to);
        return;
    }
    if (j->trellis) {
        trellis_read(j, first, n, to);
        return;
    }
    if (j->transposed && quant_info(j->parts[0]->format)->block_elements > 1) {
        CHECK(first == 0 && n == t->dims[0] * t->dims[1] * t->dims[2]);
        read_decoded(j, to);
        return;
    }
    for (uint64_t take; n > 0;
         first += take, n -= take, at += take / info->block_elements * info->block_bytes) {
        uint64_t col = first % j->cols;
        struct source_row s = source_of(j, first / j->cols);
        take = j->cols - col < n ? j->cols - col : n;
        if (j->scales)
            read_mxfp4(j, &s, col, take, at);
        else if (j->transposed)
            read_column(j, &s, col, take, at);
        else
            read_plain(j, &s, col, take, at);
    }
}
