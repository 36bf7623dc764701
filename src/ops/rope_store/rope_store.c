// rope_store.c - checks and records the operation; see rope_store.h.
#include "ops/rope_store/rope_store.h"
#include "ops/ops.h"

void op_rope_store(struct tape *t, struct rope_store r)
{
    uint32_t head_dim = r.pages.shape.head_dim, n_dims = r.angles.n_cols;

    if (n_dims % 2 != 0 || n_dims > head_dim || r.q.n_cols % head_dim != 0 ||
        (r.k.id && r.k.n_cols != r.pages.shape.n_kv_heads * head_dim) || r.v.n_cols != r.k.n_cols) {
        tape_fail(
            t,
            "rope_store: q %u, k %u, v %u columns, heads of %u, %u of them rotated; k and v must be %u heads",
            r.q.n_cols, r.k.n_cols, r.v.n_cols, head_dim, n_dims, r.pages.shape.n_kv_heads);
        return;
    }
    struct rope_store_args args = { r.pages.shape, r.q.n_cols / head_dim, n_dims, r.pairs, r.eps };
    if (!r.k.id)
        args.pages.n_kv_heads = 0;
    struct command *c = tape_add(t, OP_rope_store, "rope_store", &args, sizeof args);
    tape_writes(t, c, r.q);
    tape_writes(t, c, r.k);
    tape_reads(t, c, r.v);
    tape_reads_weight(t, c, r.q_norm);
    tape_reads_weight(t, c, r.k_norm);
    tape_reads(t, c, r.angles);
    if (r.k.id) {
        tape_writes_buffer(t, c, r.pages.k, page_operand_type(r.pages.shape.k_format));
        tape_writes_buffer(t, c, r.pages.v, page_operand_type(r.pages.shape.v_format));
    } else {
        tape_reads_buffer(t, c, r.pages.k);
        tape_reads_buffer(t, c, r.pages.v);
    }
    tape_reads_buffer(t, c, r.pages.table);
}
