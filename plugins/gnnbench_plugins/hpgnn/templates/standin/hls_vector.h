// Replaces Vitis HLS's hls_vector.h in the C simulation, as far as the generated kernels use it.
#ifndef STANDIN_HLS_VECTOR_H
#define STANDIN_HLS_VECTOR_H

namespace hls {

template <typename T, int N>
class vector {
  public:
    vector() = default;
    explicit vector(T value) {
        for (T &each : values_) each = value;
    }
    T &operator[](int i) { return values_[i]; }
    const T &operator[](int i) const { return values_[i]; }

  private:
    T values_[N];
};

}  // namespace hls

#endif
