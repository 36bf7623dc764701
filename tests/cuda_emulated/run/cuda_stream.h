// cuda_stream.h - streams of several emulated devices: what is launched on one runs on a thread of its own,
// so that kernels of two devices can wait for each other. All else waits until the stream's launches are
// over.
#pragma once
#include <stdbool.h>

struct cuda_stream;

// run: called for each job, on the stream's thread; `begin` before the first, `end` at the
// end; what it returns first that is not 0
// is kept.
struct cuda_stream *cuda_stream_create(void (*begin)(void), int (*run)(void *job), void (*end)(void));
void cuda_stream_destroy(struct cuda_stream *s);
void cuda_stream_add(struct cuda_stream *s, void *job);
int cuda_stream_wait(struct cuda_stream *s); // what was kept, once
void cuda_streams_wait(void);                // all streams
