#pragma once
// SPDX-License-Identifier: Apache-2.0
// From files to a dataset: every rank tokenises a part, then all hold everything.

#include <cstdint>
#include <string>

#include "comm/communicator.hpp"
#include "data/dataset.hpp"
#include "data/format.hpp"
#include "data/tokens.hpp"

namespace finetune::data {

enum class OnOverlong { truncate, drop, error };
enum class OnMasked { error, drop };

struct DatasetOptions {
  std::string name = "data";        ///< what messages call these data: "training data"
  std::int64_t max_seq_length = 0;  ///< tokens; see load
  std::int64_t vocab_size = 0;      ///< the model's: ids are 0 .. vocab_size - 1
  OnOverlong on_overlong = OnOverlong::truncate;
  OnMasked on_masked = OnMasked::error;
};

/// What was read and what became of it. Printed before training: nothing is cut or dropped
/// silently. "Documents" in Layout::continuous are what is called samples until they are cut.
struct DataReport {
  std::int64_t num_read = 0;            ///< samples in the files
  std::int64_t num_samples = 0;         ///< sequences in the dataset
  std::int64_t num_tokens = 0;          ///< in the dataset
  std::int64_t num_trained_tokens = 0;  ///< targets in the dataset
  std::int64_t num_overlong = 0;        ///< longer than max_seq_length
  std::int64_t num_truncated = 0;       ///< of those, cut and kept
  std::int64_t num_masked = 0;          ///< without a trained token
  std::int64_t num_dropped = 0;         ///< overlong or masked, and dropped
  std::int64_t longest = 0;             ///< tokens of the longest sample as read
  std::int64_t eos_trained = 0;         ///< samples kept whose end-of-text token is trained
};

/// A few lines for people: counts, share of trained tokens, end of text, and what was cut or
/// dropped.
std::string to_string(const DataReport& report, const DatasetOptions& options);

struct Loaded {
  Dataset dataset;
  DataReport report;
};

/// Tokenises all samples of `reader`, rank r a contiguous part of them, and gathers the result.
///
/// Layout::separate: one sequence a sample, at most max_seq_length tokens, end of text included.
/// Layout::continuous: documents run on, each followed by the end of text, and are cut into
/// sequences of max_seq_length + 1 tokens that share one token with the next: max_seq_length
/// positions with a target each, so that every token but the very first is a target exactly once.
/// The last sequence may be shorter.
///
/// Collective on `world`. The result does not depend on the number of ranks.
/// Throws on all ranks: ErrorKind::input for a sample that cannot be read, a token id outside the
/// model's vocabulary, an overlong or masked sample that `options` refuse, or no sample left.
/// ErrorKind::deck if the ranks see different numbers of samples.
Loaded load(const comm::Communicator& world, const Reader& reader, Layout layout,
            const Encoder& encoder, const DatasetOptions& options);

}  // namespace finetune::data
