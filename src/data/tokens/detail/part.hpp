#pragma once
// SPDX-License-Identifier: Apache-2.0
// What one rank makes of its part of the samples before the ranks put their parts together.

#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>

#include "comm/interrupted.hpp"
#include "core/hash.hpp"
#include "data/text/format.hpp"
#include "data/text/source.hpp"
#include "data/tokens/detail/dataset.hpp"
#include "data/tokens/detail/options.hpp"
#include "data/tokens/detail/ranks.hpp"
#include "data/tokens/detail/spool.hpp"
#include "data/tokens/report.hpp"

namespace finetune::data {

struct Part {
  /// What is beyond `memory_bytes`, of each of the three, goes to files in `folder`; without one
  /// nothing does.
  Part(const std::filesystem::path& folder, std::int64_t memory_bytes)
      : tokens(folder, memory_bytes),
        lengths(folder, memory_bytes),
        digests(folder, memory_bytes) {}

  Spool<PackedToken> tokens;
  Spool<std::int64_t> lengths;                ///< of the samples kept
  Spool<core::Digest> digests;                ///< of all samples as read: ids and labels
  std::map<std::int32_t, std::int64_t> ends;  ///< answers that end with a token, by its id
  bool has_dialogue = false;  ///< what the report shows is kept whole and has several turns
  DataReport report;          ///< of these samples; duplicates and names of ends are not known yet
};

/// Ranks look up whether some rank is to stop after so many samples each.
inline constexpr std::int64_t samples_per_unit = 1000;

struct PartWork {
  int num_threads = 1;
  std::filesystem::path target = {};  ///< the cache file it is for; empty: none
  /// Samples are kept for the next start once so many tokens were made: what takes a second is not
  /// worth a file.
  std::int64_t keep_after_tokens = 0;
  comm::Leave leave = {};
  std::int64_t num_units = 0;  ///< of the rank that has most; the same on every rank
};

struct PartOutcome {
  Part part;
  std::int64_t num_known = 0;  ///< samples that an earlier start had tokenised
  std::int64_t num_kept = 0;   ///< those, and what the next start finds
  bool is_left = false;        ///< on every rank: the part is not whole
  std::exception_ptr error = {};
};

/// Tokenises `samples` of `source` into `part`. Overlong and masked samples are counted, and kept
/// or dropped by `options`; where `options` refuse them they are dropped, for the caller to refuse
/// once all ranks have counted. PartOutcome::error, of this rank alone: ErrorKind::input for the
/// first sample that cannot be read or has a token outside the vocabulary, ErrorKind::io where a
/// spool cannot be written. Collective where work.leave is.
PartOutcome tokenise_part(const SampleSource& source, Share samples, Layout layout,
                          const DatasetOptions& options, Part part, const PartWork& work);

}  // namespace finetune::data
