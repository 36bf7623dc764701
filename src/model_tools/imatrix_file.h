// imatrix_file.h - importance matrices in files that llama.cpp reads and writes too.
//
// The form of its llama-imatrix (read in its sources, common/imatrix-loader.cpp and
// tools/imatrix/imatrix.cpp, commit 3f545becc) is GGUF: general.type "imatrix", imatrix.datasets,
// imatrix.chunk_count, imatrix.chunk_size, and for each weight two tensors in F32, NAME.in_sum2, [matrices,
// columns] sums of squares, and NAME.counts, [matrices, 1] rows that were summed. Its older form, without a
// magic number, is read too: i32 entries; each i32 length, name, i32 calls, i32 values, f32 mean times calls;
// then i32 chunks, i32 length, the text's name.
#pragma once
#include "model_tools/imatrix.h"

// Either form. False: m needs no freeing.
bool imatrix_file_read(struct imatrix *m, const char *path, struct err *err);
// The same from memory, which is aligned to 8 bytes; name is used in messages.
bool imatrix_file_parse(struct imatrix *m, struct str bytes, const char *name, struct err *err);
bool imatrix_file_write(const struct imatrix *m, const char *path, struct err *err);
