// plugin.c - see plugin.h. Open MPI's own parts look for its symbols in the whole process: RTLD_GLOBAL.
#include "engine/ranks/plugin.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"

#ifndef INGOT_PLUGIN_FOLDER
#define INGOT_PLUGIN_FOLDER "lib/ingot" // below the prefix
#endif
#define NAME "libingot_mpi.so"

enum { PATH_BYTES = 4096 };

// The folder of the file that this code is in, with its slash.
static void own_folder(char to[PATH_BYTES])
{
    Dl_info info;
    char resolved[PATH_BYTES];
    const char *path = dladdr((void *)(uintptr_t)plugin_open, &info) ? info.dli_fname : "";

    if (realpath("/proc/self/exe", resolved) && !strstr(path, ".so"))
        path = resolved;
    const char *slash = strrchr(path, '/');
    snprintf(to, PATH_BYTES, "%.*s", slash ? (int)(slash + 1 - path) : 0, path);
}

static void *open_library(char folder[PATH_BYTES])
{
    static const char *const places[] = { "", "../" INGOT_PLUGIN_FOLDER "/", "ingot/" };
    char path[PATH_BYTES + 64];

    own_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%s" NAME, folder, places[i]);
        if (*folder && file_exists(path)) // an error is of what it needs
            return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    return dlopen(NAME, RTLD_NOW | RTLD_GLOBAL);
}

const struct mpi_plugin *plugin_open(struct err *err)
{
    char folder[PATH_BYTES];
    void *library = open_library(folder);
    const char *why = library ? NULL : dlerror();

    if (!library) {
        err_set(err, ERR_UNSUPPORTED,
                "no " NAME " beside %.150s (%.200s); build ingot where mpicc is, or start it without mpirun",
                *folder ? folder : "the program", why ? why : "");
        return NULL;
    }
    const struct mpi_plugin *plugin = dlsym(library, MPI_PLUGIN_SYMBOL);
    if (plugin && plugin->form == MPI_PLUGIN_FORM)
        return plugin;
    err_set(err, ERR_UNSUPPORTED, NAME " is of another ingot; install both from one build");
    return NULL;
}
