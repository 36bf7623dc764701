// attend: causal attention of each row over the pages of its own sequence (GQA: heads h share K and V head h
// / (n_heads / n_kv)).
//
//   s[j] = scale * q . k[j]   for j = first..position of the row;   out = sum over j of softmax(s)[j] * v[j]
// With sinks the softmax has one score more, the head's own, which has no value (gpt-oss). first is 0, or
// position - window + 1 where a window is set. The order of the sums depends on the position alone: j
// ascending, in blocks and splits of a fixed size. Nothing outside the range is read, so nothing needs
// masking.
#pragma once
#include "base/lang.h"
#include "device/pages.h"

struct attend_args {
    struct page_shape pages;
    u32 n_heads;
    u32 window; // 0: the whole past
    f32 scale;
    u32 latent_dims; // of ops/latent: values are the first numbers of the keys; 0: V has pages of its own
};
STATIC_ASSERT(sizeof(struct attend_args) == 32);

// Operand numbers, for the kernels. SINKS may be absent.
enum { ATTEND_Q, ATTEND_K_PAGES, ATTEND_V_PAGES, ATTEND_TABLE, ATTEND_OUT, ATTEND_SINKS, ATTEND_WORK };

// Where a step has few rows, threads may share a row's past. Columns of workspace per row: for every split a
// head's sums, their maximum and their total; see ops/vec/row_kernels.h.
#define ATTEND_FEW_ROWS 16u
#define ATTEND_SPLIT    1024u // keys
SHARED_INLINE u32 attend_work_cols(const BY_REFERENCE struct page_shape *s, u32 n_heads, u32 value_dims)
{
    return (s->max_pages * PAGE_TOKENS + ATTEND_SPLIT - 1) / ATTEND_SPLIT * n_heads * (value_dims + 2);
}

#ifdef HOST_C
struct attend {
    struct tensor out, q; // [rows, n_heads * head_dim]
    struct pages pages;
    float scale;
    uint32_t window;
    const struct weight *sinks; // [n_heads] fp32, or NULL
};
void op_attend(struct tape *t, struct attend a);
#endif
