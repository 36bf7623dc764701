// pack_neon.c - packing of panels for NEON; see panel_pack.h.
#include "gemm/cpu/product.h"
#if defined(CPU_ARM)
#include <arm_neon.h>

#define SIMD
#define INLINE     static inline __attribute__((always_inline))
#define PACK       pack_neon
#define low_words  vzip1q_u32
#define high_words vzip2q_u32
enum { QUADS = 1 };
typedef uint32x4_t quads;

INLINE quads low_pairs(quads a, quads b)
{
    return vreinterpretq_u32_u64(vzip1q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}

INLINE quads high_pairs(quads a, quads b)
{
    return vreinterpretq_u32_u64(vzip2q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}

INLINE quads load_quads(const unsigned char *const *rows, uint32_t offset)
{
    return vreinterpretq_u32_u8(vld1q_u8(rows[0] + offset));
}

INLINE void store_quads(uint32_t *to, quads v)
{
    vst1q_u32(to, v);
}
#include "gemm/cpu/panel_pack.h"
#endif
