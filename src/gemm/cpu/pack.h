// pack.h - repacking of weight matrices for the CPU's products.
#pragma once
#include "device/cpu/cpu.h"

// See struct cpu_table. Layout 0 is the file's; the others belong to the kernels in this folder.
bool gemm_pack(uint32_t features, struct thread_pool *pool, const struct weight_source *source,
               struct weight *w, struct err *err);
