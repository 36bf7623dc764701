// image_pass.c - see image_pass.h. Sums are 32 bits, begin at one half and end at weight bits below the
// result, which is clipped.
#include <string.h>
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

// Four lines at a time: VPDPBUSD adds four bytes times four signed ones, here the taps' digits, of which
// there are three. Sums of digits wrap around as those of taps do.
#define SIMD_VNNI TARGET("avx512f,avx512bw,avx512vl,avx512vnni")

struct digit_sums {
    __m512i at[4][3]; // of 16 bytes each, by digit
};

// Lines t to t + 3 of those from `from` on, 64 bytes of each; what is behind the last tap counts as 0.
static inline SIMD_VNNI void add_four(struct digit_sums *s, const uint8_t *const lines[4],
                                      const int8_t *digits, __mmask64 mask)
{
    __m512i a = _mm512_maskz_loadu_epi8(mask, lines[0]), b = _mm512_maskz_loadu_epi8(mask, lines[1]),
            c = _mm512_maskz_loadu_epi8(mask, lines[2]), d = _mm512_maskz_loadu_epi8(mask, lines[3]);
    __m512i ab[2] = { _mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b) },
            cd[2] = { _mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d) };

    for (int j = 0; j < 4; j++) {
        __m512i four =
            j % 2 ? _mm512_unpackhi_epi16(ab[j / 2], cd[j / 2]) : _mm512_unpacklo_epi16(ab[j / 2], cd[j / 2]);
        for (int k = 0; k < 3; k++) {
            int32_t taps;
            memcpy(&taps, digits + 4 * k, 4);
            s->at[j][k] = _mm512_dpbusd_epi32(s->at[j][k], four, _mm512_set1_epi32(taps));
        }
    }
}

static inline SIMD_VNNI __m512i digits_together(const __m512i sums[3])
{
    __m512i high = _mm512_add_epi32(_mm512_slli_epi32(sums[2], 8), sums[1]);
    return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), sums[0]), IMAGE_WEIGHT_BITS);
}

static SIMD_VNNI void pass_vnni(const struct image_weights *w, uint32_t i, const uint8_t *in, size_t n_bytes,
                                uint8_t *out)
{
    const uint32_t n_taps = w->n_taps[i];

    for (size_t x = 0; x < n_bytes; x += 64) {
        __mmask64 mask = n_bytes - x < 64 ? ((__mmask64)1 << (n_bytes - x)) - 1 : ~(__mmask64)0;
        const int8_t *digits = w->digits + (size_t)i * w->n_fours * 12;
        const uint8_t *from = in + w->first[i] * n_bytes + x;
        struct digit_sums s;
        for (int j = 0; j < 4; j++) {
            s.at[j][0] = _mm512_set1_epi32(HALF);
            s.at[j][1] = s.at[j][2] = _mm512_setzero_si512();
        }
        for (uint32_t t = 0; t < n_taps; t += 4, digits += 12) {
            const uint8_t *lines[4];
            for (uint32_t k = 0; k < 4; k++)
                lines[k] = from + (t + k < n_taps ? t + k : t) * n_bytes;
            add_four(&s, lines, digits, mask);
        }
        __m512i low = _mm512_packs_epi32(digits_together(s.at[0]), digits_together(s.at[1])),
                high = _mm512_packs_epi32(digits_together(s.at[2]), digits_together(s.at[3]));
        _mm512_mask_storeu_epi8(out + x, mask, _mm512_packus_epi16(low, high));
    }
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
    if ((features & (CPU_AVX512 | CPU_AVX512_VNNI)) == (CPU_AVX512 | CPU_AVX512_VNNI))
        return pass_vnni;
    if (features & CPU_AVX2)
        return pass_avx2;
#elif defined(CPU_ARM)
    if (features & CPU_NEON)
        return pass_neon;
#endif
    (void)features;
    return pass_plain;
}
