// model_file.h - a model on disk, whatever its format: named tensors and named values over mapped memory.
//
// A GGUF file (v2, v3; split files are opened by their first part) or a safetensors folder (or one
// .safetensors file inside such a folder) becomes a directory of tensors and a list of values. Every size is
// checked before it is used; nothing is copied; tensors point into the mapping and live as long as the
// model_file. Not known here: architectures, tokenisers.
//
// Values of a safetensors folder are its JSON files, flattened with dots: config.json without prefix
// ("num_hidden_layers", "rope_scaling.factor"), generation_config.json under "generation_config.",
// tokenizer_config.json under "tokenizer_config.", and what says how pictures are prepared,
// preprocessor_config.json and processor_config.json, likewise; and what an embedding model has in the
// folders 1_Pooling, 2_Dense and 3_Dense: config.json under "1_Pooling.", and so on, and tensors of
// model.safetensors under the same words. A chat_template.jinja file stands for
// "tokenizer_config.chat_template". tokenizer.json is only mapped: the tokeniser reads it. Read-only after
// opening: any number of threads.
#pragma once
#include "base/file.h"
#include "base/str.h"
#include "quant/quant.h"

enum { TENSOR_MAX_DIMS = 4 };

struct file_tensor {
    struct str name;
    enum quant format;
    uint32_t n_dims;
    uint64_t dims[TENSOR_MAX_DIMS]; // slowest first, as a matrix is written: [rows, cols]; unused ones are 1
    const unsigned char *data;
    uint64_t bytes;
};

enum meta_type { META_UINT, META_INT, META_FLOAT, META_BOOL, META_STRING, META_ARRAY };

// One value, or an array of values of one type. Arrays are not decoded until asked: meta_at reads one
// element.
struct meta {
    struct str key;
    enum meta_type type;
    union {
        uint64_t u;
        int64_t i;
        double f;
        bool b;
        struct str s;
    };
    enum meta_type element; // of an array
    uint64_t n;             // of an array
    const void *elements;   // private to format/
};

enum model_format { MODEL_GGUF, MODEL_SAFETENSORS };

struct model_file;

// path: a .gguf file, a folder with *.safetensors and config.json, or a .safetensors file (its folder is
// used).
bool model_file_open(struct model_file **file, const char *path, struct err *err);
// An adapter: a .gguf file, or what PEFT writes, a folder with adapter_config.json, whose values these are,
// and adapter_model.safetensors.
bool model_file_open_adapter(struct model_file **file, const char *path, struct err *err);
// A GGUF image in memory, which must stay valid: the embedded model, tests, fuzzing. name is used in
// messages.
bool model_file_open_memory(struct model_file **file, const void *bytes, size_t n, const char *name,
                            struct err *err);
void model_file_close(struct model_file *file); // NULL is allowed
// Drops the pages of a mapped tensor from memory; a later read takes them from the disk again.
void model_file_forget(const struct model_file *file, const struct file_tensor *t);

// From now on its files may be cut while they are in use: what is missing reads as zeros, and model_file_lost
// is true. Without this, and where a system has no SIGBUS, the process ends as it does for others.
bool model_file_guard(struct model_file *file, struct err *err);
// Whether that has happened; *err says so then. Cheap enough for every step; any thread. NULL is allowed.
bool model_file_lost(const struct model_file *file, struct err *err);

enum model_format model_file_format(const struct model_file *file);
const char *model_file_path(const struct model_file *file);
size_t model_file_n_tensors(const struct model_file *file);
const struct file_tensor *model_file_tensor_at(const struct model_file *file, size_t index);
// NULL when absent
const struct file_tensor *model_file_tensor(const struct model_file *file, const char *name);
size_t model_file_n_metas(const struct model_file *file);
const struct meta *model_file_meta_at(const struct model_file *file, size_t index);
// NULL when absent. What config.json says of the language model alone, in text_config, is found without that
// word.
const struct meta *model_file_meta(const struct model_file *file, const char *key);
struct str model_file_tokenizer_json(const struct model_file *file); // empty when there is none

// Element `index` of an array as a value of its own (key is empty). index must be below n.
struct meta meta_at(const struct meta *array, uint64_t index);

// Reads one value. Absent: *value is untouched and the result is true. Wrong type or out of range: false, and
// the message names file, key, what was found and what was expected. Integers may be stored signed or
// unsigned; a float may be stored as an integer.
bool model_file_u64(const struct model_file *file, const char *key, uint64_t min, uint64_t max,
                    uint64_t *value, struct err *err);
bool model_file_f64(const struct model_file *file, const char *key, double min, double max, double *value,
                    struct err *err);
bool model_file_bool(const struct model_file *file, const char *key, bool *value, struct err *err);
bool model_file_string(const struct model_file *file, const char *key, struct str *value, struct err *err);
