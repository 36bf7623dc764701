// vec_avx2.c - the row kernels for AVX2; see row_kernels.h.
#include "device/cpu/cpu.h"
#if defined(CPU_X86)
#include "device/cpu/vec_avx2.h"
#include "ops/vec/rows_vec.h"
#include "ops/vec/attend_vec.h"

const struct row_kernels row_kernels_avx2 = { rmsnorm_avx2, activate_avx2,     rope_store_avx2,
                                              attend_avx2,  attend_merge_avx2, tops_avx2 };
#endif
