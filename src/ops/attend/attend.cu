// attend.cu - attend.h for whatever the other kernels do not take: any head size, pages of every format.
// Online softmax, positions one by one.
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
