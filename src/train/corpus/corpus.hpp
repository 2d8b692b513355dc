#pragma once
// SPDX-License-Identifier: Apache-2.0
// The run's data: tokenizer, training and validation streams, and validation samples as text.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/steps/stream.hpp"
#include "data/tokens/load.hpp"
#include "plan/plan.hpp"
#include "train/corpus/sources.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// What data.path and data.validation_path name, tokenised. No model, no mesh.
struct DataSets {
  tokenizer::Tokenizer tokenizer;
  std::vector<data::Loaded> training;  ///< one a data set, in the deck's order
  std::vector<data::Loaded> validation;
  bool has_answers = false;  ///< samples are questions with answers, not running text
  /// The validation file's samples as text, for printed answers; null without one.
  std::unique_ptr<Questions> questions;
  /// Opens the i-th of data.path again, should a sample of it be shown later.
  std::function<std::unique_ptr<data::TextSource>(std::size_t)> open = {};
  std::filesystem::path cache_folder = {};  ///< of their tokens; empty: none
};

/// Tokenises on all ranks, with `num_threads` threads each, or maps what an earlier start kept.
/// Collective on the ranks' world. Throws: comm::AgreedError of ErrorKind::input, also if the
/// tokenizer has more tokens than the model's embedding has rows. What `input` and `registry` refer
/// to outlives DataSets::open and Corpus::change_since.
DataSets load_data(const DataInput& input, const Registry& registry, const data::DataRanks& ranks,
                   const data::CacheOptions& cache, int num_threads);

/// Where tokens are kept for runs that write to `output`; without a folder if they are not.
data::CacheOptions cache_options(const data::DataSettings& settings,
                                 const std::filesystem::path& output);

/// How the training data differ from those that had another fingerprint.
struct DataChange {
  /// Only which tokens are trained differs; nothing: the earlier data are not at hand.
  std::optional<bool> has_same_tokens = {};
  /// For people: the first sample that differs, else the one that the data report shows. Lines
  /// behind four spaces, or empty.
  std::string shown = {};
};

struct Corpus {
  tokenizer::Tokenizer tokenizer;
  data::Stream training;
  std::optional<data::Stream> validation;
  std::string fingerprint;         ///< of the training data's tokens, and of which are trained
  std::string tokens_fingerprint;  ///< of these tokens alone
  bool has_answers = false;        ///< see DataSets
  std::unique_ptr<Questions> questions;
  std::vector<std::string> records;  ///< the data report, for metrics.jsonl
  /// Compares with data whose `fingerprint` was another, as far as the token cache has them. Reads
  /// all tokens, and opens the data again; not collective.
  std::function<DataChange(const std::string& fingerprint)> change_since = {};
};

/// The stream of rank `batch_rank` of `batch_size` that share `plan`'s batches, and the data report
/// on the log. Throws: ErrorKind::deck if data.validation_fraction leaves nothing to train on.
Corpus make_corpus(const DataInput& input, DataSets sets, const plan::BatchPlan& plan,
                   std::int64_t batch_size, std::int64_t batch_rank);

/// Loads and prints what was read. Collective on the world.
/// Throws: comm::AgreedError; see load_data. comm::Interrupted if the ranks `leave` before all is
/// tokenised.
Corpus load_corpus(const DataInput& input, const Registry& registry,
                   const data::CacheOptions& cache, const plan::BatchPlan& plan,
                   const world::World& world, comm::Leave leave);

/// Refuses a tokenizer whose ids the model's embedding does not have.
void require_vocabulary(const tokenizer::Tokenizer& tokenizer,
                        const model::Architecture& architecture);

}  // namespace finetune::train
