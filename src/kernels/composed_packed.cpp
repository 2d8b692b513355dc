// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_packed.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/random.hpp"
#include "kernels/detail/composed_rounding.hpp"
#include "kernels/nf4.hpp"

namespace finetune::kernels::composed {
namespace {

/// Elements that are unpacked at once: their indices (8 bytes each) and what else is made of them
/// take less than 64 MiB.
constexpr std::int64_t most_elements = 1 << 21;

at::Tensor on_device_of(const at::Tensor& tensor, std::span<const float> values) {
  return at::tensor(at::ArrayRef<float>(values.data(), values.size())).to(tensor.device());
}

/// Eight 4-bit codes of each word [...] -> [..., 8], lowest bits first.
at::Tensor codes_of_words(const at::Tensor& words) {
  const at::Tensor shifts = at::arange(0, 32, 4, words.options());
  return words.unsqueeze(-1).bitwise_right_shift(shifts).bitwise_and(15);
}

/// The 16 random bits of each element of [N, dim].
at::Tensor dropout_bits(const at::Tensor& tokens, const DropoutKey& key, std::int64_t dim) {
  const std::int64_t rows = tokens.size(0), tiles = (dim + dropout_tile - 1) / dropout_tile;
  const at::Tensor blocks = at::arange(tiles * dropout_lanes, tokens.options()).unsqueeze(0);
  const auto [low, high] = low_and_high(tokens.unsqueeze(1));
  std::array<at::Tensor, 4> words = {low, high, blocks,
                                     at::full({1, 1}, std::int64_t{key.stream}, tokens.options())};
  for (at::Tensor& word : words)
    word = word.expand({rows, tiles * dropout_lanes});
  const auto use = static_cast<std::uint32_t>(core::RandomUse::dropout);
  philox(words,
         {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32) + use});
  std::vector<at::Tensor> planes;
  for (const at::Tensor& word : words) {
    for (const int shift : {0, 16}) {
      planes.push_back(
          word.bitwise_right_shift(shift).bitwise_and(0xFFFF).view({rows, tiles, dropout_lanes}));
    }
  }
  return at::stack(planes, 2).view({rows, tiles * dropout_tile}).narrow(1, 0, dim);
}

}  // namespace

at::Tensor nf4_dequantize(const at::Tensor& codes, const Nf4Maxima& maxima, std::int64_t count,
                          at::ScalarType dtype) {
  const at::Tensor levels = on_device_of(codes, nf4_levels());
  at::Tensor absmax = maxima.values;
  if (!absmax.defined()) {
    const at::Tensor nested = on_device_of(codes, nested_levels());
    const at::Tensor scale =
        maxima.nested.repeat_interleave(nested_block).narrow(0, 0, maxima.codes.size(0));
    absmax = nested.index_select(0, maxima.codes.to(at::kInt)).mul_(scale).add_(maxima.offset);
  }
  const at::Tensor out = at::empty({count}, codes.options().dtype(dtype));
  for (std::int64_t begin = 0; begin < count; begin += most_elements) {
    const std::int64_t length = std::min(most_elements, count - begin);
    const at::Tensor bytes = codes.narrow(0, begin / 2, (length + 1) / 2);
    const at::Tensor indices =
        at::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, 1).flatten();
    const at::Tensor scale =
        absmax.narrow(0, begin / nf4_block, (length + nf4_block - 1) / nf4_block)
            .repeat_interleave(nf4_block)
            .narrow(0, 0, length);
    const at::Tensor values = levels.index_select(0, indices.to(at::kInt).narrow(0, 0, length));
    out.narrow(0, begin, length).copy_(values * scale);
  }
  return out;
}

void gptq_dequantize_(at::Tensor& out, const GptqLayer& layer) {
  const std::int64_t word_rows = layer.qweight.size(0), outputs = layer.qweight.size(1);
  const at::Tensor scales = layer.scales.to(at::kFloat);
  const at::Tensor zeros =
      codes_of_words(layer.qzeros).flatten(-2).add_(layer.stored_zero_offset);  // [G, O]
  const std::int64_t step = std::max<std::int64_t>(1, most_elements / (8 * outputs));
  for (std::int64_t row = 0; row < word_rows; row += step) {
    const std::int64_t length = std::min(step, word_rows - row);
    const at::Tensor codes = codes_of_words(layer.qweight.narrow(0, row, length))
                                 .permute({0, 2, 1})
                                 .reshape({length * 8, outputs});
    const at::Tensor groups = layer.g_idx.narrow(0, row * 8, length * 8);
    const at::Tensor differences = (codes - zeros.index_select(0, groups)).to(at::kFloat);
    out.narrow(0, row * 8, length * 8).copy_(scales.index_select(0, groups) * differences);
  }
}

at::Tensor dropout(const at::Tensor& x, const at::Tensor& tokens, const DropoutKey& key, double p) {
  const auto scale = static_cast<float>(1.0 / (1.0 - p));
  const at::Tensor out = at::empty_like(x);
  const std::int64_t rows = x.size(0), dim = x.size(1);
  // Bits come for whole tiles; about three temporaries of 8 bytes an element live at the same time.
  const std::int64_t width = (dim + dropout_tile - 1) / dropout_tile * dropout_tile;
  const std::int64_t step =
      std::max<std::int64_t>(1, most_elements / std::max<std::int64_t>(1, width));
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t length = std::min(step, rows - row);
    const at::Tensor kept =
        dropout_bits(tokens.narrow(0, row, length), key, dim) >= std::lround(p * 65536.0);
    const at::Tensor scaled = (x.narrow(0, row, length).to(at::kFloat) * scale).to(x.scalar_type());
    out.narrow(0, row, length).copy_(scaled.masked_fill(kept.logical_not(), 0));
  }
  return out;
}

}  // namespace finetune::kernels::composed
