// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/unigram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "core/text.hpp"
#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

constexpr std::size_t most_unigram_tokens = 2'000'000;
// A piece is looked for at every character of a text, so what a text may cost grows with it.
constexpr std::size_t longest_unigram_piece = 1024;
constexpr std::size_t most_nodes = 8'000'000;
constexpr double unknown_penalty = 10;
// Where SentencePiece takes off what was added up, before single precision gets too coarse.
constexpr double largest_sum = 100'000;

std::size_t shared_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

/// Takes the score at `begin` off that and all later ones.
void start_from_zero(std::vector<Unigram::Node>& best, std::size_t begin) {
  const double offset = best[begin].score;
  best[begin].score = 0;
  // Pieces are at most this long, so nothing beyond has been reached.
  const std::size_t end = std::min(begin + longest_unigram_piece + 1, best.size());
  for (std::size_t i = begin + 1; i < end; ++i)
    if (best[i].begin >= 0) best[i].score = static_cast<float>(best[i].score - offset);
}

double score_of(const JsonNode& node) {
  if (!node.value().is_number()) node.refuse("this is not a number", "pieces have scores");
  const auto score = node.value().get<double>();
  if (!std::isfinite(score)) node.refuse("this is not a finite number", "scores are added up");
  return score;
}

}  // namespace

Unigram Unigram::read(const JsonNode& node) {
  node.only({"type", "unk_id", "vocab", "byte_fallback"});
  const auto rows = node.list("vocab");
  if (rows.empty() || rows.size() > most_unigram_tokens) {
    node.refuse(fmt::format("{} pieces", rows.size()),
                fmt::format("1 to {} are possible", most_unigram_tokens));
  }
  auto pieces = std::make_unique<Vocabulary>(static_cast<std::int32_t>(rows.size()));
  std::vector<double> scores;
  for (const JsonNode& row : rows) {
    const auto& pair = row.value();
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string())
      row.refuse("this is not a piece and its score", "[\"piece\", -1.5] is needed");
    const auto& piece = pair[0].get_ref<const std::string&>();
    if (!pieces->insert(piece, static_cast<std::int32_t>(scores.size())))
      row.refuse(fmt::format("the piece \"{}\" occurs twice", piece),
                 "its id would not be defined");
    scores.push_back(score_of(JsonNode(pair[1], row.place())));
  }
  Options options;
  options.byte_fallback = node.boolean("byte_fallback", false);
  if (const auto unknown = node.find("unk_id")) {
    options.unknown = unknown->as_id();
    if (*options.unknown >= pieces->size())
      unknown->refuse(fmt::format("id {}", *options.unknown), "the vocabulary ends before it");
  }
  const std::vector<bool> usable(scores.size(), true);
  return Unigram(std::move(pieces), std::move(scores), usable, options, node);
}

Unigram::Unigram(std::unique_ptr<Vocabulary> pieces, std::vector<double> scores,
                 const std::vector<bool>& usable, const Options& options, const JsonNode& place)
    : pieces_(std::move(pieces)), scores_(std::move(scores)), options_(options) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < scores_.size(); ++i)
    if (usable[i]) least = std::min(least, scores_[i]);
  unknown_score_ = (std::isfinite(least) ? least : 0) - unknown_penalty;
  if (options_.single_precision) unknown_score_ = static_cast<float>(unknown_score_);
  for (unsigned byte = 0; byte < 256; ++byte)
    fallback_.push_back(pieces_->find(fmt::format("<0x{:02X}>", byte)));
  make_trie(usable, place);
}

void Unigram::make_trie(const std::vector<bool>& usable, const JsonNode& place) {
  std::vector<std::int32_t> order;
  for (std::int32_t id = 0; id < pieces_->size(); ++id)
    if (usable[static_cast<std::size_t>(id)] && !pieces_->piece(id).empty()) order.push_back(id);
  std::sort(order.begin(), order.end(),
            [&](std::int32_t a, std::int32_t b) { return pieces_->piece(a) < pieces_->piece(b); });
  std::size_t num_nodes = 0;
  std::string_view last;
  for (const std::int32_t id : order) {
    const std::string_view piece = pieces_->piece(id);
    num_nodes += piece.size() - shared_prefix(last, piece);
    last = piece;
    if (piece.size() > longest_unigram_piece || num_nodes > most_nodes) {
      place.refuse(
          fmt::format("pieces of up to {} bytes and {} starts of pieces", piece.size(), num_nodes),
          fmt::format("{} and {} are possible", longest_unigram_piece, most_nodes));
    }
  }
  trie_ = std::make_unique<MergeTable>(num_nodes);
  std::int32_t next_node = 1;
  std::vector<std::int32_t> nodes{0};  // of each byte of `last`
  last = {};
  for (const std::int32_t id : order) {
    const std::string_view piece = pieces_->piece(id);
    nodes.resize(1 + shared_prefix(last, piece));
    for (std::size_t i = nodes.size() - 1; i < piece.size(); ++i) {
      const bool ends = i + 1 == piece.size();
      trie_->insert(nodes.back(), static_cast<unsigned char>(piece[i]),
                    {ends ? static_cast<std::uint32_t>(id) + 1 : 0U, next_node});
      nodes.push_back(next_node++);
    }
    last = piece;
  }
}

