#pragma once
// SPDX-License-Identifier: Apache-2.0
// The run's data: tokenizer, training and validation streams, and validation samples as text.

#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "data/stream.hpp"
#include "data/tokenizer.hpp"
#include "train/input.hpp"
#include "train/sources.hpp"
#include "world/world.hpp"

namespace finetune::train {

struct Corpus {
  data::Tokenizer tokenizer;
  data::Stream training;
  std::optional<data::Stream> validation;
  std::string fingerprint;   ///< of the training data's tokens
  bool has_answers = false;  ///< samples are questions with answers, not running text
  /// The validation file's samples as text, for printed answers; null without one.
  std::unique_ptr<Questions> questions;
};

/// Tokenises on all ranks and prints what was read. Collective on the world.
/// Throws: comm::AgreedError of ErrorKind::input, also if the tokenizer has more tokens than the
/// model's embedding has rows.
Corpus load_corpus(const Input& input, const Registry& registry, const world::World& world);

/// Refuses a tokenizer whose ids the model's embedding does not have.
void require_vocabulary(const data::Tokenizer& tokenizer, const model::Architecture& architecture);

}  // namespace finetune::train
