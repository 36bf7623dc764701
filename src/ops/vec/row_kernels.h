// row_kernels.h - the operations on rows that every kind of processor has in vector form: norms, activation,
// RoPE and store, attention.
//
// Each is written once, in rows_vec.h, attend_vec.h and attend_all_vec.h, in terms of one vector type;
// vec_avx512.c, vec_avx2.c and vec_neon.c compile them for their processor. A row's result depends on the row
// alone.
#pragma once
#include "device/cpu/cpu.h"
#include "ops/activate/activate.h"
#include "ops/attend/attend.h"
#include "ops/rope_store/rope_store.h"
#include "ops/vec/attend_all_block.h"
#include "ops/vec/lora_rows.h"
#include "ops/vec/recurrent_rows.h"

// Neighbouring rows of one sequence, at positions first, first + 1, ..., and the query heads of one KV head
// or of a few neighbours.
struct attend_run {
    const struct attend_args *args;
    const uint32_t *table; // of the sequence
    const void *k_pages, *v_pages;
    const float *sinks; // of the group's heads, or NULL
    const float *q;     // of the first row, at the group's first head
    float *out;
    size_t q_stride, out_stride; // from row to row, in floats
    uint32_t n_rows, position;
    uint32_t kv_head, n_kv; // the first KV head, and how many: more than one of BF16 pages alone
    void *local;            // attend_local_bytes
    // Keys of one split alone, their sums unmerged into [rows, partial_stride], a head's [value dims] sums
    // and struct attend_sums behind the other's; NULL: the whole past, into out.
    float *partial;
    size_t partial_stride;
    uint32_t split;
};
struct attend_sums {
    float row_max, row_sum; // running max, and running sum of exp(score - row_max)
};
struct attend_merge { // of one row and n_heads query heads: the splits [first, last], in ascending order
    const float *partial;
    size_t split_stride;
    const float *sinks; // [n_heads], or NULL
    float *out;
    uint32_t n_heads, head_dim, first, last;
};

// Heads [first, last) of q's, then k's, then v's.
struct head_range {
    uint32_t first, last;
};

struct norm_row {                  // see rmsnorm.h
    const float *in, *scale, *add; // [n_cols]; scale and add may be NULL
    float *out;
    uint32_t n_cols;
    float eps, gain;
};
struct layernorm_row {
    const float *in, *scale, *bias; // [n_cols]
    float *out;
    uint32_t n_cols;
    float eps;
};

// tops[b] becomes the largest of x[b], x[b + n_tops], ... below n, or -infinity; n_tops is a multiple of 16.
// Is every x a number below +infinity? If not, tops may be anything.
typedef bool tops_fn(const float *x, uint32_t n, float *tops, uint32_t n_tops);

struct row_kernels {
    void (*rmsnorm)(const float *in, const float *scale, float *out, uint32_t n_cols, float eps);
    void (*norm_add)(const struct norm_row *row);
    void (*layernorm)(const struct layernorm_row *row);
    // up: NULL, not gated
    void (*activate)(const struct activate_args *args, const float *gate, const float *up, float *out);
    void (*rope_store)(const struct rope_store_args *args, const struct rope_row *row,
                       struct head_range heads);
    void (*conv_row)(const struct conv_row *row);
    void (*scan_row)(struct scan_row *row);
    // Writes the state behind the row, [d_k] lines of n.
    void (*scan_give)(struct scan_row *row, float *to, size_t stride);
    float (*dot)(const float *a, const float *b, uint32_t n);
    void (*gated_norm)(const struct gated_norm_group *group);
    void (*lora_down)(const struct lora_down *d);
    void (*lora_up)(const struct lora_up *u);
    void (*attend)(const struct attend_run *run);
    void (*attend_merge)(const struct attend_merge *m);
    void (*attend_all)(const struct attend_all_block *b);
    tops_fn *tops;
};
extern const struct row_kernels row_kernels_avx512_bf16, row_kernels_avx512, row_kernels_avx2,
    row_kernels_neon;

// Query heads times rows that share what is read, and of them in registers at once; keys in a block.
enum { ATTEND_MAX_COLUMNS = 64, ATTEND_GROUP = 8, ATTEND_KEYS = 256, ATTEND_SUMS_FLOATS = 2 };
static inline size_t attend_local_bytes(const struct page_shape *s, uint32_t latent_dims)
{
    size_t dims = (s->head_dim + 15) / 16 * 16,
           converted =
               latent_dims || s->k_format > KV_F16 || s->v_format > KV_F16 ? 2 * ATTEND_KEYS * dims : 0;
    return (ATTEND_GROUP * ATTEND_KEYS + (3 * ATTEND_MAX_COLUMNS + ATTEND_GROUP) * dims + converted) *
           sizeof(float);
}

struct row_range {
    uint32_t phase, first, last;
};
// Makes a kernel of each set from run(call, range, rows), and the list of choices.
#define ROW_KERNEL(set, run)                                                                            \
    static void run##_##set(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last) \
    {                                                                                                   \
        run(call, (struct row_range){ phase, first, last }, &row_kernels_##set);                        \
    }
#if defined(CPU_X86)
#define ROW_KERNELS(run) ROW_KERNEL(avx512_bf16, run) ROW_KERNEL(avx512, run) ROW_KERNEL(avx2, run)
#define ROW_CHOICES(plan, run)                                                                             \
    { CPU_AVX512 | CPU_AVX512_BF16, { plan, run##_avx512_bf16 } }, { CPU_AVX512, { plan, run##_avx512 } }, \
        { CPU_AVX2, { plan, run##_avx2 } },
#elif defined(CPU_ARM)
#define ROW_KERNELS(run)       ROW_KERNEL(neon, run)
#define ROW_CHOICES(plan, run) { CPU_NEON, { plan, run##_neon } },
#else
#define ROW_KERNELS(run)
#define ROW_CHOICES(plan, run) \
    {                          \
        0,                     \
        {                      \
            0                  \
        }                      \
    }
#endif
