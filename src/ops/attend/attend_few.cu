// attend_few.cu - decode attention: few rows, each over its own pages. Pages of F16, BF16 and Q8_0, heads of
// 64, 128, 256 or 512.
//
// Computes   out = softmax(scale * q . K) V   over the row's positions; see attend_few.cuh.
//
//   a page for a warp; of heads of 256 for two and of 512 for four, 128 dims each.
#include "ops/attend/attend_few.cuh"

// Blocks an SM: 128 registers a thread everywhere.
#define BLOCKS(dim) ((dim) > 128 ? 1 : 2)
// Kernels named sinks are for models that have them: gpt-oss, whose heads are of 64.
#define ATTEND_FEW(dim, name, F, SINKS)                                                                  \
    extern "C" __global__ void __launch_bounds__(ATTEND_FEW_THREADS(dim), BLOCKS(dim))                   \
        attend_few_##dim##_##name(const __grid_constant__ struct attend_params p)                        \
    {                                                                                                    \
        attend_few<struct few_shape<dim, dim, ATTEND_FEW_PARTS(dim), ATTEND_FEW_THREADS(dim), F, false>, \
                   SINKS>(p);                                                                            \
    }
#define FOR_DIM(dim)                      \
    ATTEND_FEW(dim, f16, KV_F16, false)   \
    ATTEND_FEW(dim, bf16, KV_BF16, false) \
    ATTEND_FEW(dim, q8_0, KV_Q8_0, false)
FOR_DIM(64)
FOR_DIM(128)
FOR_DIM(256)
FOR_DIM(512)
ATTEND_FEW(64, f16_sinks, KV_F16, true)
ATTEND_FEW(64, bf16_sinks, KV_BF16, true)
ATTEND_FEW(64, q8_0_sinks, KV_Q8_0, true)
