// latent_few.cu - attention of few rows over keys of 576 numbers whose first 512 are the values, 8 heads a
// block. Pages of F16, BF16 and Q8_0.
//
// Computes   out = softmax(scale * q . K) K[:, 0:512]   over the row's positions; see attend_few.cuh.
//
//   a page for four warps: 144 dims of its keys and 128 of its values each. It is read twice, the second time
//   from the L2 cache, since the two products want it in other words, and so by every tile of heads.
#include "ops/attend/attend_few.cuh"
#include "ops/latent/latent_cuda.h"

#define LATENT_FEW(name, F)                                                                            \
    extern "C" __global__ void __launch_bounds__(LATENT_FEW_THREADS, 1)                                \
        latent_few_##name(const __grid_constant__ struct attend_params p)                              \
    {                                                                                                  \
        attend_few<                                                                                    \
            struct few_shape<LATENT_KEY, LATENT_VALUE, LATENT_FEW_PARTS, LATENT_FEW_THREADS, F, true>, \
            false>(p);                                                                                 \
    }
LATENT_FEW(f16, KV_F16)
LATENT_FEW(bf16, KV_BF16)
LATENT_FEW(q8_0, KV_Q8_0)
