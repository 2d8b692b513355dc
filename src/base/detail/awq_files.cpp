// SPDX-License-Identifier: Apache-2.0
#include "base/detail/awq_files.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/detail/read_scales.hpp"
#include "model/packing.hpp"

namespace finetune::base {
namespace {

using core::DType;

constexpr std::int64_t awq_word = 8;
/// Where in a word, in codes from its lowest bits, AWQ's kernels want output 0, 1, ... of eight.
constexpr std::array<int, awq_word> awq_place = {0, 4, 1, 5, 2, 6, 3, 7};
/// Words that are in memory at once, next to those they become.
constexpr std::int64_t awq_piece_words = std::int64_t{1} << 20;

std::uint32_t awq_code(std::uint32_t word, std::size_t output) {
  return word >> 4 * awq_place[output] & 15u;
}

/// Words [first, first + target's) of a tensor of such words.
void read_words(const weights::ModelFiles& files, const std::string& name,
                const std::vector<std::int64_t>& shape, std::int64_t first,
                std::span<std::uint32_t> target) {
  files.read({.name = name,
              .shape = shape,
              .dtype = DType::i32,
              .offset = first,
              .count = std::ssize(target)},
             std::as_writable_bytes(target));
}

/// Words of zeros in the order of their outputs.
void sort_zeros(std::span<std::uint32_t> words) {
  for (std::uint32_t& word : words) {
    std::uint32_t sorted = 0;
    for (std::size_t i = 0; i < awq_word; ++i)
      sorted |= awq_code(word, i) << 4 * i;
    word = sorted;
  }
}

/// The codes of a matrix: read as words of eight outputs of an input, kept as words of eight inputs
/// of an output.
class AwqCodes {
 public:
  AwqCodes(const weights::ModelFiles& files, const model::Parameter& row)
      : files_(files),
        name_(model::packed_name(row) + ".qweight"),
        outputs_(row.shape[0]),
        columns_(row.shape[0] / awq_word),
        shape_({row.shape[1], columns_}) {}

  /// Words [first, ...) of the plane [in / 8, out].
  void read(std::int64_t first, std::span<std::uint32_t> target) {
    while (!target.empty()) {
      const std::int64_t row = first / outputs_, begin = first % outputs_;
      const std::int64_t whole =
          begin == 0 ? std::min(std::ssize(target), awq_piece_words) / outputs_ : 0;
      const std::int64_t count =
          whole > 0 ? whole * outputs_ : std::min(std::ssize(target), outputs_ - begin);
      const auto piece = target.first(static_cast<std::size_t>(count));
      if (whole > 0) {
        read_rows(row, whole, piece);
      } else {
        read_part(row, begin, piece);
      }
      first += count;
      target = target.subspan(piece.size());
    }
  }

 private:
  void read_rows(std::int64_t row, std::int64_t num, std::span<std::uint32_t> target) {
    words_.resize(static_cast<std::size_t>(num * awq_word * columns_));
    read_words(files_, name_, shape_, row * awq_word * columns_, words_);
    at::parallel_for(0, num, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i)
        turn(words_.data() + i * awq_word * columns_, columns_, 0,
             target.subspan(static_cast<std::size_t>(i * outputs_),
                            static_cast<std::size_t>(outputs_)));
    });
  }

  /// Outputs [begin, begin + target's) of eight inputs.
  void read_part(std::int64_t row, std::int64_t begin, std::span<std::uint32_t> target) {
    const std::int64_t first = begin / awq_word;
    const std::int64_t num = (begin + std::ssize(target) + awq_word - 1) / awq_word - first;
    words_.resize(static_cast<std::size_t>(awq_word * num));
    for (std::int64_t input = 0; input < awq_word; ++input)
      read_words(files_, name_, shape_, (row * awq_word + input) * columns_ + first,
                 std::span(words_).subspan(static_cast<std::size_t>(input * num),
                                           static_cast<std::size_t>(num)));
    turn(words_.data(), num, begin % awq_word, target);
  }

  /// Eight rows of `columns` words; output `begin` of them is the first of the target.
  static void turn(const std::uint32_t* words, std::int64_t columns, std::int64_t begin,
                   std::span<std::uint32_t> target) {
    for (std::size_t i = 0; i < target.size(); ++i) {
      const std::int64_t output = begin + static_cast<std::int64_t>(i);
      const std::uint32_t* column = words + output / awq_word;
      std::uint32_t word = 0;
      for (std::int64_t input = 0; input < awq_word; ++input)
        word |= awq_code(column[input * columns], static_cast<std::size_t>(output % awq_word))
                << 4 * input;
      target[i] = word;
    }
  }

  const weights::ModelFiles& files_;
  std::string name_;
  std::int64_t outputs_, columns_;
  std::vector<std::int64_t> shape_;
  std::vector<std::uint32_t> words_;
};

}  // namespace

void add_expected_awq(const model::Parameter& row, std::vector<weights::ExpectedTensor>& expected) {
  namespace at_plane = model::gptq_plane;
  const std::string name = model::packed_name(row);
  const auto planes = model::planes(row, DType::f32);
  expected.push_back({name + ".qweight", {row.shape[1], row.shape[0] / awq_word}});
  expected.push_back({name + ".qzeros", planes[at_plane::zeros].shape});
  expected.push_back({name + ".scales", planes[at_plane::scales].shape});
}

void read_awq_plane(const weights::ModelFiles& files, const model::Parameter& row, int i,
                    std::int64_t first, std::span<std::byte> target) {
  namespace at_plane = model::gptq_plane;
  const model::Plane plane = model::planes(row, DType::f32).at(static_cast<std::size_t>(i));
  const std::string name = model::packed_name(row) + plane.suffix;
  const std::span<std::uint32_t> words(reinterpret_cast<std::uint32_t*>(target.data()),
                                       target.size() / sizeof(std::uint32_t));
  switch (i) {
    case at_plane::codes:
      return AwqCodes(files, row).read(first, words);
    case at_plane::zeros:
      read_words(files, name, plane.shape, first, words);
      return sort_zeros(words);
    case at_plane::groups: {
      // Inputs are in order.
      const std::int64_t group = row.packing.group_size > 0 ? row.packing.group_size : row.shape[1];
      for (std::size_t k = 0; k < words.size(); ++k)
        words[k] = static_cast<std::uint32_t>((first + static_cast<std::int64_t>(k)) / group);
      return;
    }
    default:
      read_finite(files, name, plane, first, target);
  }
}

}  // namespace finetune::base
