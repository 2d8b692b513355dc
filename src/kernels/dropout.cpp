// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout.hpp"

#include <cmath>
#include <iterator>

#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"
#include "kernels/detail/philox_lanes.hpp"

namespace finetune::kernels {
namespace {

constexpr int lanes = dropout_lanes;

using Philox = PhiloxLanes<lanes>;

/// The blocks of a token's tile, whose counters differ in their third word.
KOKKOS_INLINE_FUNCTION void draw(std::uint64_t token, std::uint32_t first, std::uint32_t stream,
                                 std::uint32_t key0, std::uint32_t key1, Philox& random) {
  for (int i = 0; i < lanes; ++i) {
    random.words[0][i] = static_cast<std::uint32_t>(token);
    random.words[1][i] = static_cast<std::uint32_t>(token >> 32);
    random.words[2][i] = first + static_cast<std::uint32_t>(i);
    random.words[3][i] = stream;
  }
  random.run(key0, key1);
}

template <class T>
struct Drop {
  const T* x;
  const std::int64_t* tokens;
  T* out;
  std::int64_t dim;
  std::int64_t before;  // channels of a row's first tile that are not in it
  std::uint32_t first_block;
  std::uint32_t key0, key1, stream, threshold;
  float scale;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    Philox random;
    for (std::int64_t row = first; row < last; ++row) {
      for (std::int64_t tile = 0; tile * dropout_tile < before + dim; ++tile) {
        draw(static_cast<std::uint64_t>(tokens[row]),
             first_block + static_cast<std::uint32_t>(tile * lanes), stream, key0, key1, random);
        const std::int64_t begin = tile * dropout_tile - before;
        for (int plane = 0; plane < 8 && begin + plane * lanes < dim; ++plane) {
          const std::int64_t lane = begin + plane * lanes;
          const std::int64_t skipped = lane < 0 ? -lane : 0;
          if (skipped >= lanes) continue;
          const std::int64_t left = dim - lane;
          keep(random.words[plane / 2] + skipped, plane % 2 * 16, row * dim + lane + skipped,
               static_cast<int>((left < lanes ? left : lanes) - skipped));
        }
      }
    }
  }

  KOKKOS_INLINE_FUNCTION void keep(const std::uint32_t* words, int shift, std::int64_t at,
                                   int count) const {
#pragma GCC ivdep
    for (int i = 0; i < count; ++i) {
      const bool is_kept = (words[i] >> shift & 0xFFFFu) >= threshold;
      out[at + i] = is_kept ? round_to<T>(to_float(x[at + i]) * scale) : T{0};
    }
  }
};

/// A block of random words each, and the eight elements of a row that it decides about.
template <class T>
struct DropBlock {
  Drop<T> by;
  std::int64_t blocks;  // of a row

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t row = i / blocks, block = i % blocks;
    const auto token = static_cast<std::uint64_t>(by.tokens[row]);
    PhiloxLanes<1> random{{{static_cast<std::uint32_t>(token)},
                           {static_cast<std::uint32_t>(token >> 32)},
                           {by.first_block + static_cast<std::uint32_t>(block)},
                           {by.stream}}};
    random.run(by.key0, by.key1);
    const std::int64_t begin = block / lanes * dropout_tile + block % lanes - by.before;
    for (int plane = 0; plane < 8; ++plane) {
      const std::int64_t d = begin + plane * lanes;
      if (d >= 0 && d < by.dim)
        by.keep(random.words[plane / 2], plane % 2 * 16, row * by.dim + d, 1);
    }
  }
};

}  // namespace

template <class T>
void dropout(const Dropout<T>& args, const Place& place) {
  core::check(args.p >= 0.0 && args.p < 1.0, "dropout: p lies in [0, 1)");
  core::check(args.x.size() == args.out.size(), "dropout: x and out have the same size");
  const std::int64_t rows = std::ssize(args.tokens);
  core::check(rows > 0 ? std::ssize(args.x) % rows == 0 : args.x.empty(), "dropout: x is [N, D]");
  if (args.x.empty()) return;
  const std::int64_t dim = std::ssize(args.x) / rows;
  const auto use = static_cast<std::uint32_t>(core::RandomUse::dropout);
  const std::int64_t tile = args.key.first_channel / dropout_tile;
  const std::int64_t before = args.key.first_channel % dropout_tile;
  const Drop<T> drop{args.x.data(),
                     args.tokens.data(),
                     args.out.data(),
                     dim,
                     before,
                     static_cast<std::uint32_t>(tile * lanes),
                     static_cast<std::uint32_t>(args.key.seed),
                     static_cast<std::uint32_t>(args.key.seed >> 32) + use,
                     args.key.stream,
                     static_cast<std::uint32_t>(std::lround(args.p * 65536.0)),
                     static_cast<float>(1.0 / (1.0 - args.p))};
  const std::int64_t blocks = (before + dim + dropout_tile - 1) / dropout_tile * lanes;
  launch(place, rows, grain_rows(dim), drop, Threads<DropBlock<T>>{rows * blocks, {drop, blocks}});
}

template void dropout(const Dropout<float>&, const Place&);
template void dropout(const Dropout<bf16>&, const Place&);

}  // namespace finetune::kernels
