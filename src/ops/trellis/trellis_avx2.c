// trellis_avx2.c - the kernels of trellis for AVX2; see trellis_vec.h.
#include "device/cpu/cpu.h"
#if defined(CPU_X86)
#include "device/cpu/vec_avx2.h"
#include "ops/trellis/trellis_kernels.h"

enum { VT = 1 };

struct trellis_group;
VEC_INLINE __m256i load_states(const struct trellis_group *p, const uint8_t *at, uint32_t next);
VEC_INLINE vf values(__m256i states, enum exl3_codebook codebook);

VEC_INLINE vf load_four(const float *x)
{
    return _mm256_broadcast_ps((const __m128 *)(const void *)x);
}
VEC_INLINE vf multiply_add(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
#include "ops/trellis/trellis_vec.h"

VEC_INLINE __m256i load_states(const struct trellis_group *p, const uint8_t *at, uint32_t next)
{
    __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)at)),
            fours = _mm256_shuffle_epi8(bytes, _mm256_load_si256((const __m256i *)(const void *)p->bytes)),
            low = _mm256_srlv_epi32(fours, _mm256_load_si256((const __m256i *)(const void *)p->shifts));

    (void)next;
    return _mm256_and_si256(low, _mm256_set1_epi32(0xffff));
}

VEC_INLINE vf rounded(vf v)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

VEC_INLINE __m256i times(__m256i states, uint32_t factor)
{
    return _mm256_mullo_epi32(states, _mm256_set1_epi32((int32_t)factor));
}

// The sum of each word's halves.
VEC_INLINE vf sums_of_halves(__m256i x)
{
    x = _mm256_xor_si256(_mm256_and_si256(x, _mm256_set1_epi32((int32_t)0x8fff8fffu)),
                         _mm256_set1_epi32(0x3b603b60));
    vf first = _mm256_cvtph_ps(_mm256_castsi256_si128(x)),
       second = _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1));
    __m256d both = _mm256_castps_pd(_mm256_hadd_ps(first, second)); // of words 0 1 4 5 2 3 6 7
    return rounded(_mm256_castpd_ps(_mm256_permute4x64_pd(both, 0xd8)));
}

VEC_INLINE vf values(__m256i states, enum exl3_codebook codebook)
{
    if (codebook == EXL3_MUL1) {
        __m256i pairs = _mm256_maddubs_epi16(times(states, EXL3_MARK_MUL1), _mm256_set1_epi8(1)),
                sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        vf number = _mm256_cvtepi32_ps(_mm256_add_epi32(sums, _mm256_set1_epi32(1024)));
        return rounded(_mm256_fmadd_ps(number, _mm256_set1_ps(0x1.bb8p-8f), _mm256_set1_ps(-0x1.4c4p3f)));
    }
    return codebook == EXL3_MCG
               ? sums_of_halves(times(states, EXL3_MARK_MCG))
               : sums_of_halves(_mm256_add_epi32(times(states, 89226354u), _mm256_set1_epi32(64248484)));
}

const struct trellis_kernels trellis_avx2 = { decode_column, add_column };
#endif
