// nccl.h - NVIDIA's library of collectives, loaded at run time like the driver: what ranks on several GPUs
// exchange by (device/communicator.h).
//
// NCCL is no dependency: libnccl.so.2 is opened when ranks on different GPUs are, and found where programs
// find their libraries, or in LD_LIBRARY_PATH. Its calls lie in each rank's stream between the graphs of a
// tape.
//
// The order of the sums: two ranks add up the same two numbers, so the bits are those of (p0 + p1), whatever
// the number of rows. More ranks go round a ring: all hold the same bits, and a step of the same rows has the
// same bits from run to run on the same machine and NCCL, but a row's bits may depend on how many rows there
// are.
#pragma once
#include <stddef.h>
#include "device/communicator.h"

enum { NCCL_ID_BYTES = 128, NCCL_OLDEST = 21400, NCCL_F32 = 7, NCCL_SUM = 0 };

typedef int nccl_result;   // 0 is success
typedef void *nccl_comm;   // a handle
typedef void *nccl_stream; // CUDA's
struct nccl_id {
    char at[NCCL_ID_BYTES];
};

// Each line: result, name in the table, name in the library, arguments.
#define NCCL_FUNCTIONS(F)                                                                            \
    F(nccl_result, version, "ncclGetVersion", (int *version))                                        \
    F(nccl_result, unique_id, "ncclGetUniqueId", (struct nccl_id * id))                              \
    F(nccl_result, join, "ncclCommInitRank", (nccl_comm * comm, int n, struct nccl_id id, int rank)) \
    F(nccl_result, destroy, "ncclCommDestroy", (nccl_comm comm))                                     \
    F(nccl_result, abort, "ncclCommAbort", (nccl_comm comm))                                         \
    F(nccl_result, async_error, "ncclCommGetAsyncError", (nccl_comm comm, nccl_result * result))     \
    F(const char *, error_text, "ncclGetErrorString", (nccl_result result))                          \
    F(const char *, last_error, "ncclGetLastError", (nccl_comm comm))                                \
    F(nccl_result, group_start, "ncclGroupStart", (void))                                            \
    F(nccl_result, group_end, "ncclGroupEnd", (void))                                                \
    F(nccl_result, all_reduce, "ncclAllReduce",                                                      \
      (const void *from, void *to, size_t n, int type, int op, nccl_comm comm, nccl_stream stream))  \
    F(nccl_result, send, "ncclSend",                                                                 \
      (const void *from, size_t n, int type, int to, nccl_comm comm, nccl_stream stream))            \
    F(nccl_result, receive, "ncclRecv",                                                              \
      (void *to, size_t n, int type, int from, nccl_comm comm, nccl_stream stream))

struct nccl_library {
#define NCCL_FIELD(result, name, symbol, arguments) result(*name) arguments;
    NCCL_FUNCTIONS(NCCL_FIELD)
#undef NCCL_FIELD
    int number; // 22703
};

// Opens a library by its name, which is "libnccl.so.2" but in tests. It is never unloaded, as the driver.
bool nccl_library_open(struct nccl_library *to, const char *name, struct err *err);
// "NCCL 2.27.3"
void nccl_library_name(const struct nccl_library *library, char *to, size_t n);
// The process's table, loaded on first use. NULL with a reason when it is not there or too old.
const struct nccl_library *nccl_load(struct err *err);

// An entry of struct device_queue: the ranks are GPUs of this process, each another one. Tries it with a sum
// and a gather whose results are known.
// Entries too: this process has one rank on d. nccl_join returns when all ranks have joined.
bool nccl_meeting(struct device *d, struct communicator_place *place, struct err *err);
struct communicator *nccl_join(struct device *d, const struct communicator_place *place, struct err *err);
extern uint32_t nccl_join_ms; // how long ranks are waited for
struct communicator *nccl_open(struct device *const *ranks, const struct communicator_shape *shape,
                               struct err *err);
