// SPDX-License-Identifier: Apache-2.0
// The operations of the simulated device: each runs as the CPU's, on the view that kernels have.
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "simulated/device/arena.hpp"
#include "simulated/device/counters.hpp"
#include "simulated/device/device.hpp"
#include "simulated/device/pinned.hpp"
#include "simulated/device/streams.hpp"

namespace finetune::simulated {
namespace {

/// Memory of its elements, each once however often it is repeated.
std::int64_t bytes_of(const at::Tensor& tensor) {
  auto bytes = static_cast<std::int64_t>(tensor.element_size());
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.stride(i) != 0) bytes *= tensor.size(i);
  return bytes;
}

/// What an operation changes in place it reads and writes; what it only fills it writes.
bool reads_what_it_writes(const std::string& operation) {
  return operation.find("_.") != std::string::npos || operation.ends_with('_')
             ? !operation.starts_with("aten::copy_") && !operation.starts_with("aten::fill_") &&
                   !operation.starts_with("aten::zero_")
             : false;
}

/// One element of each row.
bool picks(const std::string& operation) {
  return operation.starts_with("aten::gather") || operation.starts_with("aten::scatter_add");
}

/// From the first element to the last; what lies between them is taken along.
void note(const at::Tensor& tensor, Touch touch) {
  if (tensor.numel() == 0 || Operation::current() == nullptr) return;
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    last += (tensor.size(i) - 1) * tensor.stride(i);
  const std::string& operation = Operation::current()->name();
  const int times = touch == Touch::writes && reads_what_it_writes(operation) ? 2 : 1;
  if (!picks(operation)) Counters::here().move(operation, times * bytes_of(tensor));
  const auto element = static_cast<std::int64_t>(tensor.element_size());
  const char* begin = static_cast<const char*>(tensor.storage().data());
  Operation::current()->touches(
      begin + tensor.storage_offset() * element, static_cast<std::size_t>((last + 1) * element),
      touch,
      fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", ")));
}

}  // namespace

at::Tensor kernel_view(const at::Tensor& tensor, Touch touch) {
  const c10::Storage& storage = tensor.storage();
  void* memory = nullptr;
  if (storage.nbytes() > 0) {
    const PinnedMemory& pinned = PinnedMemory::here();
    memory = pinned.holds(storage.data()) ? pinned.for_kernels(storage.data())
                                          : Arena::here().for_kernels(storage.data());
  }
  note(tensor, touch);
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                   c10::DataPtr(memory, c10::Device(c10::kCPU)), nullptr, /*resizable=*/false),
      c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  return view;
}

namespace {

bool is_on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_privateuseone();
}

/// Whether CUDA's kernel of this operation ends with a copy to the host, so that the host waits.
bool waits_for_device(const std::string& name) {
  static constexpr std::array names = {"aten::nonzero",
                                       "aten::_unique2",
                                       "aten::unique_dim",
                                       "aten::masked_select",
                                       "aten::equal",
                                       "aten::bincount",
                                       "aten::histc",
                                       "aten::repeat_interleave.Tensor",
                                       "aten::unique_consecutive"};
  for (const char* waiting : names) {
    if (name.starts_with(waiting)) return true;
  }
  return false;
}

/// Operations that take indices from the host, which CUDA copies to the device first.
bool takes_host_indices(const std::string& name) {
  return name.starts_with("aten::index.") || name.starts_with("aten::index_put") ||
         name.starts_with("aten::_index_put_impl_");
}

Touch touch_of(const c10::Argument& argument) {
  const c10::AliasInfo* alias = argument.alias_info();
  if (alias == nullptr) return Touch::reads;
  const auto writes = [](const c10::AliasInfo& info) { return info.isWrite(); };
  const bool is_written = writes(*alias) || std::ranges::any_of(alias->containedTypes(), writes);
  return is_written ? Touch::writes : Touch::reads;
}

/// Arguments as the CPU's kernel takes them, and the way back of its results.
class Translation {
 public:
  explicit Translation(std::string name) : name_(std::move(name)) {}

