/* Sets as bitmaps, of 64-bit words: what sets.pyx and movement.pyx share. */
#ifndef GNNBENCH_BITMAPS_H
#define GNNBENCH_BITMAPS_H

#include "bits.h"

enum { SLACK = 16 };

INLINE uint64_t bit(int64_t id) { return 1ULL << (id % WORD_BITS); }

#define DEFINE_COUNT(name, attribute, COUNT)                                                      \
    attribute static int64_t name(const uint64_t *a, const uint64_t *b, int64_t words) {          \
        int64_t sum = 0;                                                                          \
        for (int64_t k = 0; k < words; k++) sum += COUNT(a[k] & b[k]);                            \
        return sum;                                                                               \
    }
DEFINE_COUNT(count_common_baseline, , count_bits)

#ifdef X86
DEFINE_COUNT(count_common_avx2, FOR_AVX2, __builtin_popcountll)
DEFINE_COUNT(count_common_avx512, FOR_AVX512, __builtin_popcountll)
#endif

/* How many bits two bitmaps have in common. */
static int64_t count_common(const uint64_t *a, const uint64_t *b, int64_t words, int level) {
#ifdef X86
    if (level == AVX512) return count_common_avx512(a, b, words);
    if (level == AVX2) return count_common_avx2(a, b, words);
#endif
    (void) level;
    return count_common_baseline(a, b, words);
}

/* ------------------------------------------------------------------ lists of bits */

/* The ids that two bitmaps have in common; the output has room for SLACK more than there are. */
#define DEFINE_LIST(name, Id)                                                                     \
    static void name(const uint64_t *a, const uint64_t *b, int64_t words, Id *out) {              \
        for (int64_t k = 0; k < words; k++)                                                       \
            for (uint64_t w = a[k] & b[k]; w; w &= w - 1)                                         \
                *out++ = (Id) (k * WORD_BITS) + lowest_bit(w);                                    \
    }
DEFINE_LIST(list_narrow_baseline, int32_t)

#ifdef X86
#define FOR_VBMI2                                                                                 \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi2,avx512vpopcntdq,popcnt")))

/* A word's bits are the bytes 0 to 63 that it chooses, packed; these are widened, LANES at a time.
 * Eight words without a bit are passed over at once. */
#define DEFINE_LIST_VBMI2(name, Id, LANES, BASE, ADD, WIDEN)                                      \
    FOR_VBMI2 static void name(const uint64_t *a, const uint64_t *b, int64_t words, Id *out) {    \
        uint8_t bytes[WORD_BITS], chosen[WORD_BITS];                                              \
        for (int i = 0; i < WORD_BITS; i++) bytes[i] = (uint8_t) i;                               \
        const __m512i every = _mm512_loadu_si512(bytes);                                          \
        for (int64_t k = 0; k < words; k += 8) {                                                  \
            const __mmask8 there = (__mmask8) (words - k < 8 ? (1 << (words - k)) - 1 : 0xFF);    \
            uint32_t some = _mm512_test_epi64_mask(_mm512_maskz_loadu_epi64(there, a + k),        \
                                                   _mm512_maskz_loadu_epi64(there, b + k));       \
            for (; some; some &= some - 1) {                                                      \
                const int64_t word = k + lowest_bit(some);                                        \
                const uint64_t w = a[word] & b[word];                                             \
                const int count = __builtin_popcountll(w);                                        \
                const __m512i base = BASE((Id) (word * WORD_BITS));                               \
                _mm512_storeu_si512(chosen, _mm512_maskz_compress_epi8(w, every));                \
                for (int i = 0; i < count; i += LANES)                                            \
                    _mm512_storeu_si512(out + i, ADD(base, WIDEN(chosen + i)));                   \
                out += count;                                                                     \
            }                                                                                     \
        }                                                                                         \
    }
#define WIDEN_16(from) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) (from)))
DEFINE_LIST_VBMI2(list_narrow_vbmi2, int32_t, 16, _mm512_set1_epi32, _mm512_add_epi32, WIDEN_16)
/* Whether a processor of this level packs bytes. */
INLINE int packs_bytes(int level) {
    return level == AVX512 && __builtin_cpu_supports("avx512vbmi2");
}
#endif

/* The ids of a bitmap; the output has room for SLACK more than there are. */
static void list_bits(const uint64_t *words, int64_t n, int32_t *out, int level) {
#ifdef X86
    if (packs_bytes(level)) {
        list_narrow_vbmi2(words, words, n, out);
        return;
    }
#endif
    (void) level;
    list_narrow_baseline(words, words, n, out);
}

/* Marks wide ids in any order; returns 0 where one is outside the universe. */
static int mark_wide(const int64_t *ids, int64_t n, int64_t universe, uint64_t *words) {
    for (int64_t i = 0; i < n; i++) {
        const uint64_t id = (uint64_t) ids[i];
        if (id >= (uint64_t) universe) return 0;
        words[id / WORD_BITS] |= 1ULL << (id % WORD_BITS);
    }
    return 1;
}

#endif
