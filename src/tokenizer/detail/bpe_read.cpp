// SPDX-License-Identifier: Apache-2.0
// Reads and checks the model part of tokenizer.json.

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "tokenizer/detail/bpe.hpp"
#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

constexpr std::size_t most_tokens = 2'000'000;
constexpr std::size_t longest_bpe_token = 64 * 1024;
constexpr char32_t space_mark_code = 0x2581;

char32_t first_code_point(std::string_view text) {
  std::size_t i = 0;
  return next_code_point(text, i);
}

char32_t last_code_point(std::string_view text) {
  std::size_t i = previous_start(text, text.size());
  return next_code_point(text, i);
}

}  // namespace

Bpe Bpe::read(const JsonNode& node, bool byte_level) {
  const auto type = node.find("type");  // files older than the member hold byte-pair encoding
  if (type && type->as_text() != "BPE") node.refuse_type(type->as_text(), "BPE, Unigram");
  node.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
             "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  Bpe bpe;
  bpe.byte_level_ = byte_level;
  bpe.read_vocabulary(node.at("vocab"));
  bpe.read_options(node);
  bpe.read_merges(node.at("merges"));
  bpe.read_fallback();
  bpe.make_words(node);
  return bpe;
}

void Bpe::read_options(const JsonNode& node) {
  if (const auto dropout = node.find("dropout"); dropout && dropout->value() != 0) {
    dropout->refuse("dropout is set", "the same text would give other ids every time",
                    "Set it to null.");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto affix = node.find(key);
    if (affix && !affix->as_text().empty())
      affix->refuse("a mark inside of words is not supported", "it changes every piece");
  }
  ignore_merges_ = node.boolean("ignore_merges", false);
  fuse_unknown_ = node.boolean("fuse_unk", false);
  byte_fallback_ = node.boolean("byte_fallback", false);
  if (const auto unknown = node.find("unk_token")) {
    const std::int32_t id = pieces_->find(unknown->as_text());
    if (id == Vocabulary::none)
      unknown->refuse("the unknown token is not in the vocabulary", "it needs an id");
    unknown_ = id;
  }
}

void Bpe::read_vocabulary(const JsonNode& node) {
  if (!node.value().is_object()) node.refuse("this is not a JSON object", "it maps pieces to ids");
  if (node.value().empty() || node.value().size() > most_tokens) {
    node.refuse(fmt::format("{} pieces", node.value().size()),
                fmt::format("1 to {} are possible", most_tokens));
  }
  std::int32_t largest = 0;
  for (const auto& [piece, value] : node.value().items()) {
    const std::int32_t id = JsonNode(value, fmt::format("{}[\"{}\"]", node.place(), piece)).as_id();
    largest = std::max(largest, id);
  }
  // Added tokens may fill gaps, so a few ids more than pieces are possible.
  if (static_cast<std::size_t>(largest) >= most_tokens)
    node.refuse(fmt::format("id {}", largest), fmt::format("ids stay below {}", most_tokens));
  pieces_ = std::make_unique<Vocabulary>(largest + 1);
  for (const auto& [piece, value] : node.value().items()) {
    const auto id = value.get<std::int32_t>();
    if (piece.size() > longest_bpe_token)
      node.refuse(fmt::format("a piece of {} bytes", piece.size()), "64 KiB are possible");
    if (!pieces_->insert(piece, id)) {
      node.refuse(
          fmt::format("id {} occurs twice, for \"{}\" and \"{}\"", id, pieces_->piece(id), piece),
          "an id stands for one piece");
    }
  }
}

