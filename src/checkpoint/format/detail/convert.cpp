// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/detail/convert.hpp"

#include <span>

namespace finetune::checkpoint {
namespace {

bool is_real(core::DType dtype) {
  return dtype == core::DType::f64 || dtype == core::DType::f32 || dtype == core::DType::bf16 ||
         dtype == core::DType::f16;
}

}  // namespace

bool can_convert(core::DType stored, core::DType wanted) {
  return stored == wanted || (is_real(stored) && is_real(wanted));
}

Converted::Converted(core::DType stored, const WantedSlice& wanted)
    : dtype_(stored),
      wanted_(wanted),
      bytes_(static_cast<std::size_t>(wanted.slice.count * core::size_bytes(stored))) {}

void Converted::convert() const {
  const std::span target(wanted_.data, static_cast<std::size_t>(wanted_.slice.size_bytes()));
  core::convert(dtype_, bytes_, wanted_.slice.dtype, target);
}

}  // namespace finetune::checkpoint
