// vec_avx2.c - the row kernels for AVX2; see row_kernels.h.
#include "device/cpu/cpu.h"
#if defined(CPU_X86)
#include "device/cpu/vec_avx2.h"
#include "ops/vec/rows_vec.h"
#include "ops/vec/recurrent_vec.h"
#include "ops/vec/scan_vec.h"
#include "ops/vec/lora_vec.h"
#include "ops/vec/attend_vec.h"
#include "ops/vec/attend_all_vec.h"

const struct row_kernels row_kernels_avx2 = { .rmsnorm = rmsnorm_avx2,
                                              .norm_add = norm_add_avx2,
                                              .layernorm = layernorm_avx2,
                                              .activate = activate_avx2,
                                              .rope_store = rope_store_avx2,
                                              .conv_row = conv_row_avx2,
                                              .scan_row = scan_row_avx2,
                                              .scan_give = scan_give_avx2,
                                              .dot = dot_avx2,
                                              .gated_norm = gated_norm_avx2,
                                              .lora_down = lora_down_avx2,
                                              .lora_up = lora_up_avx2,
                                              .attend = attend_avx2,
                                              .attend_merge = attend_merge_avx2,
                                              .attend_all = attend_all_avx2,
                                              .tops = tops_avx2 };
#endif
