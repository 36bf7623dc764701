// pipeline.cuh - barriers and copies into shared memory for kernels whose weights stream through a pipeline
// of stages there.
//
// A stage has two barriers: `full`, which its bytes complete, and `empty`, at which its readers arrive. Runs
// of whole 16-byte words are bulk copies, others are copied 16 or four bytes a lane; all complete the same
// barrier. Addresses are shared-memory addresses.
#pragma once
#include "device/cuda/kernel.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // older devices have no bulk copies

static __device__ __forceinline__ u32 shared_address(const void *at)
{
    return (u32)__cvta_generic_to_shared(at);
}
static __device__ __forceinline__ void barrier_begin(u32 at, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
static __device__ __forceinline__ void show_barriers() // makes them visible to bulk copies as well
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void wait_for_stage(u32 full, u32 parity)
{
    asm volatile("{\n\t.reg .pred p;\n"
                 "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "\t@!p bra again;\n\t}" ::"r"(full),
                 "r"(parity)
                 : "memory");
}
static __device__ __forceinline__ void leave_stage(u32 empty)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(empty) : "memory");
}
// Arrives, and expects the bytes of the bulk copies.
static __device__ __forceinline__ void expect_bytes(u32 full, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(bytes) : "memory");
}

// Elects one lane of a whole warp, always the same. For a thread chosen by its number the compiler does not
// know that it is alone, and puts a loop around each copy.
static __device__ __forceinline__ bool elect_one()
{
    u32 elected;

    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(elected));
    return elected;
}

// A cache policy for weights that are not read again soon.
static __device__ __forceinline__ void copy_run(u32 to, const u8 *from, u32 bytes, u32 full)
{
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(full), "l"(policy)
                 : "memory");
}
static __device__ __forceinline__ void copy_word(u32 to, const u8 *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// Each lane arrives when the words that it requested are there.
static __device__ __forceinline__ void arrive_with_words(u32 full)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full) : "memory");
}

static __device__ __forceinline__ void copy_16(u32 to, const u8 *from) // written by other launches
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
static __device__ __forceinline__ void wait_for_copies() // of this thread
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

static __device__ __forceinline__ void wait_before_next() // wait_for_inputs, but no later kernel may start
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
static __device__ __forceinline__ void let_next_begin()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
#endif
