// SPDX-License-Identifier: Apache-2.0
// Merges that follow from the pieces themselves, as in tiktoken and SentencePiece.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tokenizer/detail/bpe.hpp"
#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

// Both parts of every cut are looked up, so a piece costs the square of its length.
constexpr std::size_t longest_ranked_piece = 4096;
constexpr std::uint64_t most_work = std::uint64_t{1} << 31;

struct Cut {
  std::int32_t left;
  std::int32_t right;
  std::int32_t whole;
};

}  // namespace

Bpe Bpe::of_ranks(std::unique_ptr<Vocabulary> pieces, const std::vector<std::uint32_t>& ranks,
                  const Options& options, const JsonNode& place) {
  Bpe bpe;
  bpe.byte_level_ = options.byte_level;
  bpe.ignore_merges_ = options.whole_words;
  bpe.fuse_unknown_ = options.fuse_unknown;
  bpe.byte_fallback_ = options.byte_fallback;
  bpe.unknown_ = options.unknown;
  bpe.pieces_ = std::move(pieces);
  bpe.words_ = bpe.pieces_.get();
  bpe.find_cuts(ranks, place);
  bpe.read_fallback();
  bpe.make_whole();
  return bpe;
}

void Bpe::find_cuts(const std::vector<std::uint32_t>& ranks, const JsonNode& place) {
  const auto merges = [&](std::int32_t id) {
    return id != Vocabulary::none && ranks[static_cast<std::size_t>(id)] != never;
  };
  std::vector<Cut> cuts;
  std::uint64_t work = 0;
  for (std::int32_t id = 0; id < pieces_->size(); ++id) {
    if (!merges(id)) continue;
    const std::string_view piece = pieces_->piece(id);
    work += piece.size() * piece.size();
    if (piece.size() > longest_ranked_piece || work > most_work) {
      place.refuse(fmt::format("a piece of {} bytes, or many long ones", piece.size()),
                   "every way to cut them must be tried");
    }
    for (std::size_t i = byte_level_ ? 1 : utf8_length(piece[0]); i < piece.size();
         i += byte_level_ ? 1 : utf8_length(piece[i])) {
      const std::int32_t left = pieces_->find(piece.substr(0, i));
      if (!merges(left)) continue;
      const std::int32_t right = pieces_->find(piece.substr(i));
      if (merges(right)) cuts.push_back({left, right, id});
    }
  }
  merges_ = std::make_unique<MergeTable>(cuts.size());
  ascii_seams_.assign(128 * 128, false);
  merges_on_.assign(static_cast<std::size_t>(pieces_->size()), false);
  for (const Cut& cut : cuts) {
    merges_->insert(cut.left, cut.right, {ranks[static_cast<std::size_t>(cut.whole)], cut.whole});
    merges_on_[static_cast<std::size_t>(cut.left)] = true;
    merges_on_[static_cast<std::size_t>(cut.right)] = true;
    if (!byte_level_) add_seam(pieces_->piece(cut.left), pieces_->piece(cut.right));
  }
}

}  // namespace finetune::tokenizer
