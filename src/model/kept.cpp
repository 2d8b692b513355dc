// SPDX-License-Identifier: Apache-2.0
#include "model/kept.hpp"

#include <torch/custom_class.h>

#include <algorithm>
#include <utility>

namespace finetune::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* key = "kept";

/// Autograd's functions do not see who runs them.
thread_local KeptActivations* collecting = nullptr;

struct List final : torch::CustomClassHolder {
  std::vector<KeptTensor> tensors;
};

/// All bytes of the memory that `tensor` is in.
at::Tensor bytes_of(const at::Tensor& tensor) {
  auto bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(tensor.storage()), tensor.key_set(), caffe2::TypeMeta::Make<std::uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous(
      {static_cast<std::int64_t>(tensor.storage().nbytes())});
  return bytes;
}

/// Not worth a copy: the random state that attention kernels keep.
constexpr std::size_t few_bytes = 64;

bool is_moved(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_cpu() && tensor.storage().nbytes() > few_bytes;
}

}  // namespace

KeptTensor::KeptTensor(const at::Tensor& tensor, std::shared_ptr<const KeptMemory> memory)
    : memory_(std::move(memory)) {
  if (memory_ == nullptr) {
    as_it_is_ = tensor.defined() ? tensor.detach() : tensor;
    return;
  }
  dtype_ = tensor.scalar_type();
  offset_ = tensor.storage_offset();
  sizes_ = tensor.sizes().vec();
  strides_ = tensor.strides().vec();
}

at::Tensor KeptTensor::tensor() const {
  if (memory_ == nullptr) return as_it_is_;
  const at::Tensor& bytes = memory_->bytes;
  TORCH_CHECK(bytes.defined(), "what a block keeps is read while it is elsewhere");
  const auto element = static_cast<std::int64_t>(c10::elementSize(dtype_));
  const std::int64_t whole = bytes.numel() / element * element;
  return bytes.narrow(0, 0, whole).view(dtype_).as_strided(sizes_, strides_, offset_);
}

KeptTensor KeptActivations::add(const at::Tensor& tensor) {
  if (!is_moved(tensor)) return {tensor, nullptr};
  const auto is_same = [&](const auto& memory) {
    return memory->bytes.storage().is_alias_of(tensor.storage());
  };
  auto found = std::ranges::find_if(memories_, is_same);
  if (found == memories_.end())
    found = memories_.insert(
        found, std::make_shared<KeptMemory>(KeptMemory{.bytes = bytes_of(tensor.detach())}));
  return {tensor, *found};
}

KeepIn::KeepIn(KeptActivations& kept) : outer_(std::exchange(collecting, &kept)) {}

KeepIn::~KeepIn() {
  collecting = outer_;
}

void keep(AutogradContext* ctx, variable_list tensors) {
  if (collecting == nullptr) return ctx->save_for_backward(std::move(tensors));
  auto list = c10::make_intrusive<List>();
  for (const at::Tensor& tensor : tensors)
    list->tensors.push_back(collecting->add(tensor));
  ctx->saved_data[key] = c10::IValue::make_capsule(std::move(list));
}

variable_list kept(AutogradContext* ctx) {
  const auto found = ctx->saved_data.find(key);
  if (found == ctx->saved_data.end()) return ctx->get_saved_variables();
  // Autograd frees what it saves itself behind each function; of the rest it knows nothing.
  const auto holder = found->second.toCapsule();
  ctx->saved_data.erase(found);
  variable_list tensors;
  for (const KeptTensor& each : dynamic_cast<List&>(*holder).tensors)
    tensors.push_back(each.tensor());
  return tensors;
}

}  // namespace finetune::model
