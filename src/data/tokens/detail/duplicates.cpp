// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/duplicates.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/agree.hpp"

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

/// What of the digests is looked at together: each pass over them takes some, wherever they are.
struct Pass {
  std::uint64_t number, count;

  bool takes(const core::Digest& digest) const { return digest[1] % count == number; }
};

/// Of the digests that this rank looks at in this pass, those of all ranks. Collective on `world`.
std::vector<SeenDigest> collect(const comm::Communicator& world, const Spool<core::Digest>& digests,
                                std::int64_t first_index, const Pass& pass) {
  const auto ranks = static_cast<std::uint64_t>(world.size());
  std::vector<std::vector<SeenDigest>> to(ranks);
  comm::agree_all(world, [&] {
    digests.read([&](std::int64_t first, std::span<const core::Digest> some) {
      for (std::size_t k = 0; k < some.size(); ++k)
        if (pass.takes(some[k]))
          to[some[k][0] % ranks].push_back(
              {some[k], first_index + first + static_cast<std::int64_t>(k)});
    });
  });
  std::vector<SeenDigest> mine;
  for (int distance = 0; distance < world.size(); ++distance) {
    auto& part = to[static_cast<std::size_t>((world.rank() + distance) % world.size())];
    append(mine, world.shift(std::as_bytes(std::span(part)), distance));
    part = {};
  }
  return mine;
}

}  // namespace

Count count_duplicates(const comm::Communicator& world, const Spool<core::Digest>& digests,
                       std::int64_t first_index, std::int64_t most_at_once) {
  const std::int64_t most = world.all_reduce(digests.size(), comm::Reduce::max);
  const std::int64_t passes = std::max<std::int64_t>(1, (most + most_at_once - 1) / most_at_once);
  Count count;
  for (std::int64_t number = 0; number < passes; ++number) {
    std::vector<SeenDigest> seen =
        collect(world, digests, first_index,
                {static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(passes)});
    std::ranges::sort(seen);
    for (std::size_t k = 1; k < seen.size(); ++k) {
      if (seen[k].digest == seen[k - 1].digest) count.add(seen[k].index);
    }
  }
  return {world.all_reduce(count.number, comm::Reduce::sum),
          world.all_reduce(count.first, comm::Reduce::min)};
}

}  // namespace finetune::data
