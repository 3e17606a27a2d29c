// Replaces XRT's xrt_kernel.h in the C simulation: a launch calls the kernel's C++ function.
#ifndef STANDIN_XRT_KERNEL_H
#define STANDIN_XRT_KERNEL_H

#include <string>
#include <vector>

#include "xrt_bo.h"
#include "xrt_device.h"

namespace standin {

struct Argument {
    Argument(const xrt::bo &buffer) : address(buffer.address()), number(0) {}
    Argument(int value) : address(nullptr), number(value) {}
    void *address;
    int number;
};

// csim.cpp
void launch(const std::string &compute_unit, const std::vector<Argument> &arguments);

}  // namespace standin

namespace xrt {

class run {
  public:
    void wait() {}
};

class kernel {
  public:
    kernel(const device &, const uuid &, const std::string &name) : name_(name) {}
    int group_id(int) const { return 0; }
    template <typename... Arguments>
    run operator()(const Arguments &...arguments) {
        standin::launch(name_, {standin::Argument(arguments)...});
        return {};
    }

  private:
    std::string name_;
};

}  // namespace xrt

#endif
