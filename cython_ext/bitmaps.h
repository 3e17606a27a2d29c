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

static void list_bits_baseline(const uint64_t *words, int64_t n, int32_t *out) {
    for (int64_t k = 0; k < n; k++)
        for (uint64_t w = words[k]; w; w &= w - 1)
            *out++ = (int32_t) (k * WORD_BITS) + lowest_bit(w);
}

#ifdef X86
/* Writes up to SLACK values past the last. */
FOR_AVX512 static void list_bits_avx512(const uint64_t *words, int64_t n, int32_t *out) {
    const __m512i lanes =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int64_t k = 0; k < n; k++) {
        if (!words[k]) continue;
        for (int part = 0; part < WORD_BITS; part += 16) {
            const __mmask16 some = (__mmask16) (words[k] >> part);
            const __m512i ids =
                _mm512_add_epi32(lanes, _mm512_set1_epi32((int32_t) (k * WORD_BITS) + part));
            _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(some, ids));
            out += __builtin_popcount(some);
        }
    }
}
#endif

/* The ids of a bitmap; the output has room for SLACK more than there are. */
static void list_bits(const uint64_t *words, int64_t n, int32_t *out, int level) {
#ifdef X86
    if (level == AVX512) {
        list_bits_avx512(words, n, out);
        return;
    }
#endif
    (void) level;
    list_bits_baseline(words, n, out);
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
