// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/shared_index.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/agree.hpp"
#include "core/error.hpp"

namespace finetune::data {
namespace {

/// A text behind its size.
void append(std::vector<std::byte>& all, std::string_view text) {
  const auto size = static_cast<std::int64_t>(text.size());
  const auto head = std::as_bytes(std::span(&size, 1));
  all.insert(all.end(), head.begin(), head.end());
  const auto bytes = std::as_bytes(std::span(text));
  all.insert(all.end(), bytes.begin(), bytes.end());
}

/// The first of them, which goes.
std::string_view take(std::span<const std::byte>& all) {
  std::int64_t size = 0;
  core::check(all.size() >= sizeof size, "an index has a size");
  std::memcpy(&size, all.data(), sizeof size);
  all = all.subspan(sizeof size);
  core::check(size >= 0 && size <= std::ssize(all), "an index is whole");
  const auto bytes = all.first(static_cast<std::size_t>(size));
  all = all.subspan(bytes.size());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void share_indices(const comm::Communicator& world, const SampleSource& source) {
  if (world.size() == 1) return;
  const std::vector<Records*> files = source.record_files();
  comm::require_equal(world, "number of data files", std::to_string(files.size()));
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto own = comm::agree(world, [&] {
    std::vector<std::byte> bytes;
    for (auto i = static_cast<std::size_t>(world.rank()); i < files.size(); i += ranks) {
      append(bytes, files[i]->index());
      files[i]->release();
    }
    return bytes;
  });
  const auto all = world.all_gather_bytes(own);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::span<const std::byte> rest = all[rank];
    for (std::size_t i = rank; i < files.size(); i += ranks) {
      const std::string_view index = take(rest);
      if (static_cast<int>(rank) != world.rank() && !index.empty()) files[i]->adopt(index);
    }
  }
}

}  // namespace finetune::data
