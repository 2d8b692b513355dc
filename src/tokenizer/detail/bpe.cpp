// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/bpe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "core/error.hpp"
#include "core/text.hpp"
#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

/// std::push_heap keeps the largest in front; the smallest order is wanted there.
constexpr auto later = [](const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.order > b.order;
};

std::uint64_t order_of(std::uint32_t rank, std::int32_t position) {
  return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(position);
}

}  // namespace

/// A run of unknown characters that has not been written yet, because the next may join it.
struct Bpe::Unknown {
  bool pending = false;
};

void Bpe::encode(std::string_view text, std::vector<std::int32_t>& ids, Scratch& scratch) const {
  core::check(text.size() < std::numeric_limits<std::int32_t>::max(), "a word of 2 GiB");
  Unknown unknown;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = word_end(text, begin);
    word(text.substr(begin, end - begin), unknown, ids, scratch);
    begin = end;
  }
  if (unknown.pending) ids.push_back(*unknown_);
}

/// Where the word ends that starts at `begin`: before a mark behind anything else. Only in
/// SentencePiece style, where a whole text may come at once.
std::size_t Bpe::word_end(std::string_view text, std::size_t begin) const {
  if (!can_cut_ || !words_begin_at_marks_ || ignore_merges_) return text.size();
  constexpr std::string_view mark = "\u2581";
  const auto is_mark = [&](std::size_t i) { return text.substr(i, mark.size()) == mark; };
  std::size_t i = begin;
  while (is_mark(i))
    i += mark.size();
  do {
    i = text.find(mark[0], i + 1);
    if (i == std::string_view::npos) return text.size();
  } while (!is_mark(i));
  return i;
}

void Bpe::word(std::string_view text, Unknown& unknown, std::vector<std::int32_t>& ids,
               Scratch& scratch) const {
  if (unknown.pending) return cut_word(text, unknown, ids, scratch);
  const auto known = scratch.cache.find(text);
  if (!known.empty()) {
    ids.insert(ids.end(), known.begin(), known.end());
    return;
  }
  const std::size_t before = ids.size();
  cut_word(text, unknown, ids, scratch);
  if (!unknown.pending && ids.size() > before)
    scratch.cache.insert(text, std::span(ids).subspan(before));
}

void Bpe::cut_word(std::string_view text, Unknown& unknown, std::vector<std::int32_t>& ids,
                   Scratch& scratch) const {
  if (ignore_merges_) {
    const std::int32_t id = words_->find(text);
    if (id != Vocabulary::none) return ids.push_back(id);
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = segment_end(text, begin);
    segment(text.substr(begin, end - begin), unknown, ids, scratch);
    begin = end;
  }
}

bool Bpe::joined(char32_t left, char32_t right) const {
  if (left < 128 && right < 128) return ascii_seams_[left * 128 + right];
  return seams_.contains(static_cast<std::uint64_t>(left) << 32 | right);
}

std::size_t Bpe::segment_end(std::string_view word, std::size_t begin) const {
  if (!can_cut_) return word.size();
  std::size_t end = begin;
  char32_t left = next_code_point(word, end);
  while (end < word.size()) {
    std::size_t after = end;
    const char32_t right = next_code_point(word, after);
    if (!joined(left, right)) break;
    left = right;
    end = after;
  }
  return end;
}

void Bpe::segment(std::string_view text, Unknown& unknown, std::vector<std::int32_t>& ids,
                  Scratch& scratch) const {
  const std::int32_t id = words_->find(text);
  std::atomic<Whole>* whole = nullptr;
  if (id != Vocabulary::none && !unknown.pending) {
    whole = &whole_[static_cast<std::size_t>(id)];
    if (whole->load(std::memory_order_relaxed) == Whole::yes) {
      ids.push_back(id);
      return;
    }
  }
  const std::size_t before = ids.size();
  symbols_of(text, unknown, scratch);
  constexpr std::size_t few = 24;
  if (scratch.symbols.size() <= few) {
    merge_few(scratch);
  } else {
    merge_all(scratch);
  }
  for (const Scratch::Symbol& symbol : scratch.symbols)
    if (symbol.alive) ids.push_back(symbol.id);
  if (whole != nullptr) {
    const bool same = ids.size() == before + 1 && ids.back() == id && !unknown.pending;
    whole->store(same ? Whole::yes : Whole::no, std::memory_order_relaxed);
  }
}

