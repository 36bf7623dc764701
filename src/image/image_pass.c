// image_pass.c - see image_pass.h. Sums are 32 bits, begin at one half and end at weight bits below the result, which is clipped.
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

static void across_plain(const struct image_weights *w, const uint8_t *in, uint32_t n_in, uint8_t *out, uint8_t *wide)
{
    (void)n_in, (void)wide;
    for (uint32_t x = 0; x < w->n_out; x++) {
        const int32_t *taps = w->taps + (size_t)x * w->stride;
        const uint8_t *p = in + (size_t)w->first[x] * 3;
        int32_t sums[3] = { HALF, HALF, HALF };
        for (uint32_t i = 0; i < w->n_taps[x]; i++, p += 3)
            for (int c = 0; c < 3; c++)
                sums[c] += p[c] * taps[i];
        for (int c = 0; c < 3; c++)
            *out++ = clipped(sums[c]);
    }
}

static void down_from(const struct image_weights *w, uint32_t y, const uint8_t *in, size_t n_bytes, uint8_t *out, size_t from)
{
    const int32_t *taps = w->taps + (size_t)y * w->stride;

    for (size_t x = from; x < n_bytes; x++) {
        const uint8_t *p = in + w->first[y] * n_bytes + x;
        int32_t sum = HALF;
        for (uint32_t i = 0; i < w->n_taps[y]; i++, p += n_bytes)
            sum += *p * taps[i];
        out[x] = clipped(sum);
    }
}

static void down_plain(const struct image_weights *w, uint32_t y, const uint8_t *in, size_t n_bytes, uint8_t *out)
{
    down_from(w, y, in, n_bytes, out, 0);
}

static const struct image_pass plain = { "plain", across_plain, down_plain };

#if defined(CPU_X86) || defined(CPU_ARM)
// A pixel in 4 bytes, so that two neighbours are one load of 8; the last pixel has a neighbour that weighs nothing.
static void widen(const uint8_t *in, uint32_t n, uint8_t *wide)
{
    for (uint32_t x = 0; x < n; x++, in += 3, wide += 4) {
        wide[0] = in[0];
        wide[1] = in[1];
        wide[2] = in[2];
        wide[3] = 0;
    }
    memset(wide, 0, 4);
}
#endif

#if defined(CPU_X86)
#define SIMD TARGET("avx2")

static inline SIMD __m256i eight(const uint8_t *p) // 8 bytes to 32 bits each
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

static SIMD void across_avx2(const struct image_weights *w, const uint8_t *in, uint32_t n_in, uint8_t *out, uint8_t *wide)
{
    const __m256i lanes = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);

    widen(in, n_in, wide);
    for (uint32_t x = 0; x < w->n_out; x++, out += 3) {
        const int32_t *taps = w->taps + (size_t)x * w->stride;
        const uint8_t *p = wide + (size_t)w->first[x] * 4;
        __m256i sums = _mm256_setzero_si256();
        for (uint32_t i = 0; i < w->n_taps[x]; i += 2, p += 8) {
            __m256i pair = _mm256_castsi128_si256(_mm_loadl_epi64((const __m128i *)(taps + i)));
            sums = _mm256_add_epi32(sums, _mm256_mullo_epi32(eight(p), _mm256_permutevar8x32_epi32(pair, lanes)));
        }
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(HALF)), IMAGE_WEIGHT_BITS);
        sum = _mm_packs_epi32(sum, sum);
        uint32_t rgb = (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        out[0] = (uint8_t)rgb;
        out[1] = (uint8_t)(rgb >> 8);
        out[2] = (uint8_t)(rgb >> 16);
    }
}

