// SPDX-License-Identifier: Apache-2.0
#include "data/text/tokenise.hpp"

#include <algorithm>
#include <iterator>
#include <string>

namespace finetune::data {
namespace {

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

bool is_trained(const Segment& segment) {
  return segment.trained && !segment.text.empty();
}

/// What is trained, as runs of segments: parts for the tokenizer, of which the ends are counted
/// that are ends of a run.
struct Runs {
  std::vector<tokenizer::TextPart> parts;
  std::vector<bool> end_in_markup;
  std::vector<std::int32_t> answers;

  Runs(std::span<const Segment> segments, SpecialNameMeaning special_names) {
    for (const Segment& segment : segments) {
      if (segment.text.empty()) continue;
      const bool plain = !segment.markup && special_names == SpecialNameMeaning::text;
      tokenizer::TextPart part{segment.text, plain};
      if (is_trained(segment)) {
        if (was_trained_) {
          parts.back().is_counted = false;
        } else {
          // The place where it begins, and where it ends.
          parts.push_back({.text = {}, .is_counted = true});
          part.starts_anew = true;
          end_in_markup.push_back(false);
          answers.push_back(segment.answer);
        }
        part.is_counted = true;
        if (!is_blank(segment.text)) end_in_markup.back() = segment.markup;
      }
      was_trained_ = is_trained(segment);
      parts.push_back(part);
    }
  }

 private:
  bool was_trained_ = false;
};

/// Takes the token at `place` out, of which another is there already.
void erase(tokenizer::Encoded& encoded, std::size_t place) {
  encoded.ids.erase(encoded.ids.begin() + static_cast<std::ptrdiff_t>(place));
  for (std::size_t& end : encoded.ends)
    if (end > place) --end;
}

/// Takes out what the tokenizer puts in front of a text that begins with it. Whether it did.
bool drop_second_begin(tokenizer::Encoded& encoded) {
  const std::size_t before = encoded.num_before;
  if (before == 0 || before + encoded.num_after == encoded.ids.size() ||
      encoded.ids[before] != encoded.ids[before - 1])
    return false;
  erase(encoded, before - 1);
  --encoded.num_before;
  return true;
}

/// A document with its end token, once. Whether the text had one itself.
bool end_document(tokenizer::Encoded& encoded, std::int32_t end) {
  auto& ids = encoded.ids;
  const std::size_t text_end = ids.size() - encoded.num_after;
  const bool held = encoded.num_before < text_end && ids[text_end - 1] == end;
  // Some tokenizers end a document with it themselves.
  if (encoded.num_after > 0 && ids.back() == end) ids.pop_back();
  if (!held || ids.size() != text_end) ids.push_back(end);
  return held;
}

bool is_end(std::span<const std::int32_t> ends, std::int32_t id) {
  return std::ranges::find(ends, id) != ends.end();
}

bool is_white_space(const tokenizer::Tokenizer& tokenizer, std::int32_t id) {
  return !tokenizer.is_added(id) && is_blank(tokenizer.decode(std::span(&id, 1), false));
}

/// The answer of one run.
TrainedAnswer answer_in(const Tokens& tokens, const TrainedRun& run,
                        std::span<const std::int32_t> ends, const tokenizer::Tokenizer& tokenizer) {
  std::size_t last = run.end;
  while (last > run.begin && !is_end(ends, tokens.ids[last - 1]) &&
         is_white_space(tokenizer, tokens.ids[last - 1]))
    --last;
  std::size_t first = last;
  while (first > run.begin && is_end(ends, tokens.ids[first - 1]))
    --first;
  const auto answer = [&](std::size_t ends_at, std::size_t ends_behind) {
    while (ends_at < ends_behind && ends_at > run.begin &&
           tokenizer.is_special(tokens.ids[ends_at - 1]))
      --ends_at;
    return TrainedAnswer{static_cast<std::int64_t>(run.begin), static_cast<std::int64_t>(ends_at),
                         static_cast<std::int64_t>(ends_behind)};
  };
  if (first < last) return answer(first, last);
  const auto open = answer(run.end, run.end);
  if (last == run.begin || !run.ends_in_markup || !tokenizer.is_added(tokens.ids[last - 1]))
    return open;
  std::size_t next = run.end;
  while (next < tokens.ids.size() && is_white_space(tokenizer, tokens.ids[next]))
    ++next;
  const bool ends_later = next < tokens.ids.size() && is_end(ends, tokens.ids[next]);
  return ends_later ? open : answer(last - 1, last);
}

}  // namespace

TokenisedText tokenise_text(std::span<const Segment> segments,
                            const tokenizer::Tokenizer& tokenizer, SpecialNameMeaning special_names,
                            bool ends) {
  const Runs runs(segments, special_names);
  using tokenizer::Encode;
  auto encoded = tokenizer.encode_parts(runs.parts, ends ? Encode::document : Encode::no_ends);
  TokenisedText text;
  if (ends) {
    const bool has_begin = drop_second_begin(encoded);
    const bool has_end = end_document(encoded, tokenizer.eos_id());
    text.held_ends = has_begin || has_end;
  }
  Tokens& tokens = text.tokens;
  tokens.ids = std::move(encoded.ids);
  tokens.labels.assign(tokens.ids.size(), not_trained);
  for (std::size_t r = 0; r < runs.end_in_markup.size(); ++r) {
    TrainedRun run{encoded.ends[2 * r], encoded.ends[2 * r + 1], runs.end_in_markup[r],
                   runs.answers[r]};
    // What the tokenizer puts before a text is trained with its first token.
    const bool is_all_before = run.begin == encoded.num_before;
    if (is_all_before) run.begin = 0;
    if (run.begin < run.end) text.runs.push_back(run);
  }
  if (ends && !runs.end_in_markup.empty()) {
    const std::size_t last = tokens.ids.size() - 1;
    if (!text.runs.empty() && text.runs.back().end >= last)
      text.runs.back().end = last + 1;
    else
      text.runs.push_back({last, last + 1});
  }
  for (const TrainedRun& run : text.runs)
    std::copy(tokens.ids.begin() + static_cast<std::ptrdiff_t>(run.begin),
              tokens.ids.begin() + static_cast<std::ptrdiff_t>(run.end),
              tokens.labels.begin() + static_cast<std::ptrdiff_t>(run.begin));
  return text;
}

Tokens tokenise(std::span<const Segment> segments, const tokenizer::Tokenizer& tokenizer,
                SpecialNameMeaning special_names, bool ends) {
  return tokenise_text(segments, tokenizer, special_names, ends).tokens;
}

std::vector<std::int32_t> encode_document(std::span<const tokenizer::TextPart> parts,
                                          const tokenizer::Tokenizer& tokenizer) {
  auto encoded = tokenizer.encode_parts(parts, tokenizer::Encode::document);
  drop_second_begin(encoded);
  auto& ids = encoded.ids;
  const std::size_t text_end = ids.size() - encoded.num_after;
  if (encoded.num_before < text_end && text_end < ids.size() && ids[text_end - 1] == ids[text_end])
    erase(encoded, text_end);
  return std::move(ids);
}

std::span<const std::int32_t> without_end(std::span<const std::int32_t> answer,
                                          std::span<const std::int32_t> ends,
                                          const tokenizer::Tokenizer& tokenizer) {
  std::span<const std::int32_t> rest = answer;
  while (!rest.empty() && !is_end(ends, rest.back()) && is_white_space(tokenizer, rest.back()))
    rest = rest.first(rest.size() - 1);
  if (rest.empty() || !is_end(ends, rest.back())) return answer;
  while (!rest.empty() && is_end(ends, rest.back()))
    rest = rest.first(rest.size() - 1);
  return rest;
}

std::vector<TrainedAnswer> answers_in(const Tokens& tokens, std::span<const TrainedRun> runs,
                                      std::span<const std::int32_t> ends,
                                      const tokenizer::Tokenizer& tokenizer) {
  std::vector<TrainedAnswer> answers;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const TrainedAnswer answer = answer_in(tokens, runs[r], ends, tokenizer);
    const bool goes_on = r > 0 && runs[r].answer >= 0 && runs[r].answer == runs[r - 1].answer;
    if (goes_on)
      answers.back() = {answers.back().begin, answer.ends_at, answer.ends_behind};
    else
      answers.push_back(answer);
  }
  return answers;
}

