// wgmma.cuh - Hopper's products of 64 weight rows by 8 to 256 rows of activations, and the copies that feed
// them.
//
// Sums stay in registers: d[n][0..3] of a lane (g = lane / 4, t = lane % 4) are of weight rows g (0, 1) and g
// + 8 (2, 3) of its warp's 16 and of activations 8 n + 2 t (0, 2) and the next (1, 3). Operands in shared
// memory are tiles of 128-byte rows (64 columns), 16-byte words swizzled within 8 rows; weights may be in
// registers instead.
#pragma once
#include "gemm/cuda/pipeline.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

static __device__ __forceinline__ u64 tile_descriptor(u32 at) // groups of 8 rows are 1024 bytes apart
{
    return 0x4000004000010000ull | (at & 0x3FFFF) >> 4;
}

// Advancing a descriptor by 16 columns of a tile adds this.
enum { NEXT_COLUMNS = 2 };

#define D4(i)   "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define D8(i)   D4(i), D4(i + 1)
#define D16(i)  D8(i), D8(i + 2)
#define D32(i)  D16(i), D16(i + 4)
#define D64(i)  D32(i), D32(i + 8)
#define D128(i) D64(i), D64(i + 16)
#define N4      "%0,%1,%2,%3"
#define N8      N4 ",%4,%5,%6,%7"
#define T10(n)  ",%" #n "0,%" #n "1,%" #n "2,%" #n "3,%" #n "4,%" #n "5,%" #n "6,%" #n "7,%" #n "8,%" #n "9"
#define N16     N8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define N32     N8 ",%8,%9" T10(1) T10(2) ",%30,%31"
#define N64     N8 ",%8,%9" T10(1) T10(2) T10(3) T10(4) T10(5) ",%60,%61,%62,%63"
#define N128                                                                           \
    N8 ",%8,%9" T10(1) T10(2) T10(3) T10(4) T10(5) T10(6) T10(7) T10(8) T10(9) T10(10) \
        T10(11) ",%120,%121,%122,%123,%124,%125,%126,%127"

// Both operands in shared memory: sums, their register names, and the indices of the two descriptors.
#define WGMMA_SHARED(rows, sums, names, D, a, b)                                                     \
    static __device__ __forceinline__ void wgmma(f32(&d)[sums][4], u64 weights, u64 activations)     \
    {                                                                                                \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #rows "k16.f32.bf16.bf16 {" names "}, %" #a \
                     ", %" #b ", 1, 1, 1, 0, 0;"                                                     \
                     : D(0)                                                                          \
                     : "l"(weights), "l"(activations));                                              \
    }
WGMMA_SHARED(8, 1, N4, D4, 4, 5)
WGMMA_SHARED(16, 2, N8, D8, 8, 9)
WGMMA_SHARED(32, 4, N16, D16, 16, 17)
WGMMA_SHARED(64, 8, N32, D32, 32, 33)
WGMMA_SHARED(128, 16, N64, D64, 64, 65)
WGMMA_SHARED(256, 32, N128, D128, 128, 129)

// The same with 64 rows of activations first and this number of weight rows second. more: adds to the sums;
// else they start from zero.
#define WGMMA_ROWS(weights, sums, names, D, a, b, c)                                                    \
    static __device__ __forceinline__ void wgmma(f32(&d)[sums][4], u64 rows, u64 of_weights, u32 more)  \
    {                                                                                                   \
        asm volatile("{\n\t.reg .pred more;\n\tsetp.ne.b32 more, %" #c ", 0;\n\t"                       \
                     "wgmma.mma_async.sync.aligned.m64n" #weights "k16.f32.bf16.bf16 {" names "}, %" #a \
                     ", %" #b ", more, 1, 1, 0, 0;\n\t}"                                                \
                     : D(0)                                                                             \
                     : "l"(rows), "l"(of_weights), "r"(more));                                          \
    }
#define N80    N8 ",%8,%9" T10(1) T10(2) T10(3) T10(4) T10(5) T10(6) T10(7)
#define N48    N8 ",%8,%9" T10(1) T10(2) T10(3) ",%40,%41,%42,%43,%44,%45,%46,%47"
#define D48(i) D32(i), D16(i + 8)
#define D80(i) D64(i), D16(i + 16)
#define D84(i) D80(i), D4(i + 20)
#define D88(i) D80(i), D8(i + 20)
#define D96(i) D64(i), D32(i + 16)
WGMMA_ROWS(64, 8, N32, D32, 32, 33, 34)
WGMMA_ROWS(96, 12, N48, D48, 48, 49, 50)
WGMMA_ROWS(128, 16, N64, D64, 64, 65, 66)
WGMMA_ROWS(168, 21, N80 ",%80,%81,%82,%83", D84, 84, 85, 86)
WGMMA_ROWS(176, 22, N80 ",%80,%81,%82,%83,%84,%85,%86,%87", D88, 88, 89, 90)
WGMMA_ROWS(192, 24, N80 T10(8) ",%90,%91,%92,%93,%94,%95", D96, 96, 97, 98)

// Of int8: 64 rows of activations by 128 weight rows, 32 columns, which are as many bytes as 16 of bf16.
#define I4(i)  "+r"(d[i][0]), "+r"(d[i][1]), "+r"(d[i][2]), "+r"(d[i][3])
#define I16(i) I4(i), I4(i + 1), I4(i + 2), I4(i + 3)
static __device__ __forceinline__ void wgmma(i32 (&d)[16][4], u64 rows, u64 of_weights, u32 more)
{
    asm volatile("{\n\t.reg .pred more;\n\tsetp.ne.b32 more, %66, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {" N64 "}, %64, %65, more;\n\t}"
                 : I16(0), I16(4), I16(8), I16(12)
                 : "l"(rows), "l"(of_weights), "r"(more));
}

