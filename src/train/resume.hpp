#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says about its run in addition to tensors, and whether a restart fits it.

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/find.hpp"
#include "core/json.hpp"
#include "train/input.hpp"

namespace finetune::train {

struct RunFacts {
  std::int64_t step = 0;
  std::int64_t metrics_bytes = 0;  ///< of metrics.jsonl; what comes later belongs to lost steps
  std::string data_fingerprint;
  std::string base_hash = {};   ///< of the frozen weights that the adapter is for; empty without
  core::Json source_dtypes;     ///< tensor name -> dtype of the file it came from
  core::Json loss_scale;        ///< null where the precision needs none
  std::int64_t threads = 1;     ///< of a rank
  std::string arithmetic = {};  ///< how its products are computed
  std::string run_id = {};
  std::optional<double> validation_loss = {};  ///< of these very weights
};

/// state.json of a checkpoint: everything but tensors. Learning rate and data position follow from
/// the step.
core::Json describe_run(const Input& input, const RunFacts& facts);

/// Checks that state.json has what a restart needs, in its types: it comes from a file.
/// Throws: ErrorKind::input naming it.
void require_state(const checkpoint::Found& found);

/// What a checkpoint of this run holds must mean to the optimizer what it meant when it was saved.
/// Looks before anything is loaded, after `require_state`.
/// Throws: ErrorKind::deck if it was another, or one whose blocks were cut by another
/// parallel.bucket.
void require_same_optimizer(const Input& input, const checkpoint::Found& found);

/// The keys that a restart must not change. What follows from them, such as shapes of tensors, says
/// less clearly what is wrong: this comes first. Throws: ErrorKind::deck with all that differ.
void require_same_keys(const Input& input, const checkpoint::Found& found);

/// Warns of other precision, and of changed data where data.allow_changed takes them.
/// Throws: ErrorKind::deck listing every fixed key that differs, or naming data that changed.
void require_same_run(const Input& input, const std::string& data_fingerprint,
                      const checkpoint::Found& found);

/// Warns, where the deck asks for identical results, if the checkpoint's run multiplied otherwise.
void warn_of_other_arithmetic(const Input& input, const std::string& arithmetic,
                              const checkpoint::Found& found);

/// An adapter means nothing on other weights. `base_hash` is that of the weights as read.
/// Throws: ErrorKind::input if the checkpoint's was another.
void require_same_base(const Input& input, const std::string& base_hash,
                       const checkpoint::Found& found);

}  // namespace finetune::train
