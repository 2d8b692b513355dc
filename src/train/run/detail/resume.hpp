#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says about its run in addition to tensors, and whether a restart fits it.

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/load/find.hpp"
#include "checkpoint/run_state.hpp"
#include "core/dtype.hpp"
#include "train/corpus/corpus.hpp"
#include "train/input/input.hpp"

namespace finetune::train {

/// What a start says of its run: all that checkpoints keep of the deck, and what a restart is
/// compared by.
struct RunIdentity {
  checkpoint::RunState deck;  ///< its fields that follow from the deck
  std::string deck_path;
  std::string optimizer;
  std::vector<std::string> data_paths;
  bool allows_changed_data = false;
  core::DType compute = core::DType::f32;
  bool is_deterministic = true;
};
RunIdentity identity_of(const Input& input);

/// The state of a checkpoint: `facts` says what only the run knows, the rest comes from the deck.
checkpoint::RunState describe_run(const RunIdentity& own, checkpoint::RunState facts);

/// What a checkpoint of this run holds must mean to the optimizer what it meant when it was saved.
/// Looks before anything is loaded, after `RunState::require`.
/// Throws: ErrorKind::deck if it was another, or one whose blocks were cut by another
/// parallel.bucket.
void require_same_optimizer(const RunIdentity& own, const checkpoint::FoundCheckpoint& found);

/// The keys that a restart must not change. What follows from them, such as shapes of tensors, says
/// less clearly what is wrong: this comes first. Throws: ErrorKind::deck with all that differ.
void require_same_keys(const RunIdentity& own, const checkpoint::FoundCheckpoint& found);

/// The training data of a start.
struct DataIdentity {
  std::string fingerprint;  ///< see Corpus; likewise
  std::string tokens_fingerprint;
  std::function<DataChange(const std::string& fingerprint)> change_since = {};
};

/// Warns of other precision, and of changed data where data.allow_changed takes them. Data of which
/// only other tokens are trained are told from others, and shown.
/// Throws: ErrorKind::deck listing every fixed key that differs, or naming data that changed.
void require_same_run(const RunIdentity& own, const DataIdentity& data,
                      const checkpoint::FoundCheckpoint& found);

/// Warns, where the deck asks for identical results, if the checkpoint's run multiplied otherwise.
void warn_of_other_arithmetic(const RunIdentity& own, const std::string& arithmetic,
                              const checkpoint::FoundCheckpoint& found);

/// An adapter means nothing on other weights. `own_base` describes those that were read. Warns
/// where they are kept in another way, and cannot be compared. Throws: ErrorKind::input if the
/// checkpoint's was another.
void require_same_base(const RunIdentity& own, const checkpoint::FrozenBase& own_base,
                       const checkpoint::FoundCheckpoint& found);

}  // namespace finetune::train
