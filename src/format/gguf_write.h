// gguf_write.h - writes a GGUF v3 file: values, tensor descriptions, then the tensors' bytes in the order
// described.
//
// The file appears whole or not at all (base/file.h). Calls may go on after a failure: the first error is
// kept and reported by gguf_write_commit. Keys and names are copied; a tensor's bytes may come in pieces of
// any size. One thread.
//
//     gguf_write_create(&w, path, err); gguf_write_str(&w, ...); gguf_write_tensor(&w, ...);
//     gguf_write_begin(&w); gguf_write_data(&w, bytes, n); ...
//     gguf_write_commit(&w, err);        // or gguf_write_abort(&w)
#pragma once
#include "format/model_file.h"

struct gguf_writer {
    struct file_writer out;
    struct buf metas, infos;
    uint64_t n_metas, n_tensors;
    uint64_t data_bytes; // described so far, with padding
    uint64_t *ends;      // of each tensor, in the data
    size_t ends_capacity;
    uint64_t data_begin, tensor; // tensor: being written
    bool open, begun;
    struct err first;
};

bool gguf_write_create(struct gguf_writer *w, const char *path, struct err *err);
void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_write_f32(struct gguf_writer *w, const char *key, float value);
void gguf_write_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_write_str(struct gguf_writer *w, const char *key, struct str value);
void gguf_write_strs(struct gguf_writer *w, const char *key, const struct str *values, uint64_t n);
void gguf_write_bools(struct gguf_writer *w, const char *key, const bool *values, uint64_t n);
void gguf_write_i32s(struct gguf_writer *w, const char *key, const int32_t *values, uint64_t n);
void gguf_write_f32s(struct gguf_writer *w, const char *key, const float *values, uint64_t n);
// Any value of a model_file, under its own key. One from a GGUF file keeps its exact type.
void gguf_write_meta(struct gguf_writer *w, const struct meta *meta);
// dims with the slowest first, as in struct file_tensor.
void gguf_write_tensor(struct gguf_writer *w, struct str name, enum quant format, const uint64_t *dims,
                       uint32_t n_dims);
// Everything is described: writes the header. Then exactly the described bytes must follow.
void gguf_write_begin(struct gguf_writer *w);
// bytes NULL: zeros, as file_write_zeros writes them.
void gguf_write_data(struct gguf_writer *w, const void *bytes, uint64_t n);
bool gguf_write_commit(struct gguf_writer *w, struct err *err);
void gguf_write_abort(struct gguf_writer *w); // also after commit: does nothing
