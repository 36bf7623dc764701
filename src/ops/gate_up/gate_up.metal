// gate_up.metal - the operation as defined in gate_up.h: one product over pairs of a gate row and an up row.
#include "gemm/metal/ladder.metalh"

#define PRODUCT_BUFFERS                                                                         \
    constant struct product_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]], \
        device const f32 *in [[buffer(2)]], device const f32 *norm [[buffer(3)]],               \
        device const uchar *gate [[buffer(4)]], device const uchar *up [[buffer(5)]],           \
        device f32 *out [[buffer(7)]]
#define PRODUCT_OF gate_up_product(&args, &step, in, norm, gate, up, out)

static struct product gate_up_product(constant struct product_args *args, constant struct step *step,
                                      device const f32 *in, device const f32 *norm, device const uchar *gate,
                                      device const uchar *up, device f32 *out)
{
    struct product p = {};
    p.args = args;
    p.step = step;
    p.in = in;
    p.norm = norm;
    p.w[0] = gate;
    p.w[1] = up;
    p.out[0] = out;
    return p;
}

PRODUCT_KERNELS(gate_up)
