// dynamic.cpp - room for shared memory whose size the launch gives, under the names that kernels have for it.
#include <stddef.h>

#define NAMES(F) F(row) F(rows) F(heads) F(key) F(plain_shared) F(shared) F(scan_shared) F(few_shared) F(trellis_shared)
#define ROOM(name) alignas(1024) thread_local unsigned char name[227 * 1024];
NAMES(ROOM)

extern "C" void cuda_emulated_dynamic(void (*tell)(const void *, size_t))
{
#define TELL(name) tell(name, sizeof name);
    NAMES(TELL)
}
