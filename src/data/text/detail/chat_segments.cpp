// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/chat_segments.hpp"

#include <algorithm>
#include <string>

namespace finetune::data {

std::vector<Segment> segments_of(const jinja::Rendered& rendered,
                                 std::span<const TrainedRange> trained,
                                 const std::function<bool(const jinja::Origin&)>& excluded) {
  std::vector<Segment> segments;
  const auto add = [&](std::size_t begin, std::size_t end, const TrainedRange* of, bool is_markup) {
    const std::string text = rendered.text.substr(begin, end - begin);
    const std::int32_t answer = of ? of->answer : jinja::Origin::none;
    if (!segments.empty() && segments.back().trained == (of != nullptr) &&
        segments.back().markup == is_markup && segments.back().answer == answer)
      segments.back().text += text;
    else
      segments.push_back({text, of != nullptr, is_markup, answer});
  };
  std::size_t at = 0;
  const auto piece_until = [&](std::size_t end, const jinja::Origin& origin) {
    while (at < end) {
      while (!trained.empty() && trained.front().bytes.second <= at)
        trained = trained.subspan(1);
      const bool is_inside = !trained.empty() && trained.front().bytes.first <= at;
      std::size_t until = end;
      if (!trained.empty()) {
        const auto& [first, second] = trained.front().bytes;
        until = std::min(end, is_inside ? second : first);
      }
      add(at, until, is_inside && !excluded(origin) ? &trained.front() : nullptr,
          !origin.is_data());
      at = until;
    }
  };
  for (const auto& [end, origin] : rendered.pieces)
    piece_until(end, origin);
  piece_until(rendered.text.size(), {});
  return segments;
}

}  // namespace finetune::data
