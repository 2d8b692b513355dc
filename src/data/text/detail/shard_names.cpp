// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/shard_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

bool are_digits(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::optional<ShardName> shard_named(std::string_view name) {
  constexpr std::string_view of = "-of-";
  constexpr std::size_t digits = 5;
  const std::size_t at = name.find(of);
  if (at == std::string_view::npos || at < digits + 2 || name[at - digits - 1] != '-')
    return std::nullopt;
  const std::string_view number = name.substr(at - digits, digits);
  const std::string_view num = name.substr(at + of.size(), digits);
  if (num.size() < digits || !are_digits(num) || !are_digits(number)) return std::nullopt;
  return ShardName{name.substr(0, at - digits - 1), std::stoi(std::string(number)),
                   std::stoi(std::string(num))};
}

void require_all_shards(const fs::path& folder, const std::vector<std::string>& names,
                        const std::string& key) {
  std::map<std::pair<std::string, int>, std::set<int>> there;
  for (const fs::path name : names) {
    const std::string last = name.filename().string();
    if (const auto shard = shard_named(last))
      there[{(name.parent_path() / shard->of).string(), shard->num}].insert(shard->number);
  }
  for (const auto& [of, numbers] : there) {
    const auto& [begin, num] = of;
    for (int i = 0; i < num; ++i) {
      if (numbers.contains(i)) continue;
      core::fail(core::ErrorKind::input,
                 {folder.string(),
                  fmt::format("{}-{:05}-of-{:05} is missing", core::one_line(begin), i, num),
                  fmt::format("there {} {} of {} such files", numbers.size() == 1 ? "is" : "are",
                              numbers.size(), num),
                  fmt::format("Copy it, too. If these are all that is meant, name them: {} = "
                              "\"{}-*\".",
                              key, (folder / begin).string())});
    }
  }
}

}  // namespace finetune::data
