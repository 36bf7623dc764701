// driver.c - loads the driver's functions; see driver.h. The library is never unloaded: closing it while its
// own threads run is not safe.
#include "device/cuda/driver.h"
#include <dlfcn.h>
#include <pthread.h>

static struct driver table;
static struct err table_error;
static const struct driver *replaced;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = { "libcuda.so.1", "libcuda.so" };
    static const char *const symbols[] = {
#define CU_SYMBOL(name, symbol, arguments) symbol,
        CU_FUNCTIONS(CU_SYMBOL)
#undef CU_SYMBOL
    };
    void *library = NULL;

    for (size_t i = 0; i < 2 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        err_set(&table_error, ERR_UNSUPPORTED, "no NVIDIA driver: libcuda.so.1 is not installed");
        return;
    }
    void **slots = (void **)&table;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        slots[i] = dlsym(library, symbols[i]);
        if (!slots[i]) {
            err_set(&table_error, ERR_UNSUPPORTED,
                    "the NVIDIA driver has no %s; want one of CUDA 12.3 or later", symbols[i]);
            return;
        }
    }
    cu_result result = table.init(0);
    if (result != 0)
        err_set(&table_error, ERR_UNSUPPORTED, "the NVIDIA driver does not start: %s",
                driver_error(&table, result));
}

void driver_replace(const struct driver *driver)
{
    replaced = driver;
}

const struct driver *driver_load(struct err *err)
{
    if (replaced)
        return replaced;
    pthread_once(&once, load);
    if (table_error.code == ERR_NONE)
        return &table;
    if (err)
        *err = table_error;
    return NULL;
}

const char *driver_error(const struct driver *cu, cu_result result)
{
    const char *name = NULL;

    return cu->error_name(result, &name) == 0 && name ? name : "unknown error";
}
