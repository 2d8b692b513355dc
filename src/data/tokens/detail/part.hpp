#pragma once
// SPDX-License-Identifier: Apache-2.0
// What one rank makes of its part of the samples before the ranks put their parts together.

#include <cstdint>
#include <filesystem>
#include <map>

#include "core/hash.hpp"
#include "data/text/format.hpp"
#include "data/text/source.hpp"
#include "data/tokens/detail/dataset.hpp"
#include "data/tokens/detail/options.hpp"
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

/// Tokenises samples [begin, end) of `source` into `part`, with `num_threads` threads. Overlong
/// and masked samples are counted, and kept or dropped by `options`; where `options` refuse them
/// they are dropped, for the caller to refuse once all ranks have counted.
/// Throws: ErrorKind::input for the first sample that cannot be read or has a token outside the
/// vocabulary.
Part tokenise_part(const SampleSource& source, std::int64_t begin, std::int64_t end, Layout layout,
                   const DatasetOptions& options, Part part, int num_threads = 1);

}  // namespace finetune::data
