// device_check.c - see device_check.h.
//
// The matrix is Q8_0 with scales of 1. Each 32 numbers of the row have 127 among them, so that activations in
// int8 have a scale of 1 too; and a sum of 512 products of 127 * 127 is below 2^24, where fp32 is exact.
#include "engine/stage/device_check.h"
#include <math.h>
#include "base/mem.h"
#include "device/step.h"
#include "ops/matmul/matmul.h"
#include "quant/q8_0.h"

enum { MOST = 127, BLOCK = 32, HALF_ONE = 0x3c00 };

static int weight_at(uint32_t row, uint32_t col)
{
    return (int)((row * 31 + col * 7 + row * col % 11) % (2 * MOST + 1)) - MOST;
}

static int number_at(uint32_t col)
{
    return col % BLOCK == col / BLOCK % BLOCK ? MOST : (int)(col * 53 % (2 * MOST + 1)) - MOST;
}

float device_check_answer(uint32_t row)
{
    int sum = 0;

    for (uint32_t i = 0; i < DEVICE_CHECK_COLS; i++)
        sum += weight_at(row, i) * number_at(i);
    return (float)sum;
}

static bool make_weight(struct device_check *c, struct err *err)
{
    uint64_t bytes = (uint64_t)DEVICE_CHECK_ROWS * DEVICE_CHECK_COLS / BLOCK * sizeof(struct q8_0);
    struct q8_0 *blocks = mem_alloc_aligned((bytes + 63) / 64 * 64, 64);

    c->blocks = blocks;
    if (!blocks)
        return err_memory(err, "a matrix to check a device with");
    for (uint32_t r = 0; r < DEVICE_CHECK_ROWS; r++)
        for (uint32_t i = 0; i < DEVICE_CHECK_COLS; i++) {
            struct q8_0 *block = &blocks[(r * DEVICE_CHECK_COLS + i) / BLOCK];
            block->d = HALF_ONE;
            block->q[i % BLOCK] = (i8)weight_at(r, i);
        }
    return weight_create(c->device,
                         &(struct weight_source){ .data = blocks,
                                                  .bytes = bytes,
                                                  .n_rows = DEVICE_CHECK_ROWS,
                                                  .n_cols = DEVICE_CHECK_COLS,
                                                  .format = QUANT_Q8_0,
                                                  .use = WEIGHT_PRODUCT,
                                                  .name = "check" },
                         &c->weight, err);
}

static bool write_row(struct device_check *c, struct err *err)
{
    float row[DEVICE_CHECK_COLS];
    uint32_t words[64] = { 0 };
    struct step *step = (struct step *)words;

    CHECK(step_bytes(1, 1) <= sizeof words);
    *step = (struct step){ .n_rows = 1, .n_outputs = 1, .max_rows = 1, .max_outputs = 1 };
    for (uint32_t i = 0; i < DEVICE_CHECK_COLS; i++)
        row[i] = (float)number_at(i);
    return buffer_write(&c->step, 0, words, step_bytes(1, 1), err) &&
           buffer_write(&c->in, 0, row, sizeof row, err);
}

static bool make_tape(struct device_check *c, struct err *err)
{
    c->tape = tape_create(c->device, (struct tape_limits){ .max_rows = 1, .max_outputs = 1 });
    if (!c->tape)
        return err_memory(err, "a tape");
    struct tensor in = tape_tensor_bound(c->tape, DEVICE_CHECK_COLS, ROWS_STEP, &c->in),
                  out = tape_tensor_bound(c->tape, DEVICE_CHECK_ROWS, ROWS_STEP, &c->out);
    op_matmul(c->tape, (struct matmul){ .in = in, .out = out, .w = &c->weight });
    return tape_seal(c->tape, err);
}

bool device_check_create(struct device_check *c, struct device *d, struct err *err)
{
    *c = (struct device_check){ .device = d };
    return make_weight(c, err) && buffer_alloc(d, step_bytes(1, 1), &c->step, err) &&
           buffer_alloc(d, DEVICE_CHECK_COLS * sizeof(float), &c->in, err) &&
           buffer_alloc(d, DEVICE_CHECK_BYTES, &c->out, err) && write_row(c, err) && make_tape(c, err);
}

void device_check_release(struct device_check *c)
{
    if (!c->device)
        return;
    tape_destroy(c->tape);
    weight_release(&c->weight);
    buffer_release(&c->in);
    buffer_release(&c->out);
    buffer_release(&c->step);
    mem_free_aligned(c->blocks);
    *c = (struct device_check){ 0 };
}

bool device_check_run(struct device_check *c, struct err *err)
{
    float got[DEVICE_CHECK_ROWS] = { 0 };

    // an answer of before must not pass for a new one
    if (!buffer_write(&c->out, 0, got, sizeof got, err) || !tape_play(c->tape, &c->step, err) ||
        !c->device->ops->wait(c->device, err) || !buffer_read(&c->out, 0, got, sizeof got, err))
        return false;
    for (uint32_t i = 0; i < DEVICE_CHECK_ROWS; i++)
        if (!(fabsf(got[i] - device_check_answer(i)) <= 0.5f))
            return err_set(
                err, ERR_DEVICE,
                "%s computes wrong: number %u of a known product is %g, not %g; its results cannot "
                "be trusted",
                c->device->name, i, (double)got[i], (double)device_check_answer(i));
    return true;
}