static SIMD void down_avx2(const struct image_weights *w, uint32_t y, const uint8_t *in, size_t n_bytes, uint8_t *out)
{
    const int32_t *taps = w->taps + (size_t)y * w->stride;
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); // packing goes by halves
    size_t x = 0;

    for (; x + 32 <= n_bytes; x += 32) {
        const uint8_t *p = in + w->first[y] * n_bytes + x;
        __m256i sums[4];
        for (int j = 0; j < 4; j++)
            sums[j] = _mm256_set1_epi32(HALF);
        for (uint32_t i = 0; i < w->n_taps[y]; i++, p += n_bytes) {
            __m256i tap = _mm256_set1_epi32(taps[i]);
            for (int j = 0; j < 4; j++)
                sums[j] = _mm256_add_epi32(sums[j], _mm256_mullo_epi32(eight(p + 8 * j), tap));
        }
        for (int j = 0; j < 4; j++)
            sums[j] = _mm256_srai_epi32(sums[j], IMAGE_WEIGHT_BITS);
        __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]), _mm256_packs_epi32(sums[2], sums[3]));
        _mm256_storeu_si256((__m256i *)(out + x), _mm256_permutevar8x32_epi32(bytes, order));
    }
    down_from(w, y, in, n_bytes, out, x);
}

static const struct image_pass fast = { "AVX2", across_avx2, down_avx2 };
enum { FAST_NEEDS = CPU_AVX2 };
#elif defined(CPU_ARM)

static void across_neon(const struct image_weights *w, const uint8_t *in, uint32_t n_in, uint8_t *out, uint8_t *wide)
{
    widen(in, n_in, wide);
    for (uint32_t x = 0; x < w->n_out; x++, out += 3) {
        const int32_t *taps = w->taps + (size_t)x * w->stride;
        const uint8_t *p = wide + (size_t)w->first[x] * 4;
        int32x4_t even = vdupq_n_s32(HALF), odd = vdupq_n_s32(0);
        for (uint32_t i = 0; i < w->n_taps[x]; i += 2, p += 8) {
            int16x8_t two = vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p)));
            even = vmlaq_n_s32(even, vmovl_s16(vget_low_s16(two)), taps[i]);
            odd = vmlaq_n_s32(odd, vmovl_s16(vget_high_s16(two)), taps[i + 1]);
        }
        int16x4_t sum = vqmovn_s32(vshrq_n_s32(vaddq_s32(even, odd), IMAGE_WEIGHT_BITS));
        uint8x8_t bytes = vqmovun_s16(vcombine_s16(sum, sum));
        out[0] = vget_lane_u8(bytes, 0);
        out[1] = vget_lane_u8(bytes, 1);
        out[2] = vget_lane_u8(bytes, 2);
    }
}

static void down_neon(const struct image_weights *w, uint32_t y, const uint8_t *in, size_t n_bytes, uint8_t *out)
{
    const int32_t *taps = w->taps + (size_t)y * w->stride;
    size_t x = 0;

    for (; x + 8 <= n_bytes; x += 8) {
        const uint8_t *p = in + w->first[y] * n_bytes + x;
        int32x4_t low = vdupq_n_s32(HALF), high = low;
        for (uint32_t i = 0; i < w->n_taps[y]; i++, p += n_bytes) {
            int16x8_t eight = vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p)));
            low = vmlaq_n_s32(low, vmovl_s16(vget_low_s16(eight)), taps[i]);
            high = vmlaq_n_s32(high, vmovl_s16(vget_high_s16(eight)), taps[i]);
        }
        int16x8_t sums =
            vcombine_s16(vqmovn_s32(vshrq_n_s32(low, IMAGE_WEIGHT_BITS)), vqmovn_s32(vshrq_n_s32(high, IMAGE_WEIGHT_BITS)));
        vst1_u8(out + x, vqmovun_s16(sums));
    }
    down_from(w, y, in, n_bytes, out, x);
}

static const struct image_pass fast = { "NEON", across_neon, down_neon };
enum { FAST_NEEDS = CPU_NEON };
#endif

const struct image_pass *image_pass_choose(uint32_t features)
{
#if defined(CPU_X86) || defined(CPU_ARM)
    if (features & FAST_NEEDS)
        return &fast;
#endif
    (void)features;
    return &plain;
}
