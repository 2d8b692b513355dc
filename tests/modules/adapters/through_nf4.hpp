#pragma once
// SPDX-License-Identifier: Apache-2.0
// What NF4 leaves of a tensor, by its kernels.

#include <cstdint>
#include <vector>

#include "kernels/nf4.hpp"

namespace finetune::tests {

/// `nests`: blocks' maxima are quantised in turn.
inline std::vector<float> through_nf4(const std::vector<float>& values, bool nests) {
  const std::size_t num_blocks = (values.size() + 63) / 64;
  std::vector<float> maxima(num_blocks), back(values.size());
  std::vector<std::uint8_t> codes((values.size() + 1) / 2), maxima_codes(num_blocks);
  std::vector<float> nested((num_blocks + 255) / 256);
  kernels::nf4_absmax(values, maxima);
  kernels::nf4_quantize(values, maxima, codes);
  kernels::Nf4<float> args{.codes = codes, .out = back};
  if (nests) {
    args.offset = kernels::nested_offset(maxima);
    kernels::nested_quantize(maxima, args.offset, maxima_codes, nested);
    args.absmax_codes = maxima_codes;
    args.nested_absmax = nested;
  } else {
    args.absmax = maxima;
  }
  kernels::nf4_dequantize(args);
  return back;
}

}  // namespace finetune::tests