std::vector<std::size_t> tokens_before(std::span<const Segment> segments,
                                       std::span<const std::size_t> places,
                                       const tokenizer::Tokenizer& tokenizer,
                                       SpecialNameMeaning special_names) {
  const Runs runs(segments, special_names);
  std::vector<tokenizer::TextPart> parts;
  std::size_t at = 0;
  for (tokenizer::TextPart part : runs.parts) {
    part.is_counted = false;
    while (!places.empty() && places.front() < at + part.text.size()) {
      tokenizer::TextPart before = part;
      before.text = part.text.substr(0, places.front() - at);
      before.is_counted = true;
      part.text.remove_prefix(before.text.size());
      at += before.text.size();
      // Where it begins anew is once, with the text that stands there.
      (before.text.empty() ? before : part).starts_anew = false;
      parts.push_back(before);
      places = places.subspan(1);
    }
    at += part.text.size();
    if (!part.text.empty()) parts.push_back(part);
  }
  parts.insert(parts.end(), places.size(), {.text = {}, .is_counted = true});
  return tokenizer.encode_parts(parts, tokenizer::Encode::no_ends).ends;
}

std::vector<TrainedRun> runs_of(const Tokens& tokens) {
  std::vector<TrainedRun> runs;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.labels[i] == not_trained) continue;
    if (!runs.empty() && runs.back().end == i)
      ++runs.back().end;
    else
      runs.push_back({i, i + 1});
  }
  return runs;
}

}  // namespace finetune::data
