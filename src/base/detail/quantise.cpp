// SPDX-License-Identifier: Apache-2.0
#include "base/detail/quantise.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "kernels/nf4.hpp"

namespace finetune::base {
namespace {

/// Elements that are in memory as fp32 at once; a multiple of NF4's blocks.
constexpr std::int64_t piece_elements = std::int64_t{4} << 20;

std::vector<std::int64_t> place_of(const std::vector<std::int64_t>& shape, std::int64_t element) {
  std::vector<std::int64_t> place(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; element /= shape[i])
    place[i] = element % shape[i];
  return place;
}

std::size_t blocks_in(std::int64_t count) {
  return static_cast<std::size_t>((count + kernels::nf4_block - 1) / kernels::nf4_block);
}

}  // namespace

void require_finite(std::string_view where, std::string_view what,
                    const std::vector<std::int64_t>& shape, std::int64_t first,
                    std::span<const float> values) {
  const std::int64_t at = kernels::first_non_finite(values);
  if (at < 0) return;
  core::fail(core::ErrorKind::input,
             {std::string(where),
              fmt::format("{} [{}] is {}", what, fmt::join(place_of(shape, first + at), ", "),
                          values[static_cast<std::size_t>(at)]),
              "a model has finite numbers only", "Use the files the model was published with."});
}

void quantise_run(const model::Parameter& row, std::int64_t first, std::int64_t count,
                  const ReadValues& read, std::span<std::uint8_t> codes, std::span<float> maxima) {
  std::vector<float> values;
  for (std::int64_t begin = 0; begin < count; begin += piece_elements) {
    values.resize(static_cast<std::size_t>(std::min(piece_elements, count - begin)));
    read(first + begin, values);
    require_finite(row.name, "element", row.shape, first + begin, values);
    const std::span<float> blocks = maxima.subspan(blocks_in(begin), blocks_in(std::ssize(values)));
    kernels::nf4_absmax(values, blocks);
    kernels::nf4_quantize(
        values, blocks,
        codes.subspan(static_cast<std::size_t>(begin) / 2, (values.size() + 1) / 2));
  }
}

std::int64_t rows_of_a_scale(const model::Packing& packing) {
  return std::max<std::int64_t>(1, packing.group_size);
}

model::Quantised quantise_rows(const model::Parameter& whole, std::int64_t first_row,
                               std::span<float> values) {
  const std::int64_t columns = whole.shape[1];
  require_finite(whole.name, "element", whole.shape, first_row * columns, values);
  const at::Tensor rows =
      at::from_blob(values.data(), {std::ssize(values) / columns, columns}, at::kFloat);
  // Rounded twice, as where what is gathered is quantised: the bits are the same.
  return model::quantise(rows.to(at::kBFloat16), at::kFloat8_e4m3fn,
                         {rows_of_a_scale(whole.packing), whole.packing.group_size});
}

void for_each_quantised(const model::Parameter& whole, const ReadValues& read,
                        const std::function<void(std::int64_t, const model::Quantised&)>& f) {
  const std::int64_t columns = whole.shape[1], together = rows_of_a_scale(whole.packing);
  const std::int64_t step =
      std::max<std::int64_t>(1, piece_elements / (columns * together)) * together;
  std::vector<float> values;
  for (std::int64_t row = 0; row < whole.shape[0]; row += step) {
    const std::int64_t num = std::min(step, whole.shape[0] - row);
    values.resize(static_cast<std::size_t>(num * columns));
    read(row * columns, values);
    f(row, quantise_rows(whole, row, values));
  }
}

}  // namespace finetune::base
