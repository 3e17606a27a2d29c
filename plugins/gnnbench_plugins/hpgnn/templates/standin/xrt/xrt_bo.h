// Replaces XRT's xrt_bo.h in the C simulation: copies of a buffer share its memory.
#ifndef STANDIN_XRT_BO_H
#define STANDIN_XRT_BO_H

#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "xrt_device.h"

enum xclBOSyncDirection { XCL_BO_SYNC_BO_TO_DEVICE, XCL_BO_SYNC_BO_FROM_DEVICE };

namespace xrt {

class bo {
  public:
    bo() = default;
    bo(const device &, size_t bytes, int) : memory_(std::make_shared<std::vector<char>>(bytes)) {}
    void write(const void *from, size_t bytes, size_t seek) {
        check(bytes, seek);
        if (bytes) std::memcpy(memory_->data() + seek, from, bytes);
    }
    void read(void *to, size_t bytes, size_t skip) {
        check(bytes, skip);
        if (bytes) std::memcpy(to, memory_->data() + skip, bytes);
    }
    void sync(xclBOSyncDirection) {}
    void *address() const { return memory_->data(); }  // only in the stand-in

  private:
    void check(size_t bytes, size_t offset) const {
        if (!memory_ || offset + bytes > memory_->size()) {
            throw std::out_of_range("a buffer is smaller than what is copied");
        }
    }
    std::shared_ptr<std::vector<char>> memory_;
};

}  // namespace xrt

#endif
