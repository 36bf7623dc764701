// product_choices.h - for an operation built on gemm/cpu/product.h the list of its kernels, one for each set
// of product kernels.
#pragma once
#include "gemm/cpu/product.h"
#include "gemm/cpu/product_sets.h"
#include "ops/vec/row_kernels.h"

// A set of product kernels, and the row kernels of the same processor.
struct product_set {
    const struct product_kernels *kernels;
    const struct row_kernels *rows;
};

// A kernel of an operation for each set: NAME_plan and NAME_run take the set as their last argument.
#define PRODUCT_KERNEL(needs, set, vector, name)                                                             \
    static void name##_plan_##set(const struct cpu_call *call, struct cpu_plan *plan)                        \
    {                                                                                                        \
        name##_plan(call, plan, &(struct product_set){ &product_##set, &row_kernels_##vector });             \
    }                                                                                                        \
    static void name##_run_##set(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last) \
    {                                                                                                        \
        name##_run(call, phase, (struct tile_range){ first, last },                                          \
                   &(struct product_set){ &product_##set, &row_kernels_##vector });                          \
    }
#define PRODUCT_CHOICE(needs, set, vector, name) { needs, { name##_plan_##set, name##_run_##set } },
#define PRODUCT_KERNELS(name)                    PRODUCT_SETS(PRODUCT_KERNEL, name)
#define PRODUCT_CHOICES(name)          \
    PRODUCT_SETS(PRODUCT_CHOICE, name) \
    {                                  \
        0,                             \
        {                              \
            0                          \
        }                              \
    }
