#pragma once
// SPDX-License-Identifier: Apache-2.0
// Infinity and NaN of a config.json, for families whose keys may hold them.

#include "core/python_json.hpp"

namespace finetune::model {

using core::not_finite_word;

}  // namespace finetune::model
