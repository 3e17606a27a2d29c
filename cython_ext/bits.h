/* Bits of a 64-bit word, counted and found. */
#ifndef GNNBENCH_BITS_H
#define GNNBENCH_BITS_H

#include "rows_simd.h"

enum { WORD_BITS = 64 };

/* By adding neighbouring bits, pairs, fours and all eights. */
INLINE int64_t count_bits(uint64_t w) {
    w -= w >> 1 & 0x5555555555555555ULL;
    w = (w & 0x3333333333333333ULL) + (w >> 2 & 0x3333333333333333ULL);
    return (int64_t) (((w + (w >> 4)) & 0x0F0F0F0F0F0F0F0FULL) * 0x0101010101010101ULL >> 56);
}

INLINE int lowest_bit(uint64_t w) {
#if defined(__GNUC__)
    return __builtin_ctzll(w);
#else
    int at = 0;
    while (!(w >> at & 1)) at++;
    return at;
#endif
}

#endif
