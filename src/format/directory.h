// directory.h - the inside of a model_file, and how the two readers fill it. Private to format/.
//
// Tensors and values are appended while a file is read, then sorted once by name: duplicates are found there,
// and a lookup is a binary search, which no choice of names can make slow. Nothing is allocated from a size
// that a file merely declares.
#pragma once
#include "base/arena.h"
#include "format/model_file.h"

enum {
    DIRECTORY_MAX_TENSORS = 1 << 18,
    DIRECTORY_MAX_METAS = 1 << 17,
    DIRECTORY_MAX_NAME = 256,        // bytes of a tensor's name
    DIRECTORY_MAX_KEY = 65535,       // bytes of a key, GGUF's own limit
    DIRECTORY_ARENA_BYTES = 1 << 28, // string tables, unescaped text
};

// The value types of GGUF, as numbered there.
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    N_GGUF_TYPES,
};

// What meta.elements points to. Arrays from JSON files are kept in GGUF's encoding too.
struct meta_elements {
    enum gguf_type type;
    const unsigned char *data;
    const uint64_t *offsets; // of strings: where each begins in data
};

struct name_index {
    struct str name;
    uint32_t at;
};

struct model_file {
    enum model_format format;
    char *path;
    struct arena *arena;
    struct arena *copies; // of tensors that a file does not align; NULL: none. At most as large as the file
    struct file_map *maps;
    uint32_t *guards; // [n_maps] of file_guard.h; NULL: not guarded
    struct file_tensor *tensors;
    struct meta *metas;
    struct name_index *tensor_names, *meta_names; // sorted
    size_t n_maps, n_tensors, n_metas;
    size_t maps_capacity, tensors_capacity, metas_capacity;
    struct str tokenizer_json;
};

// A range of a file that a tensor takes, to find overlaps and holes.
struct byte_range {
    uint64_t begin, end;
    struct str name;
};

struct model_file *directory_create(enum model_format format, const char *path, struct err *err);
void directory_destroy(struct model_file *file);

// Maps a file that stays mapped as long as the model_file.
bool directory_map(struct model_file *file, const char *path, struct str *bytes, struct err *err);
bool directory_add_tensor(struct model_file *file, const struct file_tensor *tensor, struct err *err);
bool directory_add_meta(struct model_file *file, const struct meta *meta, struct err *err);
// Sorts; a name that comes twice is an error.
bool directory_index(struct model_file *file, struct err *err);

// A value of one of the types in GGUF's encoding; n_bytes per element, 0 for strings and arrays.
size_t gguf_type_bytes(enum gguf_type type);
enum meta_type gguf_type_meta(enum gguf_type type);
// at: numbers, bool, or a string's 8 bytes of length
struct meta gguf_value(enum gguf_type type, const unsigned char *at);

// Printable: no control bytes, valid UTF-8. Names and keys must be, so that they can stand in messages.
bool directory_name_ok(struct str name);
bool directory_utf8_ok(struct str text);
// Sorts by begin, then checks that no range begins before the one before it ends.
bool directory_check_ranges(struct byte_range *ranges, size_t n, struct err *err);
