// nccl_library.c - loads NCCL's functions; see nccl.h.
//
// What NCCL reads in the environment is set before it is opened, unless the user has set it. NVLS adds up in
// the switch between the GPUs by multicast, whose sums differ from call to call and whose memory some
// machines do not give; rings have an order that depends on sizes alone.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include "base/options.h"
#include "device/cuda/nccl.h"

static struct nccl_library table;
static struct err table_error;
static bool is_loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

// Before 2.9 a version is 1000 * major + 100 * minor + patch.
static void print_version(int number, char *to, size_t n)
{
    int unit = number < 10000 ? 1000 : 10000;

    snprintf(to, n, "NCCL %d.%d.%d", number / unit, number % unit / 100, number % 100);
}

static bool find(struct nccl_library *to, void *library, struct err *err)
{
    static const char *const symbols[] = {
#define NCCL_SYMBOL(result, name, symbol, arguments) symbol,
        NCCL_FUNCTIONS(NCCL_SYMBOL)
#undef NCCL_SYMBOL
    };
    void **slots = (void **)to;
    char version[32];

    *(void **)&to->version = dlsym(library, "ncclGetVersion");
    if (to->version && to->version(&to->number) == 0 && to->number < NCCL_OLDEST) {
        print_version(to->number, version, sizeof version);
        return err_set(err, ERR_UNSUPPORTED, "the installed NCCL is %s; want 2.14 or later", version + 5);
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        slots[i] = dlsym(library, symbols[i]);
        if (!slots[i])
            return err_set(err, ERR_UNSUPPORTED, "the installed NCCL has no %s; want 2.14 or later",
                           symbols[i]);
    }
    return to->number > 0 ||
           err_set(err, ERR_UNSUPPORTED, "the installed NCCL does not tell its version; want 2.14 or later");
}

bool nccl_library_open(struct nccl_library *to, const char *name, struct err *err)
{
    options_library_preset("NCCL_NVLS_ENABLE", "0");
    options_library_preset("NCCL_ALGO", "Ring");
    *to = (struct nccl_library){ 0 };
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return err_set(err, ERR_UNSUPPORTED,
                       "%.300s; install NVIDIA's NCCL (libnccl2), or name its folder in LD_LIBRARY_PATH",
                       why ? why : "no libnccl.so.2");
    }
    return find(to, library, err);
}

void nccl_library_name(const struct nccl_library *library, char *to, size_t n)
{
    print_version(library->number, to, n);
}

static void load(void)
{
    is_loaded = nccl_library_open(&table, "libnccl.so.2", &table_error);
}

const struct nccl_library *nccl_load(struct err *err)
{
    pthread_once(&once, load);
    if (is_loaded)
        return &table;
    if (err)
        *err = table_error;
    return NULL;
}
