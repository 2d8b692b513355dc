// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/chat_segments.hpp"

#include <algorithm>
#include <string>

namespace finetune::data {

std::vector<Segment> segments_of(const jinja::Rendered& rendered, std::span<const Range> trained,
                                 const std::function<bool(const jinja::Origin&)>& excluded) {
  std::vector<Segment> segments;
  const auto add = [&](std::size_t begin, std::size_t end, bool is_trained, bool is_markup) {
    const std::string text = rendered.text.substr(begin, end - begin);
    if (!segments.empty() && segments.back().trained == is_trained &&
        segments.back().markup == is_markup)
      segments.back().text += text;
    else
      segments.push_back({text, is_trained, is_markup});
  };
  std::size_t at = 0;
  const auto piece_until = [&](std::size_t end, const jinja::Origin& origin) {
    while (at < end) {
      while (!trained.empty() && trained.front().second <= at)
        trained = trained.subspan(1);
      const bool is_inside = !trained.empty() && trained.front().first <= at;
      std::size_t until = end;
      if (!trained.empty())
        until = std::min(end, is_inside ? trained.front().second : trained.front().first);
      add(at, until, is_inside && !excluded(origin), !origin.is_data());
      at = until;
    }
  };
  for (const auto& [end, origin] : rendered.pieces)
    piece_until(end, origin);
  piece_until(rendered.text.size(), {});
  return segments;
}

}  // namespace finetune::data
