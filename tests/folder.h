// folder.h - a folder for the files of a group of tests, made before them and removed with all that is in it.
#pragma once
#include <unistd.h>
#include "testing.h"

static char folder[32];

static inline int folder_make(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ingot-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int folder_remove(void **state)
{
    (void)state;
    shell("rm -r %s", folder);
    return 0;
}
