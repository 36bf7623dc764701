// pack.c - see pack.h. All threads pack panels. A weight stays as it is where this CPU has no panel kernels
// for it.
#include "gemm/cpu/pack.h"
#include <stdatomic.h>
#include "base/err.h"
#include "gemm/cpu/panel.h"
#include "gemm/cpu/product.h"

struct pack_job {
    const struct product_kernels *kernels;
    struct panel_source from;
    unsigned char *to;
    atomic_uint next;
};

static void pack_panels(void *arg, unsigned thread)
{
    struct pack_job *p = arg;
    uint32_t n = panel_count(p->from.n_rows);
    uint64_t bytes = panel_bytes(p->from.format, p->from.n_cols);

    (void)thread;
    for (uint32_t i; (i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < n;)
        p->kernels->pack(&p->from, i, p->to + i * bytes);
}

bool gemm_pack(uint32_t features, struct thread_pool *pool, const struct weight_source *source,
               struct weight *w, struct err *err)
{
    const struct product_kernels *kernels = product_kernels_of(features);

    if (!kernels || source->format >= QUANT_EXL3)
        return false;
    uint64_t bytes = panel_count(source->n_rows) * panel_bytes(source->format, source->n_cols);
    struct pack_job p = { .kernels = kernels,
                          .from = { source->data, source->n_rows, source->n_cols, source->format } };
    struct buffer packed;
    if (!cpu_buffer_alloc(w->buffer.device, bytes, &packed, err))
        return err_prefix(err, "%s in the layout of the fast kernels (%s needs none)", source->name,
                          err_option("no_repack"));
    p.to = packed.host;
    thread_pool_run(pool, pack_panels, &p);
    w->buffer = packed;
    w->bytes = bytes;
    w->layout = LAYOUT_PANELS;
    return true;
}
