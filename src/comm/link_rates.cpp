// SPDX-License-Identifier: Apache-2.0
#include "comm/link_rates.hpp"

#include <algorithm>

namespace finetune::comm {

void LinkRates::add(std::string_view axis, int first_rank, int num_ranks, std::int64_t bytes,
                    double seconds) {
  if (bytes < least_bytes || seconds <= 0) return;
  const std::lock_guard lock(mutex_);
  auto found = std::find_if(best_.begin(), best_.end(), [&](const LinkRate& each) {
    return each.first_rank == first_rank && each.num_ranks == num_ranks && each.axis == axis;
  });
  if (found == best_.end())
    found = best_.insert(found, LinkRate{std::string(axis), first_rank, num_ranks, 0});
  found->bytes_per_s = std::max(found->bytes_per_s, static_cast<double>(bytes) / seconds);
}

std::vector<LinkRate> LinkRates::take() {
  const std::lock_guard lock(mutex_);
  std::vector<LinkRate> taken;
  for (LinkRate& each : best_) {
    if (each.bytes_per_s > 0) taken.push_back(each);
    each.bytes_per_s = 0;
  }
  return taken;
}

}  // namespace finetune::comm
