// vec_neon.c - the row kernels for NEON; see row_kernels.h.
#include "device/cpu/cpu.h"
#if defined(CPU_ARM)
#include "device/cpu/vec_neon.h"
#include "ops/vec/rows_vec.h"
#include "ops/vec/recurrent_vec.h"
#include "ops/vec/scan_vec.h"
#include "ops/vec/lora_vec.h"
#include "ops/vec/attend_vec.h"
#include "ops/vec/attend_all_vec.h"

const struct row_kernels row_kernels_neon = { .rmsnorm = rmsnorm_neon,
                                              .norm_add = norm_add_neon,
                                              .layernorm = layernorm_neon,
                                              .activate = activate_neon,
                                              .rope_store = rope_store_neon,
                                              .conv_row = conv_row_neon,
                                              .scan_row = scan_row_neon,
                                              .scan_give = scan_give_neon,
                                              .dot = dot_neon,
                                              .gated_norm = gated_norm_neon,
                                              .lora_down = lora_down_neon,
                                              .lora_up = lora_up_neon,
                                              .attend = attend_neon,
                                              .attend_merge = attend_merge_neon,
                                              .attend_all = attend_all_neon,
                                              .tops = tops_neon };
#endif
