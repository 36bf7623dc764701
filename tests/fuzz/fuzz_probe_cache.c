// fuzz_probe_cache.c - any bytes as the file of probes: what is found in it is a speed that can be counted
// with.
#include "engine/stage/probe_cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct probe_cache *c = probe_cache_parse((struct str){ (const char *)data, size });
    const struct sha256 key = { { 0 } };
    struct probe_speed speed;

    if (probe_cache_find(c, &key, &speed))
        for (uint32_t i = 0; i < N_PROBE_STEPS; i++)
            CHECK(speed.n_rows[i] >= 1 && speed.at[i].layer_ns >= 1 && speed.at[i].layer_ns < UINT64_MAX / 8);
    probe_cache_close(c);
    return 0;
}
