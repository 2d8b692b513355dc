#pragma once
// SPDX-License-Identifier: Apache-2.0
// The parts that ranks have made become the arrays that all see.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/hash.hpp"
#include "data/text/format.hpp"
#include "data/tokens/detail/cache_file.hpp"
#include "data/tokens/detail/part.hpp"
#include "data/tokens/detail/ranks.hpp"

namespace finetune::data {

/// The parts of all ranks and where this rank's is among them.
struct Assembly {
  const Part* part = nullptr;
  Layout layout = Layout::separate;
  std::int64_t block = 0;         ///< positions of a sequence of Layout::continuous
  std::int64_t first_token = 0;   ///< of this rank
  std::int64_t first_sample = 0;  ///< of this rank; Layout::separate
  std::int64_t num_tokens = 0;
  std::int64_t num_samples = 0;

  std::int64_t overlap() const { return layout == Layout::continuous ? 1 : 0; }

  /// Calls `f(first, values)` for the bounds that this rank makes, piece by piece, `first` of which
  /// is the first sample's: those of its samples, and on the last rank the end of the last.
  void read_bounds(const comm::Communicator& world,
                   const std::function<void(std::int64_t, std::span<const std::int64_t>)>& f) const;
};

/// Collective on `world`.
Assembly assemble(const comm::Communicator& world, const Part& part, Layout layout,
                  std::int64_t max_seq_length);

struct Gathered {
  TokenArrays arrays;
  std::vector<core::Digest> digests;
  std::string ids;  ///< see ids_fingerprint
};

/// 32 digits of the ids and bounds of all samples, whichever tokens are trained. `digests`: of the
/// blocks of `arrays`. Each rank reads a part. Collective on `world`.
std::string ids_fingerprint(const comm::Communicator& world, const TokenArrays& arrays,
                            std::span<const core::Digest> digests);

/// In the memory of every rank. Collective on `world`.
Gathered gather_in_memory(const comm::Communicator& world, const Assembly& assembly);

/// In a new file at `path`, which every rank writes its part of; mapped. The caller removes it if
/// this throws. `describe` makes the description, of the arrays and ids_fingerprint; on the root.
/// Collective on `world`. Throws: comm::AgreedError, ErrorKind::io or ErrorKind::create.
Gathered gather_in_file(const comm::Communicator& world, const Assembly& assembly,
                        const std::filesystem::path& path,
                        const std::function<core::Json(const Gathered&)>& describe);

}  // namespace finetune::data
