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

// In fp32: rows up to the diagonal, which are all that is read.
static bool write_l(struct blocks_job *j, struct err *err)
{
    const size_t n = j->b->n_in;
    float *row = mem_alloc_array(n, sizeof *row);
    bool ok = row || err_memory(err, "a row of moments");

    for (size_t i = 0; i < n && ok; i++) {
        for (size_t k = 0; k < i; k++)
            row[k] = (float)j->b->l[i * n + k];
        ok = buffer_write(&j->l, i * n * sizeof *row, row, i * sizeof *row, err);
    }
    mem_free(row);
    return ok;
}

static bool make_buffers(struct blocks_job *j, struct device *d, struct err *err)
{
    const struct trellis_blocks *b = j->b;
    const uint64_t bytes = (uint64_t)b->n_in * b->n_out * sizeof(float);

    return buffer_alloc(d, bytes, &j->w, err) && buffer_alloc(d, bytes, &j->missed, err) &&
           buffer_alloc(d, (uint64_t)b->n_in * b->n_in * sizeof(float), &j->l, err) &&
           buffer_alloc(d, codes_bytes(b), &j->codes, err) &&
           buffer_alloc(d, step_bytes(1, 0), &j->step, err) && buffer_write(&j->w, 0, b->w, bytes, err) &&
           write_l(j, err);
}

static bool record(struct blocks_job *j, struct device *d, struct err *err)
{
    const struct trellis_blocks *b = j->b;

    j->tape = tape_create(d, (struct tape_limits){ .max_rows = 1 });
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
    const uint64_t bytes = codes_bytes(j->b) / (j->b->n_in / EXL3_TILE);
    struct step step = { .n_rows = 1, .max_rows = 1 };

    return buffer_write(&j->step, 0, &step, sizeof step, err) &&
           buffer_write(&j->step, step_at_positions(1) * sizeof block, &block, sizeof block, err) &&
           tape_play(j->tape, &j->step, err) &&
           buffer_read(&j->codes, block * bytes, (unsigned char *)j->b->codes + block * bytes, bytes, err);
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
    return buffer_read(&j->missed, 0, b->missed, (uint64_t)b->n_in * b->n_out * sizeof *b->missed, err);
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
