// vec_neon.c - the row kernels for NEON; see row_kernels.h.
#include "device/cpu/cpu.h"
#if defined(CPU_ARM)
#include "device/cpu/vec_neon.h"
#include "ops/vec/rows_vec.h"
#include "ops/vec/attend_vec.h"

const struct row_kernels row_kernels_neon = { rmsnorm_neon, activate_neon,     rope_store_neon,
                                              attend_neon,  attend_merge_neon, tops_neon };
#endif
