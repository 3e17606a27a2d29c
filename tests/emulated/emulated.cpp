// Devices of torch's (PrivateUse1) whose memory is the host's, counted as torch.cuda counts it.
//
// An operator runs on the CPU, and its results are copied into the device's memory: what it
// allocates for itself meanwhile is not counted. A tensor that is on another device than the
// operator wants is an error, as on a real one. After PyTorch's own example of a backend
// (test/cpp_extensions/open_registration_extension).

#include <ATen/EmptyTensor.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/sparse_sampled_addmm.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using std::optional;

constexpr c10::DeviceType TYPE = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex DEVICES = 4;
// As torch's caching allocator for CUDA rounds sizes.
constexpr size_t BLOCK_BYTES = 512;

thread_local DeviceIndex current = 0;

// ------------------------------------------------------------------------------------- memory

struct Memory {
  std::mutex lock;
  std::unordered_map<void*, std::pair<DeviceIndex, size_t>> blocks;
  std::array<int64_t, DEVICES> held_bytes{}, peak_bytes{};
};

Memory& memory() {
  static auto* whole = new Memory();  // Tensors may outlive whatever is destroyed at exit.
  return *whole;
}

void release(void* block) {
  std::lock_guard<std::mutex> guard(memory().lock);
  const auto found = memory().blocks.find(block);
  if (found == memory().blocks.end()) return;
  memory().held_bytes[found->second.first] -= found->second.second;
  memory().blocks.erase(found);
  std::free(block);
}

struct CountingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const Device device(TYPE, current);
    if (bytes == 0) return {nullptr, nullptr, &release, device};
    const size_t rounded = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    void* block = std::aligned_alloc(BLOCK_BYTES, rounded);
    TORCH_CHECK_WITH(OutOfMemoryError, block, "no memory for ", rounded, " bytes");
    std::lock_guard<std::mutex> guard(memory().lock);
    memory().blocks[block] = {current, rounded};
    auto& held = memory().held_bytes[current];
    auto& peak = memory().peak_bytes[current];
    held += rounded;
    peak = std::max(peak, held);
    return {block, block, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* into, const void* from, size_t count) const override {
    default_copy_data(into, from, count);
  }
};

CountingAllocator allocator;
REGISTER_ALLOCATOR(TYPE, &allocator);

// ------------------------------------------------------------------------------------- devices

