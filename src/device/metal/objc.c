// objc.c - loads the frameworks; see objc.h. They are never unloaded, since their own threads keep running.
#include "device/metal/objc.h"
#include <dlfcn.h>
#include <pthread.h>
#include "base/options.h"

#define FRAMEWORK "/System/Library/Frameworks/Metal.framework/Metal"
#define MPS       "/System/Library/Frameworks/MetalPerformanceShaders.framework/MetalPerformanceShaders"

struct objc objc;
static struct err load_error;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *find(void *library, const char *symbol)
{
    void *at = dlsym(library, symbol);

    if (!at)
        err_set(&load_error, ERR_UNSUPPORTED, "Metal: %s is not there; want macOS 13 or later", symbol);
    return at;
}

static void load(void)
{
    const char *named = options_metal_library();
    void *library = dlopen(named ? named : FRAMEWORK, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const char *why = dlerror();
        err_set(&load_error, ERR_UNSUPPORTED, named ? "INGOT_METAL: %s" : "no Metal: this is not macOS", why);
        return;
    }
#define OBJC_FIND(result, name, parameters) *(void **)&objc.name = find(library, #name);
    OBJC_FUNCTIONS(OBJC_FIND)
#undef OBJC_FIND
    objc.global_block = find(library, "_NSConcreteGlobalBlock");
    if (load_error.code != ERR_NONE)
        return;
#define M(result, name, selector, ...) objc.selectors.name = objc.sel_registerName(selector);
#include "device/metal/methods.def"
#undef M
}

bool objc_load(struct err *err)
{
    pthread_once(&once, load);
    if (load_error.code == ERR_NONE)
        return true;
    if (err)
        *err = load_error;
    return false;
}

bool objc_load_mps(struct err *err)
{
    if (!options_metal_library())
        dlopen(MPS, RTLD_NOW | RTLD_LOCAL);
    return objc.objc_getClass("MPSMatrixMultiplication") ||
           err_set(err, ERR_UNSUPPORTED, "Metal Performance Shaders are not there: no product by the vendor");
}

const char *objc_error(objc_id error)
{
    objc_id text = error ? mtl_description(error) : NULL;
    return text ? mtl_utf8(text) : "unknown error";
}
