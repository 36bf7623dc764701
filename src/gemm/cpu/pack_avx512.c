// pack_avx512.c - packing of panels for AVX-512; see panel_pack.h.
#include "gemm/cpu/product.h"
#if defined(CPU_X86)
#include <immintrin.h>

#define SIMD       TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define INLINE     static inline __attribute__((always_inline)) SIMD
#define PACK       pack_avx512
#define low_words  _mm512_unpacklo_epi32
#define high_words _mm512_unpackhi_epi32
#define low_pairs  _mm512_unpacklo_epi64
#define high_pairs _mm512_unpackhi_epi64
enum { QUADS = 4 };
typedef __m512i quads;

INLINE __m128i quad(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE quads load_quads(const unsigned char *const *rows, uint32_t offset)
{
    quads v = _mm512_castsi128_si512(quad(rows[0] + offset));
    v = _mm512_inserti32x4(v, quad(rows[4] + offset), 1);
    v = _mm512_inserti32x4(v, quad(rows[8] + offset), 2);
    return _mm512_inserti32x4(v, quad(rows[12] + offset), 3);
}

INLINE void store_quads(uint32_t *to, quads v)
{
    _mm512_storeu_si512(to, v);
}
#include "gemm/cpu/panel_pack.h"
#endif
