// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/vocabulary.hpp"

#define XXH_INLINE_ALL
#define XXH_VECTOR 0  // pieces are short; the AVX-512 code for long input trips GCC 12's warnings
#include <xxhash.h>

#include <bit>
#include <limits>

#include "core/error.hpp"

namespace finetune::tokenizer {
namespace {

constexpr std::uint64_t no_pair = ~std::uint64_t{0};

std::size_t table_size(std::size_t num_entries) {
  return std::bit_ceil(2 * num_entries + 2);
}

std::uint32_t hash_of(std::string_view piece) {
  return static_cast<std::uint32_t>(XXH3_64bits(piece.data(), piece.size()));
}

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

}  // namespace

Vocabulary::Vocabulary(std::int32_t num_ids)
    : slots_(table_size(static_cast<std::size_t>(num_ids)), Slot{0, none}),
      entries_(static_cast<std::size_t>(num_ids)) {}

bool Vocabulary::insert(std::string_view piece, std::int32_t id) {
  core::check(id >= 0 && id < size(), "a token id lies outside of the vocabulary");
  core::check(bytes_.size() + piece.size() < std::numeric_limits<std::uint32_t>::max(),
              "a vocabulary has more than 4 GiB of text");
  Entry& entry = entries_[static_cast<std::size_t>(id)];
  if (entry.used || find(piece) != none) return false;
  entry.offset = static_cast<std::uint32_t>(bytes_.size());
  entry.length = static_cast<std::uint32_t>(piece.size()) & 0x7FFFFFFFU;
  entry.used = 1;
  bytes_ += piece;
  const std::uint32_t hash = hash_of(piece);
  std::size_t i = hash & (slots_.size() - 1);
  while (slots_[i].id != none)
    i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {hash, id};
  return true;
}

std::int32_t Vocabulary::find(std::string_view piece) const {
  const std::uint32_t hash = hash_of(piece);
  for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
    const Slot slot = slots_[i];
    if (slot.id == none) return none;
    if (slot.hash == hash && this->piece(slot.id) == piece) return slot.id;
  }
}

std::string_view Vocabulary::piece(std::int32_t id) const {
  const Entry& entry = entries_[static_cast<std::size_t>(id)];
  return std::string_view(bytes_).substr(entry.offset, entry.length);
}

MergeTable::MergeTable(std::size_t num_merges)
    : slots_(table_size(num_merges), Slot{no_pair, {0, 0}}) {}

std::size_t MergeTable::start(std::uint64_t pair) const {
  // Fibonacci hashing; both halves of the product take part.
  const std::uint64_t mixed = pair * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(mixed ^ mixed >> 32) & (slots_.size() - 1);
}

void MergeTable::insert(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t i = start(pair);
  while (slots_[i].pair != no_pair && slots_[i].pair != pair)
    i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {pair, merge};
}

const MergeTable::Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  for (std::size_t i = start(pair);; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].pair == pair) return &slots_[i].merge;
    if (slots_[i].pair == no_pair) return nullptr;
  }
}

}  // namespace finetune::tokenizer