void Unigram::offer(Node& node, double score, std::int32_t id, std::size_t begin) const {
  if (options_.single_precision) score = static_cast<float>(score);
  if (node.begin >= 0 && score <= node.score) return;
  node = {score, id, static_cast<std::int32_t>(begin)};
}

void Unigram::reach(std::string_view word, std::size_t begin, std::vector<Node>& best) const {
  const double here = best[begin].score;
  const std::size_t length = utf8_length(word[begin]);
  bool has_character = false;
  std::int32_t node = 0;
  for (std::size_t end = begin; end < word.size();) {
    const auto* step = trie_->find(node, static_cast<unsigned char>(word[end]));
    if (step == nullptr) break;
    node = step->id;
    ++end;
    if (step->rank == 0) continue;
    const auto id = static_cast<std::int32_t>(step->rank - 1);
    offer(best[end], scores_[static_cast<std::size_t>(id)] + here, id, begin);
    has_character |= end - begin == length;
  }
  if (!has_character) offer(best[begin + length], unknown_score_ + here, Vocabulary::none, begin);
}

void Unigram::append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (const std::int32_t id = pieces_->find(text);
      id != Vocabulary::none && !options_.single_precision)
    return ids.push_back(id);  // the unknown token's own name, for the Hugging Face library
  const auto id_of = [&](char c) { return fallback_[static_cast<unsigned char>(c)]; };
  if (options_.byte_fallback &&
      std::all_of(text.begin(), text.end(), [&](char c) { return id_of(c) != Vocabulary::none; })) {
    std::transform(text.begin(), text.end(), std::back_inserter(ids), id_of);
    return;
  }
  if (!options_.unknown) {
    core::fail(
        core::ErrorKind::input,
        {"tokenizer", fmt::format("the vocabulary has no piece for \"{}\"", core::one_line(text)),
         "it has no unknown token and no byte fallback either, so the text would vanish",
         "Remove such text from the data or use another tokenizer."});
  }
  ids.push_back(*options_.unknown);
}

void Unigram::encode(std::string_view word, std::vector<std::int32_t>& ids,
                     Scratch& scratch) const {
  core::check(word.size() < std::numeric_limits<std::int32_t>::max(), "a word of 2 GiB");
  auto& best = scratch.best;
  best.assign(word.size() + 1, Node{0, Vocabulary::none, -1});
  for (std::size_t begin = 0; begin < word.size(); begin += utf8_length(word[begin])) {
    if (options_.single_precision && std::abs(best[begin].score) > largest_sum)
      start_from_zero(best, begin);
    reach(word, begin, best);
  }
  scratch.path.clear();
  for (auto end = static_cast<std::int32_t>(word.size()); end > 0;) {
    const Node& node = best[static_cast<std::size_t>(end)];
    scratch.path.push_back({0, node.id, node.begin});
    end = node.begin;
  }
  std::reverse(scratch.path.begin(), scratch.path.end());
  // Neighbouring unknown characters are one unknown token.
  const auto& path = scratch.path;
  for (std::size_t i = 0; i < path.size();) {
    if (path[i].id != Vocabulary::none && path[i].id != options_.unknown) {
      ids.push_back(path[i++].id);
      continue;
    }
    const auto begin = static_cast<std::size_t>(path[i].begin);
    while (i < path.size() && (path[i].id == Vocabulary::none || path[i].id == options_.unknown))
      ++i;
    const std::size_t end = i < path.size() ? static_cast<std::size_t>(path[i].begin) : word.size();
    append_unknown(word.substr(begin, end - begin), ids);
  }
}

}  // namespace finetune::tokenizer
