// latent_project.metal - the operation as defined in latent.h: a product for each head, whose rows are the
// head's parts of the step's rows. latent_rotate, in latent_store.metal, writes the rest.
#include "gemm/metal/listed.metalh"
#include "ops/latent/latent_metal.h"

#define PRODUCT_BUFFERS                                                                                      \
    constant struct latent_project_metal_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]], \
        device const f32 *in [[buffer(2)]], device const uchar *w [[buffer(3)]],                             \
        device f32 *out [[buffer(6)]]
#define LISTED_TILE(t)      head_tile_find(args, step, at.y, t)
#define LISTED_PLACES(t, i) head_places(args, t.matrix, t.first + i)
#define LISTED_OF(t)        head_product(args, step, t.matrix, in, w, out)

// Tiles of rows, each for all heads.
static bool head_tile_find(constant struct latent_project_metal_args &args, constant struct step &step,
                           u32 at, thread struct listed_tile &t)
{
    t.matrix = at % args.project.n_heads;
    t.first = at / args.project.n_heads * args.tile_rows;
    t.n = t.first < step.n_rows ? min(args.tile_rows, step.n_rows - t.first) : 0;
    return t.n > 0;
}

static uint2 head_places(constant struct latent_project_metal_args &args, u32 head, u32 row)
{
    u32 place = row * args.project.n_heads + head;

    return uint2(place * (args.project.n_cols + args.project.n_rotated),
                 place * (args.project.n_rows + args.project.n_rotated));
}

static struct product head_product(constant struct latent_project_metal_args &args,
                                   constant struct step &step, u32 head, device const f32 *in,
                                   device const uchar *w, device f32 *out)
{
    struct product p = {};

    p.args = &args.product;
    p.step = &step;
    p.in = in;
    p.w[0] = w;
    p.weight_row = head * args.project.n_rows;
    p.out[0] = out;
    return p;
}

LISTED_KERNELS(latent_project)
