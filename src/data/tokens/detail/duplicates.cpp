// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/duplicates.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace finetune::data {
namespace {

struct SeenDigest {
  core::Digest digest;
  std::int64_t index;

  auto operator<=>(const SeenDigest&) const = default;
};

void append(std::vector<SeenDigest>& all, std::span<const std::byte> bytes) {
  const std::size_t count = bytes.size() / sizeof(SeenDigest);
  if (count == 0) return;
  all.resize(all.size() + count);
  std::memcpy(&all[all.size() - count], bytes.data(), count * sizeof(SeenDigest));
}

/// Of the digests that this rank looks at, those of all ranks. Collective on `world`.
std::vector<SeenDigest> collect(const comm::Communicator& world,
                                std::span<const core::Digest> digests, std::int64_t first_index) {
  const auto ranks = static_cast<std::uint64_t>(world.size());
  std::vector<std::vector<SeenDigest>> to(ranks);
  for (std::size_t k = 0; k < digests.size(); ++k)
    to[digests[k][0] % ranks].push_back({digests[k], first_index + static_cast<std::int64_t>(k)});
  std::vector<SeenDigest> mine;
  for (int distance = 0; distance < world.size(); ++distance) {
    auto& part = to[static_cast<std::size_t>((world.rank() + distance) % world.size())];
    append(mine, world.shift(std::as_bytes(std::span(part)), distance));
    part = {};
  }
  return mine;
}

}  // namespace

Count count_duplicates(const comm::Communicator& world, std::span<const core::Digest> digests,
                       std::int64_t first_index) {
  std::vector<SeenDigest> seen = collect(world, digests, first_index);
  std::ranges::sort(seen);
  Count count;
  for (std::size_t k = 1; k < seen.size(); ++k) {
    if (seen[k].digest == seen[k - 1].digest) count.add(seen[k].index);
  }
  return {world.all_reduce(count.number, comm::Reduce::sum),
          world.all_reduce(count.first, comm::Reduce::min)};
}

}  // namespace finetune::data
