// SPDX-License-Identifier: Apache-2.0
// The operations of the simulated device: each runs as the CPU's, on the view that kernels have.
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <array>
#include <string>
#include <vector>

#include "simulated/device/arena.hpp"
#include "simulated/device/counters.hpp"
#include "simulated/device/device.hpp"

namespace finetune::simulated {

at::Tensor kernel_view(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  void* memory = storage.nbytes() == 0 ? nullptr : Arena::here().for_kernels(storage.data());
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

/// Arguments as the CPU's kernel takes them, and the way back of its results.
class Translation {
 public:
  explicit Translation(std::string name) : name_(std::move(name)) {}

  void enter(c10::IValue& value) {
    if (value.isTensor()) {
      value = enter(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector())
        list.push_back(enter(tensor));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::optional(enter(*tensor)) : std::nullopt);
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
      Counters::here().sync(name_ + " (indices of the host)");
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
  at::Tensor enter(const at::Tensor& tensor) {
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
            : kernel_view(tensor));
    return views_.back();
  }

  at::Tensor leave(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    for (std::size_t i = 0; i < views_.size(); ++i) {
      if (!tensor.is_same(views_[i])) continue;
      if (!tensor.sizes().equals(originals_[i].sizes()) ||
          (originals_[i].storage().nbytes() == 0 && tensor.numel() > 0)) {
        originals_[i].resize_(tensor.sizes());
        kernel_view(originals_[i]).copy_(tensor);
      }
      return originals_[i];
    }
    TORCH_CHECK(
        tensor.storage().nbytes() == 0 || !Arena::here().is_kernel_address(tensor.storage().data()),
        name_, " returns a view, and the simulated device has no kernel of its own for it");
    if (!device_) return tensor;
    at::Tensor result =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(*device_));
    if (tensor.numel() > 0) kernel_view(result).copy_(tensor);
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
  if (waits_for_device(name)) Counters::here().sync(name);
  Translation translation(name);
  const std::size_t num_arguments = schema.arguments().size();
  for (std::size_t i = stack->size() - num_arguments; i < stack->size(); ++i)
    translation.enter((*stack)[i]);
  translation.check();
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (std::size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
    translation.leave((*stack)[i]);
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

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Counters::here().launch("aten::_copy_from");
  const bool crosses = is_on_device(from) != is_on_device(to);
  if (crosses) {
    const at::Tensor& host = is_on_device(from) ? to : from;
    const bool is_staged = is_on_device(to) && host.nbytes() <= staged_bytes;
    if (!non_blocking || !(host.is_pinned() || is_staged))
      Counters::here().sync(is_on_device(from) ? "copy to the host" : "copy to the device");
  }
  (is_on_device(to) ? kernel_view(to) : to).copy_(is_on_device(from) ? kernel_view(from) : from);
  return to;
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  Counters::here().sync("aten::_local_scalar_dense");
  return kernel_view(tensor).item();
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
