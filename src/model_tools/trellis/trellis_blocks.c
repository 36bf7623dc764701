// trellis_blocks.c - see trellis_blocks.h. One tape, played for each block: a step's position is the block.
#include "model_tools/trellis/trellis_blocks.h"
#include "base/mem.h"
#include "device/tape.h"
#include "ops/ops.h"
#include "ops/trellis_search/trellis_search.h"

struct blocks_job {
    const struct trellis_blocks *b;
    struct tape *tape;
    struct buffer w, l, missed, codes, step;
};

bool trellis_blocks_supported(struct device *d)
{
    return d->ops->supports(d, OP_trellis_search);
}

static uint64_t codes_bytes(const struct trellis_blocks *b)
{
    return exl3_codes_bytes(b->n_in, b->n_out, b->bits);
}

static uint64_t numbers_bytes(const struct trellis_blocks *b)
{
    return (uint64_t)b->n_in * b->n_out * sizeof(float);
}

// In fp32: rows up to the diagonal, which are all that is read.
static bool write_l(struct blocks_job *j, uint32_t matrix, float *row, struct err *err)
{
    const size_t n = j->b->n_in;
    bool ok = true;

    for (size_t i = 0; i < n && ok; i++) {
        for (size_t k = 0; k < i; k++)
            row[k] = (float)j->b->at[matrix].l[i * n + k];
        ok = buffer_write(&j->l, (matrix * n + i) * n * sizeof *row, row, i * sizeof *row, err);
    }
    return ok;
}

static bool write_matrices(struct blocks_job *j, struct err *err)
{
    const struct trellis_blocks *b = j->b;
    float *row = mem_alloc_array(b->n_in, sizeof *row);
    bool ok = row || err_memory(err, "a row of moments");

    for (uint32_t m = 0; m < b->n && ok; m++)
        ok = buffer_write(&j->w, m * numbers_bytes(b), b->at[m].w, numbers_bytes(b), err) &&
             write_l(j, m, row, err);
    mem_free(row);
    return ok;
}

static bool make_buffers(struct blocks_job *j, struct device *d, struct err *err)
{
    const struct trellis_blocks *b = j->b;

    return buffer_alloc(d, b->n * numbers_bytes(b), &j->w, err) &&
           buffer_alloc(d, b->n * numbers_bytes(b), &j->missed, err) &&
           buffer_alloc(d, (uint64_t)b->n * b->n_in * b->n_in * sizeof(float), &j->l, err) &&
           buffer_alloc(d, b->n * codes_bytes(b), &j->codes, err) &&
           buffer_alloc(d, step_bytes(b->n, 0), &j->step, err) && write_matrices(j, err);
}

static bool record(struct blocks_job *j, struct device *d, struct err *err)
{
    const struct trellis_blocks *b = j->b;

    j->tape = tape_create(d, (struct tape_limits){ .max_rows = b->n });
    if (!j->tape)
        return err_memory(err, "a tape");
    op_trellis_search(j->tape, &(struct trellis_search){ .w = &j->w,
                                                         .l = &j->l,
                                                         .missed = &j->missed,
                                                         .codes = &j->codes,
                                                         .n_in = b->n_in,
                                                         .n_out = b->n_out,
                                                         .bits = b->bits,
                                                         .codebook = b->codebook });
    return tape_seal(j->tape, err);
}

// Reading its codes back waits for the block.
static bool code_block(struct blocks_job *j, uint32_t block, struct err *err)
{
    const struct trellis_blocks *b = j->b;
    const uint64_t bytes = codes_bytes(b) / (b->n_in / EXL3_TILE);
    struct step step = { .n_rows = b->n, .max_rows = b->n };
    uint32_t positions[TRELLIS_TOGETHER];

    for (uint32_t m = 0; m < b->n; m++)
        positions[m] = block;
    bool ok = buffer_write(&j->step, 0, &step, sizeof step, err) &&
              buffer_write(&j->step, step_at_positions(b->n) * sizeof *positions, positions,
                           b->n * sizeof *positions, err) &&
              tape_play(j->tape, &j->step, err);
    for (uint32_t m = 0; m < b->n && ok; m++)
        ok = buffer_read(&j->codes, m * codes_bytes(b) + block * bytes,
                         (unsigned char *)b->at[m].codes + block * bytes, bytes, err);
    return ok;
}

static bool code_blocks(struct blocks_job *j, struct err *err)
{
    const struct trellis_blocks *b = j->b;
    const uint32_t n = b->n_in / EXL3_TILE;

    for (uint32_t done = 1; done <= n; done++) {
        if (!code_block(j, n - done, err))
            return false;
        if (b->goes_on && !b->goes_on(b->arg, done, n))
            return err_set(err, ERR_CANCELLED, "stopped after %u of %u blocks", done, n);
    }
    for (uint32_t m = 0; m < b->n; m++)
        if (!buffer_read(&j->missed, m * numbers_bytes(b), b->at[m].missed, numbers_bytes(b), err))
            return false;
    return true;
}

bool trellis_blocks_code(struct device *d, const struct trellis_blocks *b, struct err *err)
{
    struct blocks_job j = { .b = b };
    bool ok = make_buffers(&j, d, err) && record(&j, d, err) && code_blocks(&j, err);

    tape_destroy(j.tape);
    struct buffer *const all[] = { &j.w, &j.l, &j.missed, &j.codes, &j.step };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buffer_release(all[i]);
    return ok;
}
