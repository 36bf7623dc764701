// msl_library.c - the tables that msl_translate.py writes behind every unit. A library's function constants
// are variables of that library: they hold for one dispatch at a time, which is how msl_run works.
#include "msl_library.h"
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct msl_library {
    void *handle;
    const struct msl_kernel *kernels;
    const struct msl_constant *constants;
    int n_kernels, n_constants;
    bool checked;
};

// A kernel library takes the run time's functions from the process: make this object's names visible, however
// it was loaded.
static void names_publish(void)
{
    Dl_info info;

    if (dladdr((void *)names_publish, &info) && info.dli_fname)
        dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

static int image_register(struct dl_phdr_info *info, size_t bytes, void *within)
{
    const char *start = NULL, *end = NULL;

    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr);
        if (p->p_type != PT_LOAD)
            continue;
        start = start ? start : at;
        end = at + p->p_memsz;
    }
    if ((const char *)within < start || (const char *)within >= end)
        return 0;
    msl_check_image(start, (size_t)(end - start));
    return 1;
}

struct msl_library *msl_library_open(const char *path, char *error)
{
    struct msl_library *l = calloc(1, sizeof *l);
    const int *n_kernels, *n_constants;

    names_publish();
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle) {
        snprintf(error, MSL_ERROR_BYTES, "%s", dlerror());
        free(l);
        return NULL;
    }
    l->kernels = dlsym(l->handle, "msl_kernels");
    l->constants = dlsym(l->handle, "msl_constants");
    n_kernels = dlsym(l->handle, "msl_n_kernels");
    n_constants = dlsym(l->handle, "msl_n_constants");
    if (!l->kernels || !l->constants || !n_kernels || !n_constants) {
        snprintf(error, MSL_ERROR_BYTES, "%s has no tables of kernels: not made by mslc", path);
        msl_library_close(l);
        return NULL;
    }
    l->n_kernels = *n_kernels;
    l->n_constants = *n_constants;
    l->checked = dlsym(l->handle, "msl_checked") != NULL;
    if (l->checked)
        dl_iterate_phdr(image_register, (void *)l->kernels);
    return l;
}

void msl_library_close(struct msl_library *l)
{
    if (l)
        dlclose(l->handle);
    free(l);
}

bool msl_library_is_checked(const struct msl_library *l)
{
    return l->checked;
}

const struct msl_kernel *msl_library_kernel_at(const struct msl_library *l, int i)
{
    return i < l->n_kernels ? &l->kernels[i] : NULL;
}

const struct msl_kernel *msl_library_kernel(const struct msl_library *l, const char *name)
{
    for (int i = 0; i < l->n_kernels; i++)
        if (!strcmp(l->kernels[i].name, name))
            return &l->kernels[i];
    return NULL;
}

const struct msl_constant *msl_library_constant(const struct msl_library *l, int index)
{
    for (int i = 0; i < l->n_constants; i++)
        if (l->constants[i].index == index)
            return &l->constants[i];
    return NULL;
}

void msl_library_specialize(struct msl_library *l, const struct msl_value *values, int n_values)
{
    for (int i = 0; i < l->n_constants; i++) {
        const struct msl_constant *c = &l->constants[i];
        memset(c->value, 0, c->bytes);
        *c->defined = false;
        for (int k = 0; k < n_values; k++)
            if (values[k].index == c->index && values[k].bytes == c->bytes) {
                memcpy(c->value, values[k].value, c->bytes);
                *c->defined = true;
            }
    }
}
