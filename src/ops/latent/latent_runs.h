// latent_runs.h - rows of a step whose keys are expanded (latent_prompt.h), as the CUDA kernels share them.
#pragma once
#include "base/lang.h"

enum { LATENT_MOST_RUNS = 32 };

// Rows of one sequence. Tiles of keys of all runs are counted together, and so are tiles of queries.
struct latent_run {
    u32 first, n_rows, slot, position; // of the first row
    u32 tile, query_tile;              // the run's first
};
struct latent_runs {
    u32 n, n_tiles, n_query_tiles, reserved;
    struct latent_run at[LATENT_MOST_RUNS];
};
