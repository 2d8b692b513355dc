// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/device_constants.hpp"

#include <ATen/ATen.h>

#include <map>
#include <mutex>
#include <tuple>

namespace finetune::kernels::composed {
namespace {

// A table may begin with another.
using Key = std::tuple<const void*, std::size_t, at::DeviceType, at::DeviceIndex>;

at::Tensor cached(const at::Tensor& like, const void* values, const at::Tensor& on_host) {
  // Never freed: when the program ends, the device may be gone before them.
  static auto* const mutex = new std::mutex();
  static auto* const known = new std::map<Key, at::Tensor>();
  const std::lock_guard lock(*mutex);
  at::Tensor& there =
      (*known)[{values, on_host.nbytes(), like.device().type(), like.device().index()}];
  if (!there.defined()) there = on_host.to(like.device());
  return there;
}

template <typename T>
at::Tensor view_of(std::span<const T> values, at::ScalarType dtype) {
  return at::from_blob(const_cast<T*>(values.data()), {std::ssize(values)}, dtype);
}

}  // namespace

at::Tensor constant_on_device_of(const at::Tensor& like, std::span<const float> values) {
  const at::Tensor on_host = view_of(values, at::kFloat);
  return like.is_cpu() ? on_host : cached(like, values.data(), on_host);
}

at::Tensor constant_on_device_of(const at::Tensor& like, std::span<const std::int64_t> values) {
  const at::Tensor on_host = view_of(values, at::kLong);
  return like.is_cpu() ? on_host : cached(like, values.data(), on_host);
}

at::Tensor constant_on_device_of(const at::Tensor& like, std::span<const std::byte> values) {
  const at::Tensor on_host = view_of(values, at::kByte);
  return like.is_cpu() ? on_host : cached(like, values.data(), on_host);
}

}  // namespace finetune::kernels::composed
