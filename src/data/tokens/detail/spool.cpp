// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/spool.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "core/fault.hpp"
#include "core/host.hpp"

namespace finetune::data {

core::File nameless_file(const std::filesystem::path& folder) {
  static int count = 0;
  const auto path = folder / fmt::format(".spool-{}-{}-{}", core::host_name(), ::getpid(), count++);
  core::File file(path, core::File::Mode::create_new, core::ErrorKind::create);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return file;
}

void Spool::append(std::span<const PackedToken> tokens) {
  memory_.insert(memory_.end(), tokens.begin(), tokens.end());
  const auto bytes = static_cast<std::int64_t>(memory_.size() * sizeof(PackedToken));
  if (!folder_.empty() && bytes > memory_bytes_) spill();
}

void Spool::spill() {
  core::fault::hit("data.spill");
  if (!file_) file_.emplace(nameless_file(folder_));
  file_->write_at(num_spilled_ * static_cast<std::int64_t>(sizeof(PackedToken)),
                  std::as_bytes(std::span(memory_)));
  num_spilled_ += std::ssize(memory_);
  memory_.clear();
}

void Spool::read(const std::function<void(std::int64_t, std::span<const PackedToken>)>& f) const {
  constexpr std::int64_t piece = std::int64_t{1} << 20;  // tokens
  std::vector<PackedToken> buffer(static_cast<std::size_t>(std::min(piece, num_spilled_)));
  for (std::int64_t first = 0; first < num_spilled_; first += piece) {
    const auto tokens =
        std::span(buffer).first(static_cast<std::size_t>(std::min(piece, num_spilled_ - first)));
    file_->read_at(first * static_cast<std::int64_t>(sizeof(PackedToken)),
                   std::as_writable_bytes(tokens));
    f(first, tokens);
  }
  if (!memory_.empty()) f(num_spilled_, memory_);
}

}  // namespace finetune::data
