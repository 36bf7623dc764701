// all_reduce_packed.h - the arguments of all_reduce_packed.cu's kernels, and their launch.
#pragma once
#include "device/cuda/exchange_cuda.h"
#include "gemm/cuda/packing.h"

struct all_reduce_packed_params {
    struct all_reduce_params sum;
    struct packed_out next; // PACKING_INT8
};

#ifdef HOST_C
#include "device/fuse.h"
// Whether an all-reduce can write its sum in this packing too.
bool all_reduce_packs(const struct cuda_plan *p, const struct tape_packing *packing);
void all_reduce_packed_launch(struct cuda_plan *p, const struct all_reduce_params *sum);
#endif
