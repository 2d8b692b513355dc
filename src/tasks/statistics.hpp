#pragma once
// SPDX-License-Identifier: Apache-2.0
// How sure a figure is that was measured on some questions.

#include <span>

namespace finetune::tasks {

/// A mean with the interval in which it would be of 95 of 100 such sets of questions.
struct Estimate {
  double mean = 0;
  double standard_error = 0;  ///< of the mean: sample deviation / sqrt(n)
  double low = 0, high = 0;
};

/// Of 0s and 1s the interval of Wilson 1927, which is inside of 0 and 1; of others the mean
/// and 1.96 standard errors.
Estimate estimate(std::span<const double> values);

/// exp(-sum of log-likelihoods / sum of units), with an interval from 1,000 sets of texts drawn
/// again (Efron 1979); `values` and `units` of a text each.
Estimate perplexity(std::span<const double> log_likelihoods, std::span<const double> units);

/// How likely a difference of the means as large as that between `a` and `b`, of the same
/// questions, is if there is none. Of 0s and 1s by the exact test of McNemar 1947, else by 10,000
/// exchanges of signs (Fisher 1935). 1 if nothing differs.
double p_of_difference(std::span<const double> a, std::span<const double> b);

}  // namespace finetune::tasks
