// weight_layout.c - places the planes of a matrix; see weight_layout.h. The kernel that fills them is in
// weight_pack.cu.
#include <string.h>
#include "gemm/cuda/weight_layout.h"

static u64 aligned(u64 bytes)
{
    return (bytes + 255) / 256 * 256;
}

u64 weight_layout_place(struct weight_planes *p, u64 at, u32 format, u32 n_rows, u32 n_cols)
{
    u64 high = aligned(n_rows * layout_quants_bytes(format, n_cols));
    u64 scales = high + aligned(n_rows * layout_high_bytes(format, n_cols));
    u64 deltas = scales + aligned(n_rows * layout_scales_bytes(format, n_cols));

    *p = (struct weight_planes){ at, at + high, at + scales, at + deltas, n_rows, n_cols, format, 0 };
    return deltas + aligned(n_rows * layout_deltas_bytes(format, n_cols));
}

static void tell_planes(const struct weight_planes *p, u64 at, struct cuda_plane planes[CUDA_PLANES])
{
    const u64 starts[] = { p->quants, p->high, p->scales, p->deltas };
    const u64 row_bytes[] = { layout_quants_bytes(p->format, p->n_cols),
                              layout_high_bytes(p->format, p->n_cols),
                              layout_scales_bytes(p->format, p->n_cols),
                              layout_deltas_bytes(p->format, p->n_cols) };

    for (u32 i = 0; i < CUDA_PLANES; i++)
        planes[i] = (struct cuda_plane){ starts[i] - at, row_bytes[i] };
}

void weight_layout_pack(const struct weight_source *source, u64 from, u64 to, struct cuda_pack *pack)
{
    const struct quant_info *info = quant_info(source->format);
    struct pack_params params = { .from = from };

    *pack = (struct cuda_pack){ 0 };
    if (info->block_elements == 1)
        return;
    params.n_blocks = (u64)source->n_rows * (source->n_cols / info->block_elements);
    pack->bytes = weight_layout_place(&params.to, to, source->format, source->n_rows, source->n_cols);
    tell_planes(&params.to, to, pack->planes);
    pack->kernel = "pack_weight_layout";
    pack->shape = (struct cuda_shape){ { (uint32_t)((params.n_blocks + 127) / 128), 1, 1 }, 128, 0 };
    memcpy(pack->params, &params, sizeof params);
}

struct weight_planes weight_layout_of(const struct cuda_plan *p, u32 operand)
{
    const struct weight *w = cuda_weight(p, operand);
    struct weight_planes planes = { 0 };

    if (w) {
        weight_layout_place(&planes, cuda_at(p, operand), w->format, w->n_rows, w->n_cols);
        planes.row_scales = w->layout == LAYOUT_ROW_SCALES;
    }
    return planes;
}
