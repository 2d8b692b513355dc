#pragma once
// SPDX-License-Identifier: Apache-2.0
// Curves as eyes want them: smoothed, and with no more points than a picture can show.

#include <cstddef>
#include <utility>
#include <vector>

namespace finetune::plot {

/// x and y.
using Points = std::vector<std::pair<double, double>>;

/// The exponential mean of the y so far, without its bias to zero at the beginning:
/// m_i = w m_(i-1) + (1 - w) y_i, divided by 1 - w^i. What is not finite is left out. Source:
/// Kingma and Ba 2015, Adam (arXiv 1412.6980), part 3.
Points smoothed(const Points& points, double weight);

/// A weight that averages over about a fiftieth of `count` points, 0.6 at least and 0.99 at most.
double usual_weight(std::size_t count);

/// At most about `most` points: of each stretch of x the first, the least, the largest and the
/// last, so that no spike is lost. `points` are ordered by x; what is not finite is left out.
Points thinned(const Points& points, std::size_t most);

}  // namespace finetune::plot
