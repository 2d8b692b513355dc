#pragma once
// SPDX-License-Identifier: Apache-2.0
// What SentencePiece does to a text before its model sees it.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/detail/charsmap.hpp"
#include "tokenizer/detail/vocabulary.hpp"

namespace finetune::tokenizer {

struct SentencePieceNormalizer {
  std::optional<Charsmap> map;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  /// Symbols that the user of the trainer defined; they stay as they are. May be nullptr.
  std::shared_ptr<const Vocabulary> fixed;
  std::size_t longest_fixed = 0;

  /// The normalised text. `prefix`: the dummy prefix may go before it.
  std::string apply(std::string_view text, bool prefix) const;

 private:
  struct Start {
    std::size_t length;
    std::string_view becomes;
  };
  Start start_of(std::string_view text) const;
};

}  // namespace finetune::tokenizer
