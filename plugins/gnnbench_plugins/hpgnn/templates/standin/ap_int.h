// Replaces Vitis HLS's ap_int.h in the C simulation, as far as the generated kernels use it.
#ifndef STANDIN_AP_INT_H
#define STANDIN_AP_INT_H

#include <cstdint>

// An unsigned number of W bits, at most 32.
template <int W>
class ap_uint {
    static_assert(0 < W && W <= 32, "the stand-in has 1 to 32 bits");

  public:
    ap_uint() = default;
    ap_uint(uint32_t value) : value_(value & (~uint32_t(0) >> (32 - W))) {}
    operator uint32_t() const { return value_; }

  private:
    uint32_t value_ = 0;
};

#endif
