// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_packed.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/random.hpp"
#include "kernels/detail/composed_rounding.hpp"
#include "kernels/detail/device_constants.hpp"
#include "kernels/mxfp4.hpp"
#include "kernels/nf4.hpp"
#include "kernels/row_codes.hpp"

namespace finetune::kernels::composed {
namespace {

/// Elements that are unpacked at once: what is written on the way takes 6 bytes each, less than 64
/// MiB.
constexpr std::int64_t most_elements = 1 << 23;
/// The same of GPTQ, whose codes and groups are spread to words of 4 and 8 bytes.
constexpr std::int64_t most_gptq_elements = 1 << 21;
/// And of dropout: a word of 8 bytes for 8 elements, of which some ten live at the same time, and
/// two flags each.
constexpr std::int64_t most_dropped_elements = 1 << 22;

/// The two levels of each byte, high bits first: [256 * 2].
std::span<const float> levels_of_bytes() {
  static const std::array table = [] {
    std::array<float, 512> pairs{};
    for (std::size_t byte = 0; byte < 256; ++byte) {
      pairs[2 * byte] = nf4_levels()[byte >> 4];
      pairs[2 * byte + 1] = nf4_levels()[byte & 15];
    }
    return pairs;
  }();
  return table;
}

/// Levels of the codes in `bytes` times the maxima of their blocks, to `out` [blocks * 64 or less].
void unpack_nf4(const at::Tensor& bytes, const at::Tensor& absmax, at::Tensor out) {
  const at::Tensor pairs = constant_on_device_of(bytes, levels_of_bytes()).view({256, 2});
  const at::Tensor levels =
      pairs.index_select(0, bytes.to(at::kInt)).flatten().narrow(0, 0, out.numel());
  if (out.numel() % nf4_block != 0) {
    out.copy_(levels * absmax);  // the last block alone
    return;
  }
  out = out.view({-1, nf4_block});
  at::mul_out(out, levels.view({-1, nf4_block}), absmax.unsqueeze(1));
}

/// The same of MXFP4, low bits first.
std::span<const float> mxfp4_levels_of_bytes() {
  static const std::array table = [] {
    std::array<float, 512> pairs{};
    for (std::size_t byte = 0; byte < 256; ++byte) {
      pairs[2 * byte] = mxfp4_levels[byte & 15];
      pairs[2 * byte + 1] = mxfp4_levels[byte >> 4];
    }
    return pairs;
  }();
  return table;
}

/// The factor of each exponent.
std::span<const float> mxfp4_scales() {
  static const std::array table = [] {
    std::array<float, 256> scales{};
    for (std::size_t exponent = 0; exponent < 256; ++exponent)
      scales[exponent] = mxfp4_scale(static_cast<std::uint8_t>(exponent));
    return scales;
  }();
  return table;
}

/// The codes of each word [...] -> [..., codes a word], lowest bits first.
at::Tensor codes_of_words(const at::Tensor& words, std::int64_t bits) {
  const at::Tensor shifts = at::arange(0, 32, bits, words.options());
  return words.unsqueeze(-1).bitwise_right_shift(shifts).bitwise_and((1 << bits) - 1);
}

/// Whether the 16 random bits of each element of [N, dim] are below `threshold`.
at::Tensor is_dropped(const at::Tensor& tokens, const DropoutKey& key, std::int64_t dim,
                      std::int64_t threshold) {
  const std::int64_t rows = tokens.size(0), first_tile = key.first_channel / dropout_tile;
  const std::int64_t before = key.first_channel % dropout_tile;
  const std::int64_t tiles = (before + dim + dropout_tile - 1) / dropout_tile;
  const at::Tensor blocks =
      at::arange(first_tile * dropout_lanes, (first_tile + tiles) * dropout_lanes, tokens.options())
          .unsqueeze(0);
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
      planes.push_back(word.bitwise_right_shift(shift).bitwise_and_(0xFFFF).lt(threshold).view(
          {rows, tiles, dropout_lanes}));
    }
  }
  return at::stack(planes, 2).view({rows, tiles * dropout_tile}).narrow(1, before, dim);
}

}  // namespace

at::Tensor nf4_dequantize(const at::Tensor& codes, const Nf4Maxima& maxima, std::int64_t count,
                          at::ScalarType dtype) {
  at::Tensor absmax = maxima.values;
  if (!absmax.defined()) {
    const at::Tensor nested = constant_on_device_of(codes, nested_levels());
    const at::Tensor scale =
        maxima.nested.repeat_interleave(nested_block).narrow(0, 0, maxima.codes.size(0));
    absmax = nested.index_select(0, maxima.codes.to(at::kInt)).mul_(scale).add_(maxima.offset);
  }
  const at::Tensor out = at::empty({count}, codes.options().dtype(dtype));
  const std::int64_t whole = count / nf4_block * nf4_block;
  const auto unpack = [&](std::int64_t begin, std::int64_t length) {
    unpack_nf4(codes.narrow(0, begin / 2, (length + 1) / 2),
               absmax.narrow(0, begin / nf4_block, (length + nf4_block - 1) / nf4_block),
               out.narrow(0, begin, length));
  };
  for (std::int64_t begin = 0; begin < whole; begin += most_elements)
    unpack(begin, std::min(most_elements, whole - begin));
  if (whole < count) unpack(whole, count - whole);
  return out;
}

