// trellis_avx512.c - the kernels of trellis for AVX-512; see trellis_vec.h.
#include "device/cpu/cpu.h"
#if defined(CPU_X86)
#define VEC_BF16 0
#include "device/cpu/vec_avx512.h"
#include "ops/trellis/trellis_kernels.h"

enum { VT = 2 };

struct trellis_group;
VEC_INLINE __m512i load_states(const struct trellis_group *p, const uint8_t *at, uint32_t next);
VEC_INLINE vf values(__m512i states, enum exl3_codebook codebook);

VEC_INLINE vf load_four(const float *x)
{
    return _mm512_broadcast_f32x4(_mm_loadu_ps(x));
}
VEC_INLINE vf multiply_add(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
#include "ops/trellis/trellis_vec.h"

VEC_INLINE __m256i load_twice(const uint8_t *at)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)at));
}

VEC_INLINE __m512i load_states(const struct trellis_group *p, const uint8_t *at, uint32_t next)
{
    __m512i bytes = _mm512_inserti64x4(_mm512_castsi256_si512(load_twice(at)), load_twice(at + next), 1),
            fours = _mm512_shuffle_epi8(bytes, _mm512_load_si512(p->bytes)),
            low = _mm512_srlv_epi32(fours, _mm512_load_si512(p->shifts));

    return _mm512_and_si512(low, _mm512_set1_epi32(0xffff));
}

VEC_INLINE vf rounded(vf v)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

VEC_INLINE __m512i times(__m512i states, uint32_t factor)
{
    return _mm512_mullo_epi32(states, _mm512_set1_epi32((int32_t)factor));
}

// A half from 2^-3 to 2 in the upper 16 bits, as a float.
VEC_INLINE vf upper_half(__m512i x)
{
    const __m512i sign = _mm512_set1_epi32((int32_t)0x80000000u), rest = _mm512_set1_epi32(0x7fff0000);
    __m512i size =
        _mm512_add_epi32(_mm512_srli_epi32(_mm512_and_si512(x, rest), 3), _mm512_set1_epi32(112 << 23));

    return _mm512_castsi512_ps(_mm512_or_si512(size, _mm512_and_si512(x, sign)));
}

VEC_INLINE vf sums_of_halves(__m512i x)
{
    x = _mm512_xor_si512(_mm512_and_si512(x, _mm512_set1_epi32((int32_t)0x8fff8fffu)),
                         _mm512_set1_epi32(0x3b603b60));
    return rounded(_mm512_add_ps(upper_half(_mm512_slli_epi32(x, 16)), upper_half(x)));
}

VEC_INLINE vf values(__m512i states, enum exl3_codebook codebook)
{
    if (codebook == EXL3_MUL1) {
        __m512i pairs = _mm512_maddubs_epi16(times(states, EXL3_MARK_MUL1), _mm512_set1_epi8(1)),
                sums = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
        vf number = _mm512_cvtepi32_ps(_mm512_add_epi32(sums, _mm512_set1_epi32(1024)));
        return rounded(_mm512_fmadd_ps(number, _mm512_set1_ps(0x1.bb8p-8f), _mm512_set1_ps(-0x1.4c4p3f)));
    }
    return codebook == EXL3_MCG
               ? sums_of_halves(times(states, EXL3_MARK_MCG))
               : sums_of_halves(_mm512_add_epi32(times(states, 89226354u), _mm512_set1_epi32(64248484)));
}

const struct trellis_kernels trellis_avx512 = { decode_column, add_column };
#endif
