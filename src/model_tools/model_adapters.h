// model_adapters.h - requests that use every adapter of an engine: ingot run and bench.
#pragma once
#include "ingot.h"

enum { MODEL_ADAPTERS = 64 };

// Fills uses with all adapters of the engine, each as it was opened; returns how many. The names live as long
// as the engine.
size_t model_adapters_all(const struct ingot_engine *engine, struct ingot_adapter_use uses[MODEL_ADAPTERS]);
