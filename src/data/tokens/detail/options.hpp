#pragma once
// SPDX-License-Identifier: Apache-2.0
// How samples become a dataset, and what of them is refused.

#include <cstdint>
#include <filesystem>
#include <string>

namespace finetune::data {

/// Which tokens of a sample are trained.
enum class TrainOn { answers, all };
/// What the name of a special token inside the data is read as.
enum class SpecialNameMeaning { text, tokens };
enum class OnOverlong { truncate, drop, error };
enum class OnMasked { error, drop };

/// Largest shares of the samples read that may be so; 1 is no limit.
struct Limits {
  double truncated = 1;
  double masked = 1;
  double duplicates = 1;
  double empty_answers = 1;
  double unknown_roles = 1;
  double missing_end_of_turn = 1;
  double not_written = 1;
};

struct DatasetOptions {
  std::string name = "data";        ///< what messages call these data: "training data"
  std::int64_t max_seq_length = 0;  ///< tokens; see load
  std::int64_t vocab_size = 0;      ///< the model's: ids are 0 .. vocab_size - 1
  /// Trained tokens are labels of texts, 0 .. num_labels - 1, each behind its text, which is what
  /// is cut where both are too long. 0: they are tokens.
  std::int64_t num_labels = 0;
  bool has_pairs = false;  ///< samples are two texts with a label each
  OnOverlong on_overlong = OnOverlong::truncate;
  OnMasked on_masked = OnMasked::error;
  Limits limits;
};

/// Where tokens are kept from one start to the next.
struct CacheOptions {
  std::filesystem::path folder;  ///< empty: tokens are in the memory of every rank
  /// What a rank holds in memory of its part before it goes to a file.
  std::int64_t memory_bytes = std::int64_t{256} << 20;
  /// What a rank tokenises before it keeps samples for a start that follows if this one is stopped.
  std::int64_t keep_after_tokens = std::int64_t{1} << 20;
  bool is_required = false;   ///< a cache that cannot be written is an error, not a warning
  bool is_read_only = false;  ///< what is there is used, and nothing written
};

}  // namespace finetune::data
