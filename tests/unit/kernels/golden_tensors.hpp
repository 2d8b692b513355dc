#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tensors of a golden file in the dtype they have there.

#include <map>
#include <string>

#include "support/golden.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test {

class GoldenTensors {
 public:
  explicit GoldenTensors(const std::string& name)
      : files_(weights::ModelFiles::open(tests::golden(name))) {}

  at::Tensor operator[](const std::string& name) const {
    static const std::map<core::DType, at::ScalarType> types = {{core::DType::f32, at::kFloat},
                                                                {core::DType::bf16, at::kBFloat16},
                                                                {core::DType::f16, at::kHalf},
                                                                {core::DType::i32, at::kInt},
                                                                {core::DType::u8, at::kByte}};
    const auto& entry = files_.entry(name);
    const at::Tensor tensor = at::empty(entry.shape, types.at(entry.dtype));
    files_.read({.name = name,
                 .shape = entry.shape,
                 .dtype = entry.dtype,
                 .offset = 0,
                 .count = tensor.numel()},
                {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
    return tensor;
  }

 private:
  weights::ModelFiles files_;
};

}  // namespace finetune::kernels::test
