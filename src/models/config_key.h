// config_key.h - the rows of an architecture's table of sizes.
#pragma once
#include "models/model.h"

// A size or number of the model, under its GGUF and config.json names. %s in the GGUF name is the
// architecture.
struct config_key {
    size_t offset; // in struct model_config, or in the architecture's own sizes
    size_t layer;  // 1 + the offset in struct layer_config: files may have an array, a number a layer; or 0
    bool is_float, is_bool, is_own;
    bool is_period; // files may have an array instead that says of each layer whether it has the window
    const char *gguf, *json; // NULL: such files do not have the key
    // when the key is absent
    enum { CONFIG_REQUIRED, CONFIG_DEFAULT, CONFIG_SAME_AS, CONFIG_RATIO, CONFIG_FROM_EMBED } otherwise;
    double value;          // the default
    size_t other, divisor; // offsets: same as `other`, or other / divisor
    double min, max;
};

#define CONFIG_AT(field)          .offset = offsetof(struct model_config, field)
#define CONFIG_OWN(config, field) .is_own = true, .offset = offsetof(config, field)
#define SIZE_KEY(field, gguf_name, json_name, largest, ...)                                           \
    {                                                                                                 \
        CONFIG_AT(field), .gguf = gguf_name, .json = json_name, .min = 1, .max = largest, __VA_ARGS__ \
    }
#define FLOAT_KEY(field, gguf_name, json_name, least, largest, ...)                             \
    {                                                                                           \
        CONFIG_AT(field), .is_float = true, .gguf = gguf_name, .json = json_name, .min = least, \
                          .max = largest, __VA_ARGS__                                           \
    }
#define PER_LAYER(field) .layer = 1 + offsetof(struct layer_config, field)
#define REQUIRED         .otherwise = CONFIG_REQUIRED
#define DEFAULT(v)       .otherwise = CONFIG_DEFAULT, .value = v
#define SAME_AS(field)   .otherwise = CONFIG_SAME_AS, .other = offsetof(struct model_config, field)
#define RATIO(field, below)                                                   \
    .otherwise = CONFIG_RATIO, .other = offsetof(struct model_config, field), \
    .divisor = offsetof(struct model_config, below)
#define FROM_EMBED .otherwise = CONFIG_FROM_EMBED
