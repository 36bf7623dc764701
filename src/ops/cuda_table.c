// cuda_table.c - gathers what the operations' folders offer the CUDA device.
#include "ops/cuda_table.h"
#include "ops/attend/attend_cuda.h"
#include "ops/all_reduce/all_reduce_packed.h"
#include "gemm/cuda/weight_layout.h"
#include "ops/ops.h"
#include "ops/parts.h"

static void (*const plans[N_OPS])(struct cuda_plan *p) = {
#define OP(name) [OP_##name] = cuda_plan_##name,
#include "ops/ops.def"
#undef OP
};

// Operations whose kernels are compiled for one compute capability alone. Other GPUs record their parts, and
// allocate no scratch memory for them.
static const u32 capabilities[N_OPS] = { [OP_latent_prompt] = 90 };

void cuda_plan_parts(struct cuda_plan *p)
{
    const struct command *whole = p->command;
    struct command parts[MOST_PARTS];
    u32 n = parts_of(whole, parts);
    u64 bytes = 0, counters_bytes = 0;

    for (u32 i = 0; i < n; i++) {
        if (parts[i].n_operands == 0)
            continue;
        p->command = &parts[i];
        p->private_bytes = p->counters_bytes = 0;
        plans[parts[i].op](p);
        bytes = p->private_bytes > bytes ? p->private_bytes : bytes;
        counters_bytes = p->counters_bytes > counters_bytes ? p->counters_bytes : counters_bytes;
    }
    p->private_bytes = bytes;
    p->counters_bytes = counters_bytes;
    p->command = whole;
}

const struct cuda_table cuda_table = { .plans = plans,
                                       .capabilities = capabilities,
                                       .n_ops = N_OPS,
                                       .max_head_dim = ATTEND_PLAIN_DIM,
                                       .row_scales = "gemm_staged_int8",
                                       .row_scales_cols = INT8_CHUNK_COLUMNS,
                                       .product_cols = 64,
                                       .fusions = cuda_fusions,
                                       .pack = weight_layout_pack,
                                       .reduce_packed = all_reduce_packed_launch };
