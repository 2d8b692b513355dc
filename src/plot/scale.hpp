#pragma once
// SPDX-License-Identifier: Apache-2.0
// Axes: from values to places, with ticks at round numbers.

#include <span>
#include <string>
#include <vector>

namespace finetune::plot {

struct Tick {
  double value = 0;
  std::string label;
};

enum class Spacing { linear, logarithmic };

/// From `low` to `high`, of which `high` is the larger; both are positive where powers are spaced.
struct Scale {
  double low = 0;
  double high = 1;
  Spacing spacing = Spacing::linear;

  /// 0 at `low`, 1 at `high`; outside for what lies outside.
  double place(double value) const;
};

/// The least and the largest finite value; nothing finite: 0 and 1. One value alone, or with
/// `Spacing::logarithmic` one that is not positive, gets a range around it. `margin`: part of the
/// range that is added on both sides.
Scale scale_of(std::span<const double> values, Spacing spacing, double margin);

/// Round numbers within the scale, at most about `count`: 1, 2 or 5 times a power of ten apart.
/// Powers of ten, and where there are few of them 2 and 5 times these, where powers are spaced.
std::vector<Tick> ticks(const Scale& scale, int count);

/// "850", "12k", "3.4M", "0.0025", "2e-07".
std::string short_number(double value);

}  // namespace finetune::plot
