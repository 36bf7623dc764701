// attend.cu - attend.h for everything the other kernels do not take: any head size, pages of every format.
//
// Computes   out = softmax(scale * q . K) V   for one head and row. Correct before fast.
//
//   positions:  | w0 | w1 | w2 | w3 | w0 | ...     grid: (heads, rows); 4 warps, positions in turn
//
// Online softmax: each warp keeps a running max and a running sum of its positions; the four are combined in
// shared memory at the end. Lanes split the head's dimensions. No pipeline, no epilogue.
#include "ops/attend/attend_cuda.h"
#include "device/cuda/pages.cuh"

#define KERNEL attend_plain
#define SINKS  false
#include "ops/attend/attend_plain.cuh"
#undef KERNEL
#undef SINKS
#define KERNEL attend_plain_sinks
#define SINKS  true
#include "ops/attend/attend_plain.cuh"
