#pragma once
// SPDX-License-Identifier: Apache-2.0
// Weights that are no numbers.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weights/model_files.hpp"

namespace finetune::weights {

/// The first value that is infinite or NaN.
std::optional<std::size_t> find_not_finite(std::span<const float> values);

/// Refuses a tensor of `shape` for one of its values. The file is named, if one holds a tensor of
/// this name. Throws: ErrorKind::input.
[[noreturn]] void refuse_not_finite(const ModelFiles& files, std::string_view name,
                                    std::span<const std::int64_t> shape, std::int64_t element,
                                    float value);

/// Reads a tensor of F64, F32, BF16 or F16 whole, a few MiB at a time; of other dtypes nothing.
/// Throws: ErrorKind::input if it holds what is not finite; what ModelFiles::read throws.
void require_finite(const ModelFiles& files, const std::string& name);

}  // namespace finetune::weights