// Weights in registers.
#define WGMMA_REGISTERS(rows, sums, names, D, a, b, c, e, f)                                          \
    static __device__ __forceinline__ void wgmma(f32(&d)[sums][4], const u32(&w)[4], u64 activations) \
    {                                                                                                 \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #rows "k16.f32.bf16.bf16 {" names "}, {%" #a \
                     ",%" #b ",%" #c ",%" #e "}, %" #f ", 1, 1, 1, 0;"                                \
                     : D(0)                                                                           \
                     : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(activations));                 \
    }
#define N72    N8 ",%8,%9" T10(1) T10(2) T10(3) T10(4) T10(5) T10(6) ",%70,%71"
#define D72(i) D64(i), D8(i + 16)
WGMMA_REGISTERS(32, 4, N16, D16, 16, 17, 18, 19, 20)
WGMMA_REGISTERS(64, 8, N32, D32, 32, 33, 34, 35, 36)
WGMMA_REGISTERS(96, 12, N48, D48, 48, 49, 50, 51, 52)
WGMMA_REGISTERS(128, 16, N64, D64, 64, 65, 66, 67, 68)
WGMMA_REGISTERS(144, 18, N72, D72, 72, 73, 74, 75, 76)
WGMMA_REGISTERS(160, 20, N80, D80, 80, 81, 82, 83, 84)
WGMMA_REGISTERS(256, 32, N128, D128, 128, 129, 130, 131, 132)

static __device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Fences all fragments before the first product: an instruction that computes one between two products makes
// these wait for each other.
#define A4(i) "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])
static __device__ __forceinline__ void wgmma_fence(u32 (&a)[4][4])
{
    asm volatile("wgmma.fence.sync.aligned;" : A4(0), A4(1), A4(2), A4(3)::"memory");
}
static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Commits a group of products and waits for the group before.
static __device__ __forceinline__ void wgmma_order()
{
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
}
// Waits for all groups but the last.
static __device__ __forceinline__ void wgmma_wait_before()
{
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}
static __device__ __forceinline__ void wgmma_finish()
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// What products read or add to is complete before the first, and what comes after waits for the last.
template <u32 N> static __device__ __forceinline__ void settle(f32 (&d)[N][4])
{
#pragma unroll
    for (u32 i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}
template <u32 N> static __device__ __forceinline__ void settle(u32 (&a)[N][4])
{
#pragma unroll
    for (u32 i = 0; i < N; i++)
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

// An address in the shared memory of another block of the cluster.
static __device__ __forceinline__ u32 place_in(u32 rank, u32 at)
{
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    return there;
}
static __device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}
// Stores into the shared memory of another block of the cluster, and tells its barrier the bytes.
static __device__ __forceinline__ void store_there(u32 to, float4 v, u32 full)
{
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::
            "r"(to),
        "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(full)
        : "memory");
}
static __device__ __forceinline__ void store_shared(u32 to, float4 v)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
}
static __device__ __forceinline__ float4 load_shared(u32 at)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}
// No "memory" clobber: with it this would become a barrier for all memory.
static __device__ __forceinline__ void leave_stage_of(u32 empty)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(empty) : "memory");
}
static __device__ __forceinline__ void bulk_copy(u32 to, const u8 *from, u32 bytes, u32 full)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(full)
        : "memory");
}

// Copies the box of a five-dimensional view that begins at column x, pair 0, row 0 of a pair, eight y of z.
static __device__ __forceinline__ void box_copy(u32 to, const void *view, u32 full, const u32 (&at)[3],
                                                u64 policy)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
                 "hint [%0], "
                 "[%1, {%3, %4, %4, %5, %6}], [%2], %7;" ::"r"(to),
                 "l"(view), "r"(full), "r"(at[0]), "r"(0), "r"(at[1]), "r"(at[2]), "l"(policy)
                 : "memory");
}

// The same, multicast to the same place in the blocks of the mask; each one's barrier gets the bytes.
static __device__ __forceinline__ void box_copy_to_all(u32 to, const void *view, u32 full, const u32 (&at)[3],
                                                       u16 blocks, u64 policy)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast:"
                 ":cluster.L2::cache_hint "
                 "[%0], [%1, {%3, %4, %4, %5, %6}], [%2], %7, %8;" ::"r"(to),
                 "l"(view), "r"(full), "r"(at[0]), "r"(0), "r"(at[1]), "r"(at[2]), "h"(blocks), "l"(policy)
                 : "memory");
}

static __device__ __forceinline__ void prefetch_view(const void *view)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(view) : "memory");
}

static __device__ __forceinline__ u64 cache_policy(bool once) // once: the data is not read again
{
    u64 policy;

    if (once)
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    else
        asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// A ring of stages in shared memory, of which one thread keeps as many full as are free. K: n_stages,
// stage_bytes.
template <class K> struct pipe {
    u32 full, empty, data; // in shared memory
    u32 at, phase;

    __device__ __forceinline__ void next()
    {
        if (++at == K::n_stages) {
            at = 0;
            phase ^= 1;
        }
    }
    __device__ __forceinline__ void skip(u32 n)
    {
        phase ^= (at + n) / K::n_stages % 2;
        at = (at + n) % K::n_stages;
    }
    __device__ __forceinline__ u32 stage() const
    {
        return data + at * K::stage_bytes;
    }
};
#endif
