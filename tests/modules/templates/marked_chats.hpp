#pragma once
// SPDX-License-Identifier: Apache-2.0
// Conversations with what of them is trained, as templates write them.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "data/text/chat_template.hpp"
#include "modules/templates/chats.hpp"

namespace finetune::tests {

/// Bytes of a text: begin and end.
using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

/// A text and what of it is trained; or why there is none.
struct WrittenChat {
  std::string text = {};
  Ranges trained = {};
  std::string refusal = {};

  bool operator==(const WrittenChat&) const = default;
};

/// Without empty ones; those that touch are one.
inline Ranges joined_ranges(const Ranges& ranges) {
  Ranges made;
  for (const auto& [begin, end] : ranges) {
    if (begin == end) continue;
    if (!made.empty() && made.back().second == begin) {
      made.back().second = end;
    } else {
      made.emplace_back(begin, end);
    }
  }
  return made;
}

/// The text, with what is trained in ‹ ›.
inline std::string marked(const WrittenChat& written) {
  if (!written.refusal.empty()) return "refused: " + written.refusal;
  std::string text = written.text;
  for (auto range = written.trained.rbegin(); range != written.trained.rend(); ++range) {
    text.insert(range->second, "›");
    text.insert(range->first, "‹");
  }
  return text;
}

inline WrittenChat written_chat(const std::vector<data::Segment>& segments) {
  WrittenChat made;
  for (const data::Segment& segment : segments) {
    const std::size_t begin = made.text.size();
    made.text += segment.text;
    if (segment.trained) made.trained.emplace_back(begin, made.text.size());
  }
  made.trained = joined_ranges(made.trained);
  return made;
}

/// Without the place, which the message begins with.
inline WrittenChat refused_chat(const core::Error& error, std::string_view where) {
  return {.refusal = std::string(error.what()).substr(where.size())};
}

}  // namespace finetune::tests
