// arch.h - the description of an architecture: config keys, tensors, and the recording of one layer.
#pragma once
#include "models/config_key.h"
#include "models/weight_key.h"

// partial_rotary_factor of a head's numbers rotate, or `part` of them where the file does not say.
bool model_read_rotated(struct model *m, double part, struct err *err);
// A size of the table, of the layer k->layer.
uint32_t model_key_dim(const struct model *m, const struct weight_key *k, uint32_t d);
// Whether layer l has this tensor. l = 0 for tensors outside of layers.
bool model_has(const struct model *m, const struct weight_key *k, uint32_t l);
// Whether `word` is one of the words, which are separated by blanks.
bool model_one_of(const char *words, struct str word);
// An error where the file's value of the key is a number above 0 or true: ingot's models of this architecture
// have no such thing.
bool model_lacks(const struct model *m, const char *key, struct err *err);

// Binds one tensor of the table for layer l, or outside of layers, and counts it.
bool model_bind_tensor(struct model *m, const struct weight_key *k, uint32_t l, struct err *err);
// Records a table of angles that a layer of the stage reads; id 0: none does.
struct tensor model_record_angles(struct tape *t, const struct model_stage *s, uint32_t table);

static inline const struct layer_weights *stage_layer(const struct model_stage *s, uint32_t l)
{
    return (const struct layer_weights *)(s->layers + (size_t)(l - s->first) * s->model->n_places);
}
static inline const struct layer_config *stage_layer_config(const struct model_stage *s, uint32_t l)
{
    return &s->model->layer_configs[l];
}
// The architecture's own struct of pointers.
static inline const void *stage_layer_own(const struct model_stage *s, uint32_t l)
{
    return (const struct weight *const *)stage_layer(s, l) + N_LAYER_WEIGHTS;
}

struct arch {
    const char *name;        // in GGUF's general.architecture
    const char *model_types; // in config.json's model_type, separated by blanks
    const char *json_prefix; // of its tensors in a checkpoint with other parts, for "model.": one of these
                             // words; its sizes lie in text_config. NULL: no parts
    bool gguf_differs;       // GGUF files have other numbers in another order: no conversion
    bool gguf_regroups;      // of matrices only the order, and that as weight_key.groups says
    const char *activations; // names that hidden_act may have, separated by blanks; messages say the first
    const char *rope_part;   // the object of rope_parameters that has the first table's numbers, or NULL
    const char *packings;    // names of quant_method whose tensors the weights table reads; NULL: none
    const struct config_key *config;
    uint32_t n_config;
    const struct weight_key *weights;
    uint32_t n_weights;
    // It reads a text whole, every row sees every other, and nothing is generated: no pages, no head.
    bool is_encoder;
    bool ranks_by_words;       // its rerankers answer "yes" or "no" and may lack a head of their own
    uint32_t own_config_bytes; // a struct of the architecture's own sizes, which its config keys fill; 0: it
                               // has none
    uint32_t n_own_weights;    // of a layer, behind struct layer_weights
    bool drafts; // its first draft layer is like its last with pages, with the tensors of draft_layer.h
    const char *draft_layer; // what begins the names of that layer's tensors in checkpoints; NULL: it is the
                             // model's next there
    const char *with; // a size of GGUF files that must be there: it tells the architecture from another of
                      // the same name; or NULL
    const char *json_with;                                 // the same of config.json, a key that must be true
    bool (*complete)(struct model *m, struct err *err);    // sizes that follow from others, or NULL
    bool (*layers)(struct model *m, struct err *err);      // what differs from layer to layer, or NULL
    bool (*check)(const struct model *m, struct err *err); // of the sizes, or NULL
    // Changes what follows from the sizes by the architecture's own rules: m->factors, the rotation; or NULL.
    void (*factors)(struct model *m);
    // Columns (of 4 bytes) of scratch that a row takes in a layer, but for what dense layers take; or NULL.
    uint64_t (*scratch_cols)(const struct model *m);
    // Records what all layers read beside the residual stream, which is the embedding x here; or NULL.
    void (*inputs)(struct tape *t, const struct model_stage *s, struct tensor x);
    // Records layer l of the model on the residual stream x, [rows, n_cols], in place; or its experts alone.
    void (*layer)(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles);
    void (*experts)(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x);
};

#define ARCH_OWN(config, layer_weights) \
    .own_config_bytes = sizeof(config), .n_own_weights = sizeof(layer_weights) / sizeof(void *)
#define ARCH_TABLES(config_table, weights_table)                                    \
    .config = config_table, .n_config = sizeof config_table / sizeof *config_table, \
    .weights = weights_table, .n_weights = sizeof weights_table / sizeof *weights_table
