// vendor.c - see vendor.h. Names, numbers and layouts are those of cuBLAS 11 or later.
#include "device/cuda/vendor.h"
#include <dlfcn.h>
#include "base/err.h"
#include "base/mem.h"

enum {
    OP_NONE = 0,
    OP_TRANSPOSE = 1,
    TYPE_F32 = 0,
    TYPE_BF16 = 14,
    COMPUTE_F32 = 68,
    ALGORITHM_DEFAULT = -1
};

typedef int status; // 0 is success

struct vendor {
    void *handle;
    status (*create)(void **handle);
    status (*destroy)(void *handle);
    status (*set_stream)(void *handle, cu_stream stream);
    status (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,
                   int type_a, int ld_a, const void *b, int type_b, int ld_b, const void *beta, void *c,
                   int type_c, int ld_c, int compute, int algorithm);
};

static bool find(struct vendor *v, void *library)
{
    static const char *const symbols[] = { "cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2",
                                           "cublasGemmEx" };
    void **slots = (void **)&v->create;

    for (size_t i = 0; i < 4; i++) {
        slots[i] = dlsym(library, symbols[i]);
        if (!slots[i])
            return false;
    }
    return true;
}

// The library is never unloaded, as the driver.
struct vendor *vendor_open(cu_stream stream, struct err *err)
{
    static const char *const names[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
                                         "libcublas.so" };
    struct vendor *v = mem_alloc(sizeof *v);
    void *library = NULL;

    if (!v) {
        err_memory(err, "the vendor's matrix library");
        return NULL;
    }
    for (size_t i = 0; i < 4 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        err_set(err, ERR_UNSUPPORTED,
                "%s vendor: found no libcublas.so.13, .12 or .11; install cuBLAS or use own",
                err_option("gemm"));
    else if (!find(v, library))
        err_set(err, ERR_UNSUPPORTED,
                "%s vendor: the installed cuBLAS lacks a function; want version 11 or later",
                err_option("gemm"));
    else if (v->create(&v->handle) != 0 || v->set_stream(v->handle, stream) != 0)
        err_set(err, ERR_DEVICE, "%s vendor: cuBLAS does not start on this device", err_option("gemm"));
    else
        return v;
    vendor_close(v);
    return NULL;
}

void vendor_close(struct vendor *v)
{
    if (v && v->handle)
        v->destroy(v->handle);
    mem_free(v);
}

// Row-major for us is column-major for cuBLAS: out^T = w x^T.
bool vendor_multiply(struct vendor *v, const struct vendor_product *p, struct err *err)
{
    const float one = 1, zero = 0;
    int k = (int)p->n_cols, m = (int)p->n_out, n = (int)p->n_rows;
    status failed = v->gemm(v->handle, OP_TRANSPOSE, OP_NONE, m, n, k, &one, (const void *)(uintptr_t)p->w,
                            TYPE_BF16, k, (const void *)(uintptr_t)p->x, TYPE_BF16, k, &zero,
                            (void *)(uintptr_t)p->out, TYPE_F32, m, COMPUTE_F32, ALGORITHM_DEFAULT);

    return failed == 0 ||
           err_set(err, ERR_DEVICE, "cuBLAS refuses a product of %d x %d and %d rows: status %d", m, k, n,
                   failed);
}
