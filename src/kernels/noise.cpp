// SPDX-License-Identifier: Apache-2.0
#include "kernels/noise.hpp"

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/host_threads.hpp"
#include "kernels/detail/philox_lanes.hpp"

namespace finetune::kernels {
namespace {

constexpr int lanes = noise_lanes;

template <class T>
void add_to_lanes(T* x, const std::uint32_t* words, float scale, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const float uniform = static_cast<float>(words[i] >> 8) * 0x1p-23f - 1.0f;
    x[i] = round_to<T>(to_float(x[i]) + scale * uniform);
  }
}

template <class T>
void add_to_row(T* x, std::int64_t dim, std::uint64_t token, float scale, std::uint64_t seed) {
  const auto use = static_cast<std::uint32_t>(core::RandomUse::noise);
  PhiloxLanes<lanes> random;
  for (std::int64_t tile = 0; tile * noise_tile < dim; ++tile) {
    for (int i = 0; i < lanes; ++i) {
      random.words[0][i] = static_cast<std::uint32_t>(token);
      random.words[1][i] = static_cast<std::uint32_t>(token >> 32);
      random.words[2][i] = static_cast<std::uint32_t>(tile * lanes + i);
      random.words[3][i] = 0;
    }
    random.run(static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32) + use);
    for (int word = 0; word < 4; ++word) {
      const std::int64_t begin = tile * noise_tile + word * lanes;
      if (begin < dim)
        add_to_lanes(x + begin, random.words[word], scale,
                     std::min<std::int64_t>(lanes, dim - begin));
    }
  }
}

}  // namespace

template <class T>
void add_noise(const Noise<T>& args) {
  const std::int64_t rows = std::ssize(args.tokens);
  core::check(std::ssize(args.scales) == rows, "noise: a scale for each token");
  core::check(rows > 0 ? std::ssize(args.x) % rows == 0 : args.x.empty(), "noise: x is [N, D]");
  if (args.x.empty()) return;
  const std::int64_t dim = std::ssize(args.x) / rows;
  launch(rows, grain_rows(dim), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const auto i = static_cast<std::size_t>(row);
      add_to_row(args.x.data() + row * dim, dim, static_cast<std::uint64_t>(args.tokens[i]),
                 args.scales[i], args.seed);
    }
  });
}

template void add_noise(const Noise<float>&);
template void add_noise(const Noise<bf16>&);

}  // namespace finetune::kernels
