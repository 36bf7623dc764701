// vec_neon.c - the row kernels for NEON; see row_kernels.h.
#include "device/cpu/cpu.h"
#if defined(CPU_ARM)
#include "device/cpu/vec_neon.h"
#include "ops/vec/rows_vec.h"
#include "ops/vec/attend_vec.h"
#include "ops/vec/attend_all_vec.h"

const struct row_kernels row_kernels_neon = { .rmsnorm = rmsnorm_neon,
                                              .layernorm = layernorm_neon,
                                              .activate = activate_neon,
                                              .rope_store = rope_store_neon,
                                              .attend = attend_neon,
                                              .attend_merge = attend_merge_neon,
                                              .attend_all = attend_all_neon,
                                              .tops = tops_neon };
#endif
