// version.c - see version.h. The build defines the strings for this file alone, so that a new commit compiles
// one file.
#include "main/version.h"

const char version_commit[] = INGOT_COMMIT;
const char version_build[] = INGOT_SYSTEM ", " INGOT_BUILD ", " INGOT_COMPILER;
