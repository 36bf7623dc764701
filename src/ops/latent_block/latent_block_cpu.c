// latent_block_cpu.c - the operation on a CPU: its parts.
#include "ops/cpu_table.h"

const struct cpu_op cpu_op_latent_block = { .name = "latent_block",
                                            .parts_are_faster = true,
                                            .plain = { cpu_parts_plan, cpu_parts_run } };