void Bpe::read_merges(const JsonNode& node) {
  if (!node.value().is_array()) node.refuse("this is not a JSON array", "merges have an order");
  const core::Json& rows = node.value();
  if (rows.size() > most_tokens) {
    node.refuse(fmt::format("{} merges", rows.size()),
                fmt::format("at most {} are possible", most_tokens));
  }
  merges_ = std::make_unique<MergeTable>(rows.size());
  ascii_seams_.assign(128 * 128, false);
  merges_on_.assign(static_cast<std::size_t>(pieces_->size()), false);
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const core::Json& row = rows[i];
    const auto refuse = [&] {
      JsonNode(row, fmt::format("{}[{}]", node.place(), i))
          .refuse("this is not a merge", "two pieces are needed: \"a b\" or [\"a\", \"b\"]");
    };
    if (row.is_array()) {
      if (row.size() != 2 || !row[0].is_string() || !row[1].is_string()) refuse();
      add_merge(node, row[0].get_ref<const std::string&>(), row[1].get_ref<const std::string&>(),
                rank++);
      continue;
    }
    if (!row.is_string()) refuse();
    const std::string_view text = row.get_ref<const std::string&>();
    if (text.starts_with("#version")) continue;  // the first line of merges.txt, kept by some
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      refuse();
    add_merge(node, text.substr(0, space), text.substr(space + 1), rank++);
  }
}

void Bpe::add_merge(const JsonNode& merges, std::string_view left, std::string_view right,
                    std::uint32_t rank) {
  const std::string together = std::string(left) + std::string(right);
  for (const std::string_view piece : {left, right, std::string_view(together)}) {
    if (!piece.empty() && pieces_->find(piece) != Vocabulary::none) continue;
    merges.refuse(fmt::format("merge {} needs the piece \"{}\"", rank, piece),
                  "the vocabulary does not have it", "The file is damaged: get it again.");
  }
  const std::int32_t left_id = pieces_->find(left);
  const std::int32_t right_id = pieces_->find(right);
  merges_->insert(left_id, right_id, {rank, pieces_->find(together)});
  merges_on_[static_cast<std::size_t>(left_id)] = true;
  merges_on_[static_cast<std::size_t>(right_id)] = true;
  add_seam(left, right);
}

void Bpe::add_seam(std::string_view left, std::string_view right) {
  const char32_t before = last_code_point(left);
  const char32_t after = first_code_point(right);
  if (after == space_mark_code && before != space_mark_code) words_begin_at_marks_ = false;
  if (before < 128 && after < 128) {
    ascii_seams_[before * 128 + after] = true;
  } else {
    seams_.insert(static_cast<std::uint64_t>(before) << 32 | after);
  }
}

void Bpe::read_fallback() {
  fallback_.assign(256, Vocabulary::none);
  for (std::size_t byte = 0; byte < 256; ++byte)
    fallback_[byte] = pieces_->find(fmt::format("<0x{:02X}>", byte));
  // A byte or unknown token that merges is not a character, so seams of characters say nothing.
  const auto merges_on = [&](std::int32_t id) {
    return id != Vocabulary::none && merges_on_[static_cast<std::size_t>(id)];
  };
  can_cut_ = !byte_level_ && !(unknown_ && merges_on(*unknown_)) &&
             std::none_of(fallback_.begin(), fallback_.end(), merges_on);
}

void Bpe::make_words(const JsonNode& node) {
  words_ = pieces_.get();
  if (byte_level_) {
    bytes_ = std::make_unique<Vocabulary>(pieces_->size());
    std::string bytes;
    for (std::int32_t id = 0; id < pieces_->size(); ++id) {
      // A piece with any other character can never be met: words consist of the alphabet.
      if (pieces_->contains(id) && to_bytes(pieces_->piece(id), bytes)) bytes_->insert(bytes, id);
    }
    words_ = bytes_.get();
  }
  for (int byte = 0; byte < 256 && byte_level_ && byte_fallback_; ++byte) {
    const char character = static_cast<char>(byte);
    if (words_->find({&character, 1}) != Vocabulary::none) continue;
    node.refuse(fmt::format("byte_fallback with ByteLevel, and no piece for byte 0x{:02x}", byte),
                "it would spell the alphabet of the bytes in bytes", "Set it to false.");
  }
  make_whole();
}

void Bpe::make_whole() {
  const auto count = static_cast<std::size_t>(pieces_->size());
  whole_ = std::make_unique<std::atomic<Whole>[]>(count);
  for (std::size_t i = 0; i < count; ++i)
    whole_[i].store(Whole::not_known, std::memory_order_relaxed);
}

}  // namespace finetune::tokenizer
