#pragma once
// SPDX-License-Identifier: Apache-2.0
// Going on from a PEFT adapter: its settings in the place of the deck's, its tensors as weights.

#include <string>
#include <utility>
#include <vector>

#include "base/detail/frozen_weights.hpp"
#include "model/adapter.hpp"
#include "weights/peft.hpp"

namespace finetune::base {

/// `deck` with the settings of an adapter. Throws: ErrorKind::deck, beginning with `where`, for
/// another kind of adapter, and for every key of which the deck has a value that is neither its
/// default nor the adapter's.
model::AdapterSettings take_settings(const model::AdapterSettings& deck,
                                     const weights::PeftAdapter& adapter, const std::string& where);

/// Puts them among the keys that a restart must not change, in the place of the deck's.
void update_fixed(const model::AdapterSettings& settings,
                  std::vector<std::pair<std::string, std::string>>& fixed);

/// The adapter's tensors for the rows that are trained, `base` for the others. Both, and `table`,
/// live as long as the source.
WeightSource with_peft(WeightSource base, const weights::PeftAdapter& adapter,
                       const model::ParameterTable& table);

}  // namespace finetune::base
