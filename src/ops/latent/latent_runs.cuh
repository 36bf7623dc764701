// latent_runs.cuh - rows of a step whose keys are expanded: those that absorbed attention leaves out.
#pragma once
#include "device/cuda/kernel.cuh"
#include "ops/latent/latent_runs.h"

// Whether all rows [first, end) are of one run. runs: absent where nothing is expanded.
static __device__ __forceinline__ bool latent_are_expanded(const struct latent_runs *runs, u32 first, u32 end)
{
    bool are = false;

    for (u32 i = 0; runs && i < runs->n; i++)
        are = are || (first >= runs->at[i].first && end <= runs->at[i].first + runs->at[i].n_rows);
    return are;
}
