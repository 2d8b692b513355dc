#pragma once
// SPDX-License-Identifier: Apache-2.0
// Texts with a label each: what classifiers and regressions learn from.

#include "data/text/format.hpp"

namespace finetune::formats::labelled {

data::Format format();

}  // namespace finetune::formats::labelled
