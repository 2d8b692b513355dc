#pragma once
// SPDX-License-Identifier: Apache-2.0
// Samples held out for validation.

#include <cstdint>

#include "data/tokens/detail/dataset.hpp"

namespace finetune::data {

struct Split {
  Dataset training;
  Dataset validation;
};

/// Takes `fraction` of the samples of one data set, rounded up, out of the training data for
/// validation: a choice that depends on `seed` alone, both parts in file order. Memory: eight bytes
/// a validation sample.
/// Throws: ErrorKind::deck if no sample would be left for training; fraction in (0, 1).
Split split(const Dataset& dataset, double fraction, std::uint64_t seed);

}  // namespace finetune::data
