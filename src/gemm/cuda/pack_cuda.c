// pack_cuda.c - places the planes of a matrix; see planes.h. The kernel that fills them is in pack.cu.
#include <string.h>
#include "gemm/cuda/planes.h"

_Static_assert((int)PLANES_F32 == (int)QUANT_F32 && (int)PLANES_Q4_0 == (int)QUANT_Q4_0 && (int)PLANES_Q8_0 == (int)QUANT_Q8_0 &&
                   (int)PLANES_Q6_K == (int)QUANT_Q6_K && (int)PLANES_MXFP4 == (int)QUANT_MXFP4,
               "enum plane_format follows enum quant");

static u64 aligned(u64 bytes)
{
    return (bytes + 255) / 256 * 256;
}

u64 planes_place(struct planes *p, u64 at, u32 format, u32 n_rows, u32 n_cols)
{
    u64 high = aligned(n_rows * planes_quants_bytes(format, n_cols));
    u64 scales = high + aligned(n_rows * planes_high_bytes(format, n_cols));
    u64 deltas = scales + aligned(n_rows * planes_scales_bytes(format, n_cols));

    *p = (struct planes){ at, at + high, at + scales, at + deltas, n_rows, n_cols, format, 0 };
    return deltas + aligned(n_rows * planes_deltas_bytes(format, n_cols));
}

void planes_pack(const struct weight_source *source, u64 from, u64 to, struct cuda_pack *pack)
{
    const struct quant_info *info = quant_info(source->format);
    struct pack_params params = { .from = from };

    *pack = (struct cuda_pack){ 0 };
    if (info->block_elements == 1)
        return;
    params.n_blocks = (u64)source->n_rows * (source->n_cols / info->block_elements);
    pack->bytes = planes_place(&params.to, to, source->format, source->n_rows, source->n_cols);
    pack->kernel = "pack_planes";
    pack->shape = (struct cuda_shape){ { (uint32_t)((params.n_blocks + 127) / 128), 1, 1 }, 128, 0 };
    pack->params_bytes = sizeof params;
    memcpy(pack->params, &params, sizeof params);
}

struct planes planes_of(const struct cuda_plan *p, u32 operand)
{
    const struct weight *w = cuda_weight(p, operand);
    struct planes planes = { 0 };

    if (w)
        planes_place(&planes, cuda_at(p, operand), w->format, w->n_rows, w->n_cols);
    return planes;
}
