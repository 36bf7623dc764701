// attend_few.cu - decode attention: few rows, each over its own pages. Pages of F16, BF16 and Q8_0, heads of
// 64, 128, 256 or 512.
//
// Computes   out = softmax(scale * q . K) V   over the row's positions; see attend_few.cuh.
//
//   a page for a warp; of heads of 256 for two and of 512 for four, 128 dims each.
//   A block has eight pages at a time; where there are many rows, four, two or one (kernels named w4, w2,
//   w1), so that all of a launch's blocks are on the device at once.
#include "ops/attend/attend_few.cuh"

// 128 registers a thread everywhere, and all of an SM's.
#define FEW_KERNEL(name, dim, threads, F, SINKS)                                                    \
    extern "C" __global__ void __launch_bounds__(threads, 512 / (threads))                          \
        name(const __grid_constant__ struct attend_params p)                                        \
    {                                                                                               \
        attend_few<struct few_shape<dim, dim, ATTEND_FEW_PARTS(dim), threads, F, false>, SINKS>(p); \
    }
#define ATTEND_FEW(dim, name, F, SINKS) \
    FEW_KERNEL(attend_few_##dim##_##name, dim, ATTEND_FEW_THREADS(dim), F, SINKS)
#define FOR_DIM(dim)                      \
    ATTEND_FEW(dim, f16, KV_F16, false)   \
    ATTEND_FEW(dim, bf16, KV_BF16, false) \
    ATTEND_FEW(dim, q8_0, KV_Q8_0, false)
FOR_DIM(64)
FOR_DIM(128)
FOR_DIM(256)
FOR_DIM(512)
// Kernels named sinks are for models that have them: gpt-oss, whose heads are of 64.
ATTEND_FEW(64, f16_sinks, KV_F16, true)
ATTEND_FEW(64, bf16_sinks, KV_BF16, true)
ATTEND_FEW(64, q8_0_sinks, KV_Q8_0, true)

#define FOR_WARPS(dim, warps)                                                     \
    FEW_KERNEL(attend_few_##dim##_f16_w##warps, dim, warps * 32, KV_F16, false)   \
    FEW_KERNEL(attend_few_##dim##_bf16_w##warps, dim, warps * 32, KV_BF16, false) \
    FEW_KERNEL(attend_few_##dim##_q8_0_w##warps, dim, warps * 32, KV_Q8_0, false)
FOR_WARPS(64, 4)
FOR_WARPS(64, 2)
FOR_WARPS(64, 1)
FOR_WARPS(128, 4)
FOR_WARPS(128, 2)
FOR_WARPS(128, 1)
