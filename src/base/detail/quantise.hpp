#pragma once
// SPDX-License-Identifier: Apache-2.0
// From fp32 values to NF4: the one place that does it, for runs and for exports.

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "model/parameter_table.hpp"

namespace finetune::base {

/// fp32 values of elements [first, first + target.size()) of a tensor.
using ReadValues = std::function<void(std::int64_t first, std::span<float> target)>;

/// `values` are elements [first, ...) of a tensor of this shape; `where` and `what` begin a
/// message. Throws: ErrorKind::input naming the first NaN or infinity: "<where>: <what> [3, 1] is
/// nan".
void require_finite(std::string_view where, std::string_view what,
                    const std::vector<std::int64_t>& shape, std::int64_t first,
                    std::span<const float> values);

/// Codes and blocks' maxima of elements [first, first + count) of a row; they begin at the start of
/// a block. Memory: 16 MiB.
/// Throws: ErrorKind::input naming a value that is not finite; what `read` throws.
void quantise_run(const model::Parameter& row, std::int64_t first, std::int64_t count,
                  const ReadValues& read, std::span<std::uint8_t> codes, std::span<float> maxima);

}  // namespace finetune::base
