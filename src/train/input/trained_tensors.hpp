#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which tensors of a model are trained where there is no adapter, by their names.

#include "deck/deck.hpp"
#include "train/input/input.hpp"

namespace finetune::train {

/// Notes train.frozen or train.trainable beside an adapter, which says itself what is trained.
void require_no_adapter(const Input& input, deck::Deck& deck);

/// Freezes what train.frozen names, and all that train.trainable does not name where it names
/// anything. Throws: ErrorKind::deck for what is no expression or names
/// no tensor, where nothing is left to train, and for what cannot be frozen: tensors that the
/// model's files do not have, and some of a layer's experts.
void freeze_named(Input& input);

/// Which tensors are frozen without an adapter, in words: "layers 0 to 3, 7;
/// model.embed_tokens.weight". Layers are those of which all tensors are. Empty: none.
std::string frozen_in_words(const Input& input);

}  // namespace finetune::train
