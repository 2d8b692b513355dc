// SPDX-License-Identifier: Apache-2.0
#include "plot/smooth.hpp"

#include <algorithm>
#include <cmath>

namespace finetune::plot {

Points smoothed(const Points& points, double weight) {
  Points out;
  double mean = 0, left = 1;  // left: weight^i
  for (const auto& [x, y] : points) {
    if (!std::isfinite(y)) continue;
    mean = weight * mean + (1 - weight) * y;
    left *= weight;
    out.emplace_back(x, mean / (1 - left));
  }
  return out;
}

double usual_weight(std::size_t count) {
  const double over = static_cast<double>(count) / 50;
  return std::clamp(1 - 1 / std::max(1.0, over), 0.6, 0.99);
}

Points thinned(const Points& points, std::size_t most) {
  Points finite;
  for (const auto& point : points)
    if (std::isfinite(point.first) && std::isfinite(point.second)) finite.push_back(point);
  if (finite.size() <= most || most < 4) return finite;
  const std::size_t stretches = most / 4;
  Points out;
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = finite.begin() + static_cast<std::ptrdiff_t>(i * finite.size() / stretches);
    const auto end =
        finite.begin() + static_cast<std::ptrdiff_t>((i + 1) * finite.size() / stretches);
    const auto by_y = [](const auto& a, const auto& b) { return a.second < b.second; };
    auto [least, largest] = std::minmax_element(begin, end, by_y);
    if (largest < least) std::swap(least, largest);
    Points kept = {*begin, *least, *largest, *(end - 1)};
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    out.insert(out.end(), kept.begin(), kept.end());
  }
  return out;
}

}  // namespace finetune::plot
