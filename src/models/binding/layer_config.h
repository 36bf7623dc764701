// layer_config.h - sizes that may differ from layer to layer: from the model's, or from arrays in the file.
#pragma once
#include "models/arch.h"

// The largest number of an array, whose numbers may be min (0 too) to max.
bool layer_config_largest(const struct model *m, const char *key, const struct config_key *k,
                          uint64_t *largest, struct err *err);
// Makes m->layer_configs, as the model's sizes and the file's arrays have them.
bool layer_config_make(struct model *m, struct err *err);
// The numbers of layers of which one sees all and the others have the window: from an array of the file that
// says of each layer whether it has the window, or names its type. One more than there are layers: all have
// it.
bool layer_config_period(const struct model *m, const char *key, uint64_t *period, struct err *err);
// The same of config.json's layer_types; absent: unchanged.
bool layer_config_types(const struct model *m, uint32_t *period, struct err *err);
// Whether layer l is recurrent, as an array of the file says, which has a type or a truth for each layer.
// Absent: unchanged. %s in format, its key, is the architecture.
bool layer_config_recurrent(const struct model *m, const char *format, uint32_t l, bool *recurrent,
                            struct err *err);
// Layers with the window have it and that table of angles; every period-th has neither.
void layer_config_windows(struct model *m, uint32_t period, uint32_t rope);
// The tokens that layers with a window see, where such a layer has pages; 0: none has.
uint32_t layer_config_window(const struct model *m);
// Bytes of a page of those layers in [first, last), K and V.
uint64_t layer_config_window_bytes(const struct model *m, uint32_t first, uint32_t last, enum kv_format k,
                                   enum kv_format v);
bool layer_config_check(const struct model *m, struct err *err);
// The name under which the file has the key. false: such files do not have it.
bool layer_config_key(const struct model *m, const struct config_key *k, char key[128]);
