// SPDX-License-Identifier: Apache-2.0
#include "model/detail/attention_pieces.hpp"

#include <limits>

namespace finetune::model {

at::Tensor heads_of_run(const at::Tensor& x, std::int64_t begin, std::int64_t length,
                        std::int64_t head_size) {
  return x.narrow(0, begin, length).unflatten(1, {-1, head_size}).transpose(0, 1).unsqueeze(0);
}

Visible Bands::visible(std::int64_t q_length, std::int64_t k_length) {
  at::Tensor& mask = masks_[{q_length, k_length}];
  if (!mask.defined()) mask = make(q_length, k_length);
  return {.is_causal = false, .mask = mask, .window = window_, .softcap = softcap_};
}

at::Tensor Bands::make(std::int64_t q_length, std::int64_t k_length) const {
  const at::Tensor all =
      at::ones({q_length, k_length}, at::TensorOptions(at::kBool).device(device_));
  const std::int64_t self = k_length - q_length;
  const at::Tensor seen = all.tril(self).logical_and_(all.triu(self - window_ + 1));
  return at::zeros({q_length, k_length}, at::TensorOptions(at::kFloat).device(device_))
      .masked_fill_(seen.logical_not(), -std::numeric_limits<float>::infinity());
}

}  // namespace finetune::model