// Everything is over when the call returns: there is nothing to wait for.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return TYPE; }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return {TYPE, current}; }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() < DEVICES, "there is no device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  Stream getStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const override { return getStream(stream.device()); }
  DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void synchronizeStream(const Stream&) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return DEVICES; }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex device) const override { current = device; }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    return std::exchange(current, device);
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? current : exchangeDevice(device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DeviceGuard guard(storage.device());
    auto resized = allocator.allocate(bytes);
    const size_t kept = std::min(storage.nbytes(), bytes);
    if (kept) allocator.copy_data(resized.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(resized));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// ------------------------------------------------------------------------------------- operators

constexpr c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

Tensor empty(c10::IntArrayRef size, optional<at::ScalarType> dtype, optional<at::Layout>,
             optional<Device> device, optional<bool>, optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(size, &allocator, KEYS, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, optional<at::ScalarType> dtype,
                     optional<at::Layout>, optional<Device> device, optional<bool>) {
  c10::DeviceGuard guard(c10::device_or_default(device));
  const auto type = c10::dtype_or_default(dtype);
  return at::detail::empty_strided_generic(size, stride, &allocator, KEYS, type);
}

// The same memory as a tensor of the CPU's.
Tensor on_cpu(const Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

Tensor copy_from(const Tensor& source, const Tensor& target, bool) {
  on_cpu(target).copy_(on_cpu(source));
  return target;
}

Tensor copy_from_and_resize(const Tensor& source, const Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Scalar read_scalar(const Tensor& one) {
  return at::native::_local_scalar_dense_cpu(on_cpu(one));
}

// As on a real device: no operator takes tensors of two, but for single values and for the positions
// that x[positions] reads or writes.
void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& name = op.schema().name();
  const bool indexes = name == "aten::index" || name == "aten::_index_put_impl_";
  optional<Device> where;
  const auto check = [&](const Tensor& tensor, bool positions) {
    if (!tensor.defined() || (tensor.is_cpu() && (tensor.dim() == 0 || positions))) return;
    if (!where) where = tensor.device();
    TORCH_CHECK(tensor.device() == *where, op.schema().operator_name(), " of tensors on ", *where,
                " and ", tensor.device());
  };
  for (const auto& argument : torch::jit::last(stack, op.schema().arguments().size())) {
    if (argument.isTensor()) {
      check(argument.toTensor(), false);
    } else if (argument.isTensorList()) {
      for (const Tensor& tensor : argument.toTensorVector()) check(tensor, indexes);
    } else if (argument.isOptionalTensorList()) {
      for (const optional<Tensor>& tensor : argument.toOptionalTensorVector())
        if (tensor) check(*tensor, indexes);
    }
  }
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_devices(op, *stack);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", read_scalar);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("resize_", at::native::resize_);
  m.impl("set_.source_Storage", at::native::set_);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
}

// ------------------------------------------------------------------------------------- sparse CSR

const at::SparseCsrTensorImpl& parts_of(const Tensor& matrix) {
  return *static_cast<at::SparseCsrTensorImpl*>(matrix.unsafeGetTensorImpl());
}

Tensor csr_on_cpu(const Tensor& matrix) {
  const auto& parts = parts_of(matrix);
  const auto options = parts.values().options().device(at::kCPU).layout(at::kSparseCsr);
  return at::_sparse_csr_tensor_unsafe(on_cpu(parts.compressed_indices()),
                                       on_cpu(parts.plain_indices()), on_cpu(parts.values()),
                                       matrix.sizes(), options);
}

Tensor& add_product(Tensor& self, const Tensor& matrix, const Tensor& dense, const at::Scalar& beta,
                    const at::Scalar& alpha) {
  TORCH_CHECK(self.device() == matrix.device() && dense.device() == matrix.device(),
              "addmm_ of tensors on different devices");
  on_cpu(self).addmm_(csr_on_cpu(matrix), on_cpu(dense), beta, alpha);
  return self;
}

Tensor sample_product(const Tensor& matrix, const Tensor& left, const Tensor& right,
                      const at::Scalar& beta, const at::Scalar& alpha) {
  TORCH_CHECK(left.device() == matrix.device() && right.device() == matrix.device(),
              "sampled_addmm of tensors on different devices");
  const auto products =
      at::sparse_sampled_addmm(csr_on_cpu(matrix), on_cpu(left), on_cpu(right), beta, alpha);
  const auto& parts = parts_of(matrix);
  return at::_sparse_csr_tensor_unsafe(parts.compressed_indices(), parts.plain_indices(),
                                       products.values().to(matrix.device()), matrix.sizes(),
                                       parts.values().options().layout(at::kSparseCsr));
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("addmm_", add_product);
  m.impl("sparse_sampled_addmm", sample_product);
  m.impl("crow_indices", at::native::crow_indices_sparse_csr);
  m.impl("col_indices", at::native::col_indices_sparse_csr);
  m.impl("values", at::native::values_sparse_csr);
}

// ------------------------------------------------------------------------------------- for Python

TORCH_LIBRARY(emulated, m) {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  m.def("device_count", []() -> int64_t { return DEVICES; });
  m.def("current_device", []() -> int64_t { return current; });
  m.def("memory_allocated", [](int64_t device) { return memory().held_bytes.at(device); });
  m.def("max_memory_allocated", [](int64_t device) { return memory().peak_bytes.at(device); });
  m.def("reset_peak_memory_stats", [](int64_t device) {
    memory().peak_bytes.at(device) = memory().held_bytes.at(device);
  });
}

}  // namespace
