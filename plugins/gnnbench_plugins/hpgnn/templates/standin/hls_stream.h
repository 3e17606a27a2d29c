// Replaces Vitis HLS's hls_stream.h in the C simulation: a queue of any length. Processes of a
// dataflow region run in sequence; reading an empty stream is an error.
#ifndef STANDIN_HLS_STREAM_H
#define STANDIN_HLS_STREAM_H

#include <exception>
#include <queue>
#include <stdexcept>

namespace hls {

template <typename T>
class stream {
  public:
    stream() = default;
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;
    ~stream() noexcept(false) {
        // Values were left unread: on the board their writer would wait forever.
        if (!values_.empty() && !std::uncaught_exceptions()) {
            throw std::logic_error("a stream is left with values in it");
        }
    }

    void write(const T &value) { values_.push(value); }
    T read() {
        if (values_.empty()) throw std::logic_error("a stream is read that has no value");
        const T value = values_.front();
        values_.pop();
        return value;
    }

  private:
    std::queue<T> values_;
};

}  // namespace hls

#endif
