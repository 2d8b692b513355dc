#pragma once
// SPDX-License-Identifier: Apache-2.0
// From fp32 values to NF4 and to 8 bits: the one place that does it, for runs and for exports.

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "model/fp8_products.hpp"
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

/// Rows of a matrix that share their scales: 1, or those of a block.
std::int64_t rows_of_a_scale(const model::Packing& packing);

/// Rows of a matrix in 8 bits, as a product that quantised the bf16 of them would have them.
/// `values` begin at row `first_row` and are of whole rows of the logical tensor, and whole blocks.
/// Throws: ErrorKind::input naming a value that is not finite.
model::Quantised quantise_rows(const model::Parameter& whole, std::int64_t first_row,
                               std::span<float> values);

/// Calls f(first row, quantised rows) for a matrix, a few MiB at a time. As above.
void for_each_quantised(const model::Parameter& whole, const ReadValues& read,
                        const std::function<void(std::int64_t, const model::Quantised&)>& f);

}  // namespace finetune::base
