// model_adapters.c - see model_adapters.h.
#include "model_tools/model_adapters.h"

size_t model_adapters_all(const struct ingot_engine *engine, struct ingot_adapter_use uses[MODEL_ADAPTERS])
{
    struct ingot_adapter_info info;
    uint32_t n = 0;

    for (; n < MODEL_ADAPTERS && ingot_adapter_info(engine, n, &info); n++)
        uses[n] = (struct ingot_adapter_use){ info.name, 1 };
    return n;
}
