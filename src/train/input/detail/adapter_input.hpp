#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a deck says of adapters, put into the table of its model.

#include <vector>

#include "comm/communicator.hpp"
#include "deck/deck.hpp"
#include "train/input/input.hpp"
#include "train/input/registry.hpp"

namespace finetune::train {

/// Keys of an adapter, other than by default, where there is none: all weights would be trained
/// without a word. Not asked before the adapter's name is known to be fit.
void require_adapter_for_its_keys(const model::AdapterSettings& given, const Registry& registry,
                                  deck::Deck& deck);

/// The model's tables with each adapter that could be put beside it, as remedies. Empty where there
/// is one.
std::vector<plan::OtherTable> with_adapters(const Input& input, const Registry& registry);

/// Puts the adapter's rows into the table; one that is gone on from has settings of its own.
/// Collective on `world`.
void adapt(const comm::Communicator& world, const Registry& registry, Input& input);

}  // namespace finetune::train
