// matmul.metal - the operation as defined in matmul.h; the rungs are rows.metalh, tiles.metalh and
// plain_tiles.metalh.
#include "gemm/metal/ladder.metalh"
#include "ops/attend/parts.metalh"

#define PRODUCT_BUFFERS                                                                         \
    constant struct product_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]], \
        device const f32 *in [[buffer(2)]], device const uchar *w [[buffer(3)]],                \
        device const f32 *bias [[buffer(4)]], device const f32 *add [[buffer(5)]],              \
        device f32 *out [[buffer(7)]]
#define PRODUCT_OF matmul_product(&args, &step, in, w, bias, add, out)

static struct product matmul_product(constant struct product_args *args, constant struct step *step,
                                     device const f32 *in, device const uchar *w, device const f32 *bias,
                                     device const f32 *add, device f32 *out)
{
    struct product p = {};
    p.args = args;
    p.step = step;
    p.in = in;
    p.w[0] = w;
    p.bias[0] = bias;
    p.add = add;
    p.out[0] = out;
    return p;
}

PRODUCT_KERNELS(matmul)

kernel void matmul_head(PRODUCT_BUFFERS, PRODUCT_AT, threadgroup float4 *row [[threadgroup(0)]])
{
    struct product p = PRODUCT_OF;
    product_head(p, at.x, row, thread_index);
}

// The row is the attention before it, which left it in parts: each threadgroup adds them up for itself.
kernel void matmul_parts(PRODUCT_BUFFERS, device const f32 *parts [[buffer(8)]], PRODUCT_AT,
                         threadgroup float4 *row [[threadgroup(0)]])
{
    struct product p = PRODUCT_OF;

    if (product_rows(p) == 0)
        return;
    for (u32 c = thread_index; c < args.n_cols / 4; c += PARTS_THREADS)
        row[c] = parts_merged<float4>(parts, args.n_cols, ATTEND_SPAN, 4 * c);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    product_staged(p, tile_find(p, at.x, PARTS_PAIRS), row, PARTS_THREADS, thread_index);
}
