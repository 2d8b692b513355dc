#pragma once
// SPDX-License-Identifier: Apache-2.0
// Pairs of answers of which one was preferred: what reward models learn from.

#include "data/text/format.hpp"

namespace finetune::formats::preference {

data::Format format();

}  // namespace finetune::formats::preference
