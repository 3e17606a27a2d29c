/* Which vector instructions the loops of rows, sets and movement may use, chosen at run time. */
#ifndef GNNBENCH_ROWS_SIMD_H
#define GNNBENCH_ROWS_SIMD_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define PREFETCH(address) __builtin_prefetch(address)
#define PREFETCH_TO_WRITE(address) __builtin_prefetch(address, 1)
#else
#define INLINE static inline
#define PREFETCH(address) ((void) 0)
#define PREFETCH_TO_WRITE(address) ((void) 0)
#endif

enum { BASELINE, AVX2, AVX512 };

#if defined(__x86_64__) && defined(__GNUC__)
#define X86
#include <immintrin.h>
#define FOR_AVX2 __attribute__((target("avx2,f16c,popcnt")))
#define FOR_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vpopcntdq,popcnt")))

/* GNNBENCH_SIMD=baseline or avx2 keeps to the older ones. */
static int simd_level(void) {
    const char *newest = getenv("GNNBENCH_SIMD");
    __builtin_cpu_init();
    if (newest && !strcmp(newest, "baseline")) return BASELINE;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) return BASELINE;
    if (newest && !strcmp(newest, "avx2")) return AVX2;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
                   && __builtin_cpu_supports("avx512vpopcntdq")
               ? AVX512
               : AVX2;
}
#else
static int simd_level(void) { return BASELINE; }
#endif

#endif