  void enter(c10::IValue& value, Touch touch) {
    if (value.isTensor()) {
      value = enter(value.toTensor(), touch);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector())
        list.push_back(enter(tensor, touch));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::optional(enter(*tensor, touch)) : std::nullopt);
      value = std::move(list);
    } else if (value.isDevice() && value.toDevice().is_privateuseone()) {
      device_ = value.toDevice();
      value = c10::IValue(c10::Device(c10::kCPU));
    }
  }

  /// Throws if an operation of the device was given memory of the host.
  void check() const {
    if (!device_ || host_sizes_.empty()) return;
    if (takes_host_indices(name_)) {
      host_waits_for(name_ + " (indices of the host)", current_stream());
      return;
    }
    TORCH_CHECK(false, name_, " was given tensors of the device and of the host, of shape ",
                host_sizes_.front());
  }

  void leave(c10::IValue& value) {
    if (value.isTensor()) {
      value = leave(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector())
        list.push_back(leave(tensor));
      value = std::move(list);
    }
  }

 private:
  at::Tensor enter(const at::Tensor& tensor, Touch touch) {
    if (!tensor.defined()) return tensor;
    if (!is_on_device(tensor)) {
      // A number is an argument of a kernel, not memory.
      if (tensor.dim() > 0) host_sizes_.push_back(tensor.sizes().vec());
      return tensor;
    }
    device_ = tensor.device();
    originals_.push_back(tensor);
    // Without memory: the operation gives it its size.
    views_.push_back(
        tensor.storage().nbytes() == 0
            ? at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU))
            : kernel_view(tensor, touch));
    return views_.back();
  }

  at::Tensor leave(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    for (std::size_t i = 0; i < views_.size(); ++i) {
      if (!tensor.is_same(views_[i])) continue;
      if (!tensor.sizes().equals(originals_[i].sizes()) ||
          (originals_[i].storage().nbytes() == 0 && tensor.numel() > 0)) {
        originals_[i].resize_(tensor.sizes());
        kernel_view(originals_[i], Touch::writes).copy_(tensor);
      }
      return originals_[i];
    }
    TORCH_CHECK(
        tensor.storage().nbytes() == 0 || !Arena::here().is_kernel_address(tensor.storage().data()),
        name_, " returns a view, and the simulated device has no kernel of its own for it");
    if (!device_) return tensor;
    at::Tensor result =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(*device_));
    if (tensor.numel() > 0) kernel_view(result, Touch::writes).copy_(tensor);
    return result;
  }

  std::string name_;
  std::optional<c10::Device> device_;
  std::vector<at::Tensor> originals_;
  std::vector<at::Tensor> views_;
  std::vector<std::vector<std::int64_t>> host_sizes_;
};

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string name =
      schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  Counters::here().launch(name);
  const Operation operation(name);
  Translation translation(name);
  const std::size_t num_arguments = schema.arguments().size();
  const std::size_t first = stack->size() - num_arguments;
  for (std::size_t i = 0; i < num_arguments; ++i)
    translation.enter((*stack)[first + i], touch_of(schema.arguments()[i]));
  translation.check();
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (std::size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
    translation.leave((*stack)[i]);
  if (waits_for_device(name)) host_waits_for(name, operation.stream());
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>,
                 std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, c10::GetAllocator(c10::kPrivateUse1),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                         std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(c10::kPrivateUse1),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

/// CUDA takes small pageable memory along with the call.
constexpr std::size_t staged_bytes = 64 * 1024;

bool is_staged(const at::Tensor& from, const at::Tensor& to) {
  return is_on_device(to) && !is_on_device(from) && from.nbytes() <= staged_bytes;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Counters::here().launch("aten::_copy_from");
  const bool to_host = !is_on_device(to);
  const bool crosses = is_on_device(from) == to_host;
  const std::string name = !crosses  ? "aten::copy_"
                           : to_host ? "copy to the host"
                                     : "copy to the device";
  const Operation operation(name);
  const at::Tensor& host = to_host ? to : from;
  const bool is_pinned =
      crosses && host.nbytes() > 0 && PinnedMemory::here().holds(host.data_ptr());
  const auto view = [&](const at::Tensor& tensor, Touch touch) {
    return is_on_device(tensor) || is_pinned ? kernel_view(tensor, touch) : tensor;
  };
  view(to, Touch::writes).copy_(view(from, Touch::reads));
  if (!crosses) return to;
  if (!non_blocking || !(is_pinned || is_staged(from, to))) {
    host_waits_for(name, operation.stream());
  } else if (is_pinned) {
    PinnedMemory::here().lend(host.data_ptr(), to_host ? Touch::writes : Touch::reads,
                              Order::here().event(operation.stream()), name);
  }
  return to;
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  const Operation operation("aten::_local_scalar_dense");
  const at::Scalar value = kernel_view(tensor, Touch::reads).item();
  host_waits_for(operation.name(), operation.stream());
  return value;
}

}  // namespace
}  // namespace finetune::simulated

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&finetune::simulated::run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", finetune::simulated::empty);
  m.impl("empty_strided", finetune::simulated::empty_strided);
  m.impl("_copy_from", finetune::simulated::copy_from);
  m.impl("_local_scalar_dense", finetune::simulated::local_scalar);
  // Views share memory: no kernel runs.
  m.impl("as_strided", [](const at::Tensor& self, c10::SymIntArrayRef sizes,
                          c10::SymIntArrayRef strides, std::optional<c10::SymInt> offset) {
    return at::native::as_strided_tensorimpl(
        self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
        offset ? std::optional(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
  });
  m.impl("view", [](const at::Tensor& self, c10::SymIntArrayRef sizes) {
    return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
  });
  m.impl("_reshape_alias",
         [](const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
           return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes),
                                             C10_AS_INTARRAYREF_SLOW(strides));
         });
  m.impl("unfold", [](const at::Tensor& self, std::int64_t dim, std::int64_t size,
                      std::int64_t step) { return at::native::unfold(self, dim, size, step); });
  m.impl("resize_",
         [](const at::Tensor& self, c10::SymIntArrayRef sizes,
            std::optional<at::MemoryFormat> format) -> const at::Tensor& {
           return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(sizes), format);
         });
}
