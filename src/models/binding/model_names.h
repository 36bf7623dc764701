// model_names.h - the names of tensors in a file of either format.
#pragma once
#include "models/arch.h"

// Chooses m->json_prefix: that under which the file has the embedding, which is the first of the tables; or
// m->is_bare, as embedding models are saved.
void model_names_choose(struct model *m);
// The tensor's name in this kind of file, with "%u"; NULL: such files do not have it. text: room for a name
// with another prefix.
const char *model_names_format(const struct model *m, const struct weight_key *k, char text[128]);
// The name with its one or two "%u" replaced by numbers.
void model_names_write(const char *format, uint32_t l, uint32_t number, char name[128]);
// The tensor, or NULL; name becomes its name or what it would be.
const struct file_tensor *model_names_find(const struct model *m, const struct weight_key *k, uint32_t l,
                                           char name[128]);
