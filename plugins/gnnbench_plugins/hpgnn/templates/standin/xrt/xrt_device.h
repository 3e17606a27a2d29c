// Replaces XRT's xrt_device.h in the C simulation, as far as the generated host program uses it.
#ifndef STANDIN_XRT_DEVICE_H
#define STANDIN_XRT_DEVICE_H

#include <string>

namespace xrt {

class uuid {};

class device {
  public:
    explicit device(unsigned) {}
    uuid load_xclbin(const std::string &) { return {}; }
};

}  // namespace xrt

#endif
