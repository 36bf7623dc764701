// metal_fusions.c - which commands write the next one's packed input on Metal: the table that tape_seal goes
// by (device/fuse.h).
//
// Of one row, attention whose past is split leaves its parts to the product behind, which adds them up on the
// way: five launches a layer instead of six.
#include "gemm/metal/product_choice.h"
#include "ops/attend/attend.h"
#include "ops/attend/attend_parts.h"
#include "ops/matmul/matmul.h"
#include "ops/metal_table.h"
#include "ops/ops.h"

static const struct tape_packing *parts_of(struct device *d, const struct tape_limits *limits,
                                           const struct command *from, const struct command *to)
{
    const struct matmul_args *product = (const struct matmul_args *)to->args;

    (void)d;
    return limits->max_rows == 1 && product->rows == ROWS_STEP && attend_has_parts(from, limits) &&
                   product_takes_parts(to->operands[MATMUL_W].weight)
               ? &attend_parts
               : NULL;
}

const struct tape_fusion metal_fusions[] = {
    { OP_attend, ATTEND_OUT, OP_matmul, MATMUL_IN, 0, parts_of, FUSE_NO_ROWS },
    { 0 },
};
