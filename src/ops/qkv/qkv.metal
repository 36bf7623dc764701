// qkv.metal - the operation as defined in qkv.h: one product over q, k and v that rotates and stores; where
// heads are normalised first or stored as Q8_0 (a pair does not see its whole head), a product into the
// workspace and then qkv_store.
#include "gemm/metal/ladder.metalh"
#include "ops/rope_store/heads.metalh"

#define PRODUCT_BUFFERS                                                                         \
    constant struct product_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]], \
        device const f32 *in [[buffer(2)]], device const f32 *norm [[buffer(3)]],               \
        device const uchar *wq [[buffer(4)]], device const uchar *wk [[buffer(5)]],             \
        device const uchar *wv [[buffer(6)]], device const f32 *bq [[buffer(7)]],               \
        device const f32 *bk [[buffer(8)]], device const f32 *bv [[buffer(9)]],                 \
        device const f32 *angles [[buffer(12)]], device uchar *k_pages [[buffer(13)]],          \
        device uchar *v_pages [[buffer(14)]], device const u32 *table [[buffer(15)]],           \
        device f32 *work [[buffer(16)]], device f32 *q [[buffer(17)]]
#define PRODUCT_OF                                                                                         \
    qkv_ends(qkv_product(&args, &step, in, norm, wq, wk, wv, bq, bk, bv), angles, k_pages, v_pages, table, \
             work, q)

static struct product qkv_product(constant struct product_args *args, constant struct step *step,
                                  device const f32 *in, device const f32 *norm, device const uchar *wq,
                                  device const uchar *wk, device const uchar *wv, device const f32 *bq,
                                  device const f32 *bk, device const f32 *bv)
{
    struct product p = {};
    p.args = args;
    p.step = step;
    p.in = in;
    p.norm = norm;
    p.w[0] = wq;
    p.w[1] = wk;
    p.w[2] = wv;
    p.bias[0] = bq;
    p.bias[1] = bk;
    p.bias[2] = bv;
    return p;
}

static struct product qkv_ends(struct product p, device const f32 *angles, device uchar *k_pages,
                               device uchar *v_pages, device const u32 *table, device f32 *work,
                               device f32 *q)
{
    p.angles = angles;
    p.k_pages = k_pages;
    p.v_pages = v_pages;
    p.table = table;
    p.out[0] = q;
    p.out[1] = work;
    p.out[2] = work + u64(p.args->work_rows) * p.args->n_out[1];
    return p;
}

PRODUCT_KERNELS(qkv)

// The second launch where heads are normalised: a simdgroup for each head of q, k and v.
kernel void qkv_store(constant struct product_args &args [[buffer(0)]],
                      constant struct step &step [[buffer(1)]], device const f32 *q_norm [[buffer(10)]],
                      device const f32 *k_norm [[buffer(11)]], device const f32 *angles [[buffer(12)]],
                      device uchar *k_pages [[buffer(13)]], device uchar *v_pages [[buffer(14)]],
                      device const u32 *table [[buffer(15)]], device f32 *work [[buffer(16)]],
                      device f32 *q [[buffer(17)]], PRODUCT_AT)
{
    struct heads h;
    h.args = &args.rope;
    h.step = &step;
    h.q = q;
    h.k = work;
    h.v = work + u64(args.work_rows) * args.n_out[1];
    h.q_norm = q_norm;
    h.k_norm = k_norm;
    h.angles = angles;
    h.k_pages = k_pages;
    h.v_pages = v_pages;
    h.table = table;
    head_store(h, at.y, at.x * HEADS_IN_GROUP + thread_index / 32, thread_index % 32);
}
