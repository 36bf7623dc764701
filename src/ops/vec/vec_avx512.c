// vec_avx512.c - the row kernels for AVX-512; see row_kernels.h.
#include "device/cpu/cpu.h"
#if defined(CPU_X86)
#define VEC_BF16 0
#include "device/cpu/vec_avx512.h"
#include "ops/vec/rows_vec.h"
#include "ops/vec/recurrent_vec.h"
#include "ops/vec/scan_vec.h"
#include "ops/vec/lora_vec.h"
#include "ops/vec/attend_vec.h"
#include "ops/vec/attend_all_vec.h"

const struct row_kernels row_kernels_avx512 = { .rmsnorm = rmsnorm_avx512,
                                                .norm_add = norm_add_avx512,
                                                .layernorm = layernorm_avx512,
                                                .activate = activate_avx512,
                                                .rope_store = rope_store_avx512,
                                                .conv_row = conv_row_avx512,
                                                .scan_row = scan_row_avx512,
                                                .scan_give = scan_give_avx512,
                                                .dot = dot_avx512,
                                                .gated_norm = gated_norm_avx512,
                                                .lora_down = lora_down_avx512,
                                                .lora_up = lora_up_avx512,
                                                .attend = attend_avx512,
                                                .attend_merge = attend_merge_avx512,
                                                .attend_all = attend_all_avx512,
                                                .tops = tops_avx512 };
#endif
