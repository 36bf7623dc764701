// plugin.h - finds and opens libingot_mpi.so.
#pragma once
#include "base/err.h"
#include "engine/ranks/mpi_plugin.h"

// Beside the program or library that holds ingot, in ../lib/ingot, ../lib/*/ingot or ingot/ from there, or
// where the loader looks. It stays open. NULL: *err says where it was looked for.
const struct mpi_plugin *plugin_open(struct err *err);