void Bpe::symbols_of(std::string_view text, Unknown& unknown, Scratch& scratch) const {
  scratch.symbols.clear();
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = byte_level_ ? 1 : utf8_length(text[i]);
    const std::string_view character = text.substr(i, length);
    const std::int32_t id = words_->find(character);
    if (id == Vocabulary::none) {
      unknown_symbol(character, unknown, scratch);
    } else {
      if (unknown.pending) scratch.symbols.push_back({*unknown_, 0, 0, true});
      unknown.pending = false;
      scratch.symbols.push_back({id, 0, 0, true});
    }
    i += length;
  }
  // Where words are not cut, an unknown token may itself take part in a merge.
  if (!can_cut_ && unknown.pending) {
    scratch.symbols.push_back({*unknown_, 0, 0, true});
    unknown.pending = false;
  }
}

void Bpe::unknown_symbol(std::string_view text, Unknown& unknown, Scratch& scratch) const {
  const auto id_of = [&](char c) { return fallback_[static_cast<unsigned char>(c)]; };
  if (byte_fallback_ &&
      std::all_of(text.begin(), text.end(), [&](char c) { return id_of(c) != Vocabulary::none; })) {
    for (const char c : text)
      scratch.symbols.push_back({id_of(c), 0, 0, true});
    return;
  }
  if (!unknown_) {
    core::fail(
        core::ErrorKind::input,
        {"tokenizer", fmt::format("the vocabulary has no piece for \"{}\"", core::one_line(text)),
         "it has no unknown token and no byte fallback either, so the text would vanish",
         "Remove such text from the data or use another tokenizer."});
  }
  if (unknown.pending && !fuse_unknown_) scratch.symbols.push_back({*unknown_, 0, 0, true});
  unknown.pending = true;
}

/// For short words: all pairs are looked through for the next one to merge.
void Bpe::merge_few(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& pairs = scratch.heap;  // pairs[i]: symbols i and i + 1
  constexpr std::uint64_t never_merges = ~std::uint64_t{0};
  const auto look_up = [&](std::size_t i) {
    const auto* merge = merges_->find(symbols[i].id, symbols[i + 1].id);
    pairs[i] = merge == nullptr ? Scratch::Candidate{never_merges, 0}
                                : Scratch::Candidate{merge->rank, merge->id};
  };
  if (symbols.size() < 2) return;
  pairs.resize(symbols.size() - 1);
  for (std::size_t i = 0; i < pairs.size(); ++i)
    look_up(i);
  while (!pairs.empty()) {
    const auto best = std::min_element(
        pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.order < b.order; });
    if (best->order == never_merges) return;
    const auto i = static_cast<std::size_t>(best - pairs.begin());
    symbols[i].id = best->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    pairs.erase(best);
    if (i > 0) look_up(i - 1);
    if (i < pairs.size()) look_up(i);
  }
}

void Bpe::merge_all(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<std::int32_t>(symbols.size());
  const auto at = [&](std::int32_t i) -> Scratch::Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  heap.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    at(i).previous = i - 1;
    at(i).next = i + 1;
    if (i + 1 == count) break;
    if (const auto* merge = merges_->find(at(i).id, at(i + 1).id))
      heap.push_back({order_of(merge->rank, i), merge->id});
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right >= count) return;
    if (const auto* merge = merges_->find(at(left).id, at(right).id)) {
      heap.push_back({order_of(merge->rank, left), merge->id});
      std::push_heap(heap.begin(), heap.end(), later);
    }
  };
  while (!heap.empty()) {
    const Scratch::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    const auto left = static_cast<std::int32_t>(best.order & 0xFFFFFFFFU);
    if (!at(left).alive || at(left).next >= count) continue;
    const std::int32_t right = at(left).next;
    // Either side may have been merged since the candidate was noted.
    const auto* merge = merges_->find(at(left).id, at(right).id);
    if (merge == nullptr || merge->id != best.id) continue;
    at(left).id = best.id;
    at(left).next = at(right).next;
    at(right).alive = false;
    if (at(left).next < count) at(at(left).next).previous = left;
    push(at(left).previous, left);
    push(left, at(left).next);
  }
}

}  // namespace finetune::tokenizer
