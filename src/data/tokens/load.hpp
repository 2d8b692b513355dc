#pragma once
// SPDX-License-Identifier: Apache-2.0
// From a source to a dataset: every rank tokenises a part, then all see everything.

#include <string>

#include "data/text/format.hpp"
#include "data/text/source.hpp"
#include "data/tokens/detail/dataset.hpp"
#include "data/tokens/detail/options.hpp"
#include "data/tokens/detail/ranks.hpp"
#include "data/tokens/report.hpp"

namespace finetune::data {

struct Loaded {
  std::string name;  ///< see DatasetOptions
  Layout layout = Layout::separate;
  Dataset dataset;
  DataReport report;
  /// 32 digits of all tokens, labels and sample bounds in order. Does not depend on the number of
  /// ranks, on the files' names, or on where the tokens are kept.
  std::string fingerprint;
  /// The same of tokens and bounds alone: equal where others of the same tokens are trained.
  std::string ids_fingerprint;
  std::filesystem::path cache_file;  ///< that the dataset maps; empty if it is in memory
  bool was_cached = false;           ///< nothing had to be tokenised
  double load_s = 0;                 ///< of this rank
};

/// Tokenises all samples of `source`, rank r a contiguous part of them with `num_threads` threads,
/// or maps the cache file in which an earlier start kept them; then no sample is tokenised,
/// and of `source` only files(), settings() and written_by() are asked.
///
/// Layout::separate: one sequence a sample, at most max_seq_length tokens, end of text included.
/// Layout::continuous: documents run on, each followed by the end of text, and are cut into
/// sequences of max_seq_length + 1 tokens that share one token with the next: max_seq_length
/// positions with a target each, so that every token but the very first is a target exactly once.
/// The last sequence may be shorter.
///
/// Collective on the world. The result does not depend on the number of ranks.
/// Throws on all ranks: ErrorKind::input for a sample that cannot be read, a token id outside the
/// model's vocabulary, samples that `options` refuse, or no sample left. ErrorKind::deck if the
/// ranks see different numbers of samples. ErrorKind::io or ErrorKind::create for a cache that is
/// required and cannot be written; others are warned about, and the tokens kept in memory.
/// comm::Interrupted where `ranks.leave` says so. What was tokenised then, or before a process
/// died, lies next to the cache (CacheOptions::keep_after_tokens), and a later start on any number
/// of ranks does not tokenise it again.
Loaded load(const DataRanks& ranks, const SampleSource& source, Layout layout,
            const DatasetOptions& options, const CacheOptions& cache = {}, int num_threads = 1);

}  // namespace finetune::data
