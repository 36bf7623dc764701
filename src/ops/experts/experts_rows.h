// experts_rows.h - the rows of each expert in this step, for the CPU's kernels: one pass over an expert's
// weights serves all of them.
//
// A slot of a row is an entry. Entries are sorted by expert, then by row; the shared expert comes last, as
// expert n_experts, with every row once. Each thread counts for itself: a few thousand numbers cost less than
// a barrier.
#pragma once
#include <string.h>
#include "gemm/cpu/product.h"
#include "ops/experts/experts.h"
#include "ops/route/route.h"

enum {
    EXPERTS_BLOCK = 256
}; // rows of an expert whose packed rows stay in the cache while its panels stream
   // by

struct experts_rows {
    uint32_t *first; // [n_experts + 2]: entries of expert e are [first[e], first[e + 1])
    uint32_t *entry; // [n_rows * n_slots]: row * n_slots + slot
    uint32_t n_rows, n_entries;
};

static inline size_t experts_rows_bytes(const struct experts_args *args, uint32_t n_rows)
{
    return (((size_t)n_rows * args->n_slots + args->n_experts + 2) * sizeof(uint32_t) + 63) / 64 * 64;
}

// Counts entries: counts[e] of [n_experts].
static inline void experts_count(const struct cpu_call *call, uint32_t ids_operand, uint32_t *counts)
{
    const struct experts_args *args = cpu_args(call);

    for (uint32_t r = 0; r < call->step->n_rows; r++) {
        const float *ids = cpu_row(call, ids_operand, r);
        for (uint32_t j = 0; j < args->n_slots; j++)
            counts[(uint32_t)ids[j]]++;
    }
}

// The matrices of the experts that rows chose, and of the shared one.
static inline void experts_tell(const struct cpu_call *call, uint32_t ids_operand, const uint8_t stacks[],
                                uint32_t n_stacks, cpu_tell *tell, void *arg)
{
    const struct experts_args *args = cpu_args(call);
    uint32_t counts[ROUTE_MAX_EXPERTS] = { 0 };

    experts_count(call, ids_operand, counts);
    for (uint32_t e = 0; e < args->n_experts; e++)
        for (uint32_t i = 0; i < n_stacks && counts[e]; i++) {
            const struct weight *w = cpu_weight(call, stacks[i]);
            uint64_t n = w->n_rows / args->n_experts;
            tell(arg, w, e * n, n);
        }
}

// `at` bytes into a thread's own memory; NULL while a tape is sealed, when there is none.
static inline void *experts_local(const struct cpu_call *call, size_t at)
{
    return call->local ? (unsigned char *)call->local + at : NULL;
}

// Sets the lists' places in a thread's own memory, experts_rows_bytes from `at`; experts_rows_fill fills
// them.
static inline struct experts_rows experts_rows_in(const struct cpu_call *call, size_t at)
{
    const struct experts_args *args = cpu_args(call);
    uint32_t n_rows = call->step->n_rows, n_entries = n_rows * args->n_slots;
    size_t entry = at + ((size_t)args->n_experts + 2) * sizeof(uint32_t);
    return (struct experts_rows){ experts_local(call, at), experts_local(call, entry), n_rows, n_entries };
}

static inline void experts_rows_fill(const struct cpu_call *call, uint32_t ids_operand,
                                     struct experts_rows *rows)
{
    const struct experts_args *args = cpu_args(call);
    uint32_t *first = rows->first;

    memset(first, 0, ((size_t)args->n_experts + 2) * sizeof *first);
    experts_count(call, ids_operand, first + 2); // each one place too far, since filling moves the beginnings
    for (uint32_t e = 2; e <= args->n_experts; e++)
        first[e] += first[e - 1];
    for (uint32_t r = 0; r < rows->n_rows; r++) {
        const float *ids = cpu_row(call, ids_operand, r);
        for (uint32_t j = 0; j < args->n_slots; j++)
            rows->entry[first[(uint32_t)ids[j] + 1]++] = r * args->n_slots + j;
    }
    first[args->n_experts + 1] = rows->n_entries + rows->n_rows; // the shared expert's
}

// The first of an expert's entries that is this one or a later one.
static inline uint32_t experts_place(const struct experts_rows *rows, uint32_t expert, uint32_t entry)
{
    uint32_t low = rows->first[expert], high = rows->first[expert + 1];

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (rows->entry[middle] < entry)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Columns of a panel; mostly all of them, which takes no call.
static inline void experts_copy(float *to, const float *from, uint32_t n)
{
    if (n == PANEL_ROWS)
        memcpy(to, from, PANEL_ROWS * sizeof *to);
    else
        memcpy(to, from, n * sizeof *to);
}

// The places of packed rows in a workspace: each entry has one for each packing that its products read.
struct experts_packed {
    size_t at[N_PACKINGS], stride;
    bool used[N_PACKINGS];
};

static inline struct experts_packed experts_packed_of(const struct weight_product *products, uint32_t n,
                                                      uint32_t n_cols)
{
    struct experts_packed p = { 0 };

    for (uint32_t i = 0; i < n; i++) {
        enum packing packing = products[i].packing;
        if (p.used[packing])
            continue;
        p.used[packing] = true;
        p.at[packing] = p.stride;
        p.stride += product_packed_bytes(packing, n_cols);
    }
    return p;
}

static inline void experts_pack(const struct experts_packed *p, const struct product_kernels *kernels,
                                const float *x, uint32_t n_cols, unsigned char *out)
{
    for (enum packing packing = 0; packing < N_PACKINGS; packing++)
        if (p->used[packing])
            product_prepare(kernels, packing, x, n_cols, out + p->at[packing]);
}