void mxfp4_dequantize_(const at::Tensor& out, const at::Tensor& codes,
                       const at::Tensor& exponents) {
  const at::Tensor all = out.view({-1, mxfp4_block}), bytes = codes.view({-1, mxfp4_block / 2});
  const at::Tensor pairs = constant_on_device_of(codes, mxfp4_levels_of_bytes()).view({256, 2});
  const at::Tensor scales = constant_on_device_of(codes, mxfp4_scales());
  constexpr std::int64_t most_blocks = most_elements / mxfp4_block;
  for (std::int64_t first = 0; first < all.size(0); first += most_blocks) {
    const std::int64_t count = std::min(most_blocks, all.size(0) - first);
    const at::Tensor levels =
        pairs.index_select(0, bytes.narrow(0, first, count).flatten().to(at::kInt));
    const at::Tensor scale =
        scales.index_select(0, exponents.view({-1}).narrow(0, first, count).to(at::kInt));
    at::Tensor target = all.narrow(0, first, count);
    at::mul_out(target, levels.view({count, mxfp4_block}), scale.unsqueeze(1));
  }
}

void integers_dequantize_(const at::Tensor& out, const RowIntegersTensors& matrix) {
  const std::int64_t rows = out.size(0), columns = out.size(1), groups = matrix.scales.size(1);
  const std::int64_t step = std::max<std::int64_t>(1, most_elements / columns);
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t num = std::min(step, rows - row);
    at::Tensor codes = matrix.codes.narrow(0, row, num);
    if (matrix.bits == 4)
      codes = at::stack({codes.bitwise_and(15), codes.bitwise_right_shift(4)}, -1).flatten(-2);
    const at::Tensor wide = codes.to(at::kFloat).view({num, groups, columns / groups});
    if (matrix.zeros.defined()) {
      wide.sub_(matrix.zeros.narrow(0, row, num).to(at::kFloat).unsqueeze(-1));
    } else {
      wide.sub_(1 << (matrix.bits - 1));
    }
    wide.mul_(matrix.scales.narrow(0, row, num).unsqueeze(-1));
    if (matrix.factor != 1) wide.mul_(matrix.factor);
    out.narrow(0, row, num).copy_(wide.view({num, columns}));
  }
}

void nvfp4_dequantize_(const at::Tensor& out, const at::Tensor& codes, const at::Tensor& scales,
                       const at::Tensor& divisor) {
  const at::Tensor all = out.view({-1, nvfp4_block}), bytes = codes.view({-1, nvfp4_block / 2});
  const at::Tensor pairs = constant_on_device_of(codes, mxfp4_levels_of_bytes()).view({256, 2});
  constexpr std::int64_t most_blocks = most_elements / nvfp4_block;
  for (std::int64_t first = 0; first < all.size(0); first += most_blocks) {
    const std::int64_t count = std::min(most_blocks, all.size(0) - first);
    const at::Tensor levels =
        pairs.index_select(0, bytes.narrow(0, first, count).flatten().to(at::kInt));
    const at::Tensor scale = scales.view({-1})
                                 .narrow(0, first, count)
                                 .view(at::kFloat8_e4m3fn)
                                 .to(at::kFloat)
                                 .div_(divisor);
    at::Tensor target = all.narrow(0, first, count);
    at::mul_out(target, levels.view({count, nvfp4_block}), scale.unsqueeze(1));
  }
}

void gptq_dequantize_(at::Tensor& out, const GptqLayer& layer) {
  const std::int64_t word_rows = layer.qweight.size(0), outputs = layer.qweight.size(1);
  const at::Tensor scales = layer.scales.to(at::kFloat);
  const std::int64_t codes_a_word = 32 / layer.bits;
  const at::Tensor zeros = codes_of_words(layer.qzeros, layer.bits)
                               .flatten(-2)
                               .add_(layer.stored_zero_offset);  // [G, O]
  const std::int64_t step =
      std::max<std::int64_t>(1, most_gptq_elements / (codes_a_word * outputs));
  for (std::int64_t row = 0; row < word_rows; row += step) {
    const std::int64_t length = std::min(step, word_rows - row);
    const at::Tensor codes = codes_of_words(layer.qweight.narrow(0, row, length), layer.bits)
                                 .permute({0, 2, 1})
                                 .reshape({length * codes_a_word, outputs});
    const at::Tensor groups = layer.g_idx.narrow(0, row * codes_a_word, length * codes_a_word);
    const at::Tensor differences = (codes - zeros.index_select(0, groups)).to(at::kFloat);
    out.narrow(0, row * codes_a_word, length * codes_a_word)
        .copy_(scales.index_select(0, groups) * differences);
  }
}

at::Tensor dropout(const at::Tensor& x, const at::Tensor& tokens, const DropoutKey& key, double p) {
  const auto scale = static_cast<float>(1.0 / (1.0 - p));
  const at::Tensor out = at::empty_like(x);
  const std::int64_t rows = x.size(0), dim = x.size(1);
  // Bits come for whole tiles.
  const std::int64_t before = key.first_channel % dropout_tile;
  const std::int64_t width = (before + dim + dropout_tile - 1) / dropout_tile * dropout_tile;
  const std::int64_t step =
      std::max<std::int64_t>(1, most_dropped_elements / std::max<std::int64_t>(1, width));
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t length = std::min(step, rows - row);
    const at::Tensor dropped =
        is_dropped(tokens.narrow(0, row, length), key, dim, std::lround(p * 65536.0));
    at::Tensor part = out.narrow(0, row, length);
    part.copy_(x.narrow(0, row, length).to(at::kFloat).mul(scale));
    part.masked_fill_(dropped, 0);
  }
  return out;
}

}  // namespace finetune::kernels::composed
