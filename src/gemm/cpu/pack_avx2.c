// pack_avx2.c - packing of panels for AVX2; see panel_pack.h.
#include "gemm/cpu/product.h"
#if defined(CPU_X86)
#include <immintrin.h>

#define SIMD       TARGET("avx2,fma,f16c")
#define INLINE     static inline __attribute__((always_inline)) SIMD
#define PACK       pack_avx2
#define low_words  _mm256_unpacklo_epi32
#define high_words _mm256_unpackhi_epi32
#define low_pairs  _mm256_unpacklo_epi64
#define high_pairs _mm256_unpackhi_epi64
enum { QUADS = 2 };
typedef __m256i quads;

INLINE __m128i quad(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE quads load_quads(const unsigned char *const *rows, uint32_t offset)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(quad(rows[0] + offset)), quad(rows[4] + offset), 1);
}

INLINE void store_quads(uint32_t *to, quads v)
{
    _mm256_storeu_si256((__m256i *)to, v);
}
#include "gemm/cpu/panel_pack.h"
#endif
