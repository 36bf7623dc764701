// image_pass.c - see image_pass.h. Sums are 32 bits, begin at one half and end at weight bits below the
// result, which is clipped.
#include "device/cpu/cpu.h"
#include "image/image_pass.h"
#if defined(CPU_X86)
#include <immintrin.h>
#elif defined(CPU_ARM)
#include <arm_neon.h>
#endif

enum { HALF = 1 << (IMAGE_WEIGHT_BITS - 1) };

static inline uint8_t clipped(int32_t sum)
{
    int32_t v = sum >> IMAGE_WEIGHT_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void pass_from(const struct image_weights *w, uint32_t i, const uint8_t *in, size_t n_bytes,
                      uint8_t *out, size_t from)
{
    const int32_t *taps = w->taps + (size_t)i * w->stride;

    for (size_t x = from; x < n_bytes; x++) {
        const uint8_t *p = in + w->first[i] * n_bytes + x;
        int32_t sum = HALF;
        for (uint32_t t = 0; t < w->n_taps[i]; t++, p += n_bytes)
            sum += *p * taps[t];
        out[x] = clipped(sum);
    }
}

static void pass_plain(const struct image_weights *w, uint32_t i, const uint8_t *in, size_t n_bytes,
                       uint8_t *out)
{
    pass_from(w, i, in, n_bytes, out, 0);
}

#if defined(CPU_X86)
#define SIMD TARGET("avx2")

static inline SIMD __m256i eight(const uint8_t *p) // 8 bytes to 32 bits each
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

static SIMD void pass_avx2(const struct image_weights *w, uint32_t i, const uint8_t *in, size_t n_bytes,
                           uint8_t *out)
{
    const int32_t *taps = w->taps + (size_t)i * w->stride;
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); // packing works on 128-bit halves
    size_t x = 0;

    for (; x + 32 <= n_bytes; x += 32) {
        const uint8_t *p = in + w->first[i] * n_bytes + x;
        __m256i sums[4];
        for (int j = 0; j < 4; j++)
            sums[j] = _mm256_set1_epi32(HALF);
        for (uint32_t t = 0; t < w->n_taps[i]; t++, p += n_bytes) {
            __m256i tap = _mm256_set1_epi32(taps[t]);
            for (int j = 0; j < 4; j++)
                sums[j] = _mm256_add_epi32(sums[j], _mm256_mullo_epi32(eight(p + 8 * j), tap));
        }
        for (int j = 0; j < 4; j++)
            sums[j] = _mm256_srai_epi32(sums[j], IMAGE_WEIGHT_BITS);
        __m256i bytes =
            _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]), _mm256_packs_epi32(sums[2], sums[3]));
        _mm256_storeu_si256((__m256i *)(out + x), _mm256_permutevar8x32_epi32(bytes, order));
    }
    pass_from(w, i, in, n_bytes, out, x);
}
#elif defined(CPU_ARM)
static void pass_neon(const struct image_weights *w, uint32_t i, const uint8_t *in, size_t n_bytes,
                      uint8_t *out)
{
    const int32_t *taps = w->taps + (size_t)i * w->stride;
    size_t x = 0;

    for (; x + 8 <= n_bytes; x += 8) {
        const uint8_t *p = in + w->first[i] * n_bytes + x;
        int32x4_t low = vdupq_n_s32(HALF), high = low;
        for (uint32_t t = 0; t < w->n_taps[i]; t++, p += n_bytes) {
            int16x8_t eight = vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p)));
            low = vmlaq_n_s32(low, vmovl_s16(vget_low_s16(eight)), taps[t]);
            high = vmlaq_n_s32(high, vmovl_s16(vget_high_s16(eight)), taps[t]);
        }
        int16x4_t left = vqmovn_s32(vshrq_n_s32(low, IMAGE_WEIGHT_BITS)),
                  right = vqmovn_s32(vshrq_n_s32(high, IMAGE_WEIGHT_BITS));
        vst1_u8(out + x, vqmovun_s16(vcombine_s16(left, right)));
    }
    pass_from(w, i, in, n_bytes, out, x);
}
#endif

image_pass *image_pass_choose(uint32_t features)
{
#if defined(CPU_X86)
    if (features & CPU_AVX2)
        return pass_avx2;
#elif defined(CPU_ARM)
    if (features & CPU_NEON)
        return pass_neon;
#endif
    (void)features;
    return pass_plain;
}
