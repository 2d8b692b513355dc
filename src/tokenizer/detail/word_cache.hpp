#pragma once
// SPDX-License-Identifier: Apache-2.0
// Ids of words met before: most words of a text are a few thousand that come again and again.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace finetune::tokenizer {

/// A direct-mapped table, a cache line a word; a new word takes the place of the one before it.
/// Short words only, whose bytes are compared as three numbers. Not for several threads at once.
class WordCache {
 public:
  static constexpr std::size_t longest_word = 24;
  static constexpr std::size_t most_ids = 9;

  /// The ids of `word`, empty if it is not there.
  std::span<const std::int32_t> find(std::string_view word) const {
    if (word.size() > longest_word) return {};
    const Key key(word);
    const Slot& slot = slots_[key.slot()];
    if (slot.length != word.size() || slot.key.words != key.words) return {};
    return {slot.ids.data(), slot.count};
  }

  /// Keeps the ids of `word` (not empty), if it is short enough.
  void insert(std::string_view word, std::span<const std::int32_t> ids) {
    if (word.size() > longest_word || ids.size() > most_ids) return;
    const Key key(word);
    Slot& slot = slots_[key.slot()];
    slot.key = key;
    slot.length = static_cast<std::uint8_t>(word.size());
    slot.count = static_cast<std::uint8_t>(ids.size());
    std::copy(ids.begin(), ids.end(), slot.ids.begin());
  }

 private:
  static constexpr unsigned slot_bits = 14;

  struct Key {
    std::array<std::uint64_t, 3> words{};

    Key() = default;
    /// The bytes of `word`, in overlapping loads: with its length they say all of it.
    explicit Key(std::string_view word) {
      const char* data = word.data();
      const std::size_t size = word.size();
      if (size >= 8) {
        std::memcpy(&words[0], data, 8);
        std::memcpy(&words[1], data + (size > 16 ? 8 : size - 8), 8);
        std::memcpy(&words[2], data + size - 8, 8);
      } else if (size >= 4) {
        std::uint32_t ends[2];
        std::memcpy(&ends[0], data, 4);
        std::memcpy(&ends[1], data + size - 4, 4);
        words[0] = static_cast<std::uint64_t>(ends[1]) << 32 | ends[0];
      } else {
        for (std::size_t i = 0; i < size; ++i)
          words[0] = words[0] << 8 | static_cast<unsigned char>(data[i]);
      }
    }

    std::size_t slot() const {
      constexpr std::uint64_t odd = 0x9E3779B97F4A7C15ULL;
      const std::uint64_t mixed = ((words[0] * odd ^ words[1]) * odd ^ words[2]) * odd;
      return static_cast<std::size_t>(mixed >> (64 - slot_bits));
    }
  };

  struct alignas(64) Slot {
    Key key;
    std::uint8_t length = 0;
    std::uint8_t count = 0;
    std::array<std::int32_t, most_ids> ids{};
  };
  static_assert(sizeof(Slot) == 64);

  std::unique_ptr<Slot[]> slots_ = std::make_unique<Slot[]>(std::size_t{1} << slot_bits);
};

}  // namespace finetune::tokenizer
