#pragma once
// SPDX-License-Identifier: Apache-2.0
// The file of a golden page of messages: sections "[Suite.Test]", and "- " before each message,
// whose further lines are indented.

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tests {

/// Messages by the name of their test.
using Sections = std::map<std::string, std::vector<std::string>>;

/// The page at `path`; none is an empty one.
Sections read_page(const std::filesystem::path& path);

std::string page_text(const Sections& sections);

/// `message` with what a text file cannot hold written as \xNN, without spaces at ends of lines.
std::string as_on_page(std::string_view message);

/// Writes the page at `path` anew: of the tests `done` it has what `provoked` says, of those among
/// `all` that were not done what it had, and no others. Programs that share a page take turns.
void merge_page(const std::filesystem::path& path, const Sections& provoked,
                const std::set<std::string>& all, const std::set<std::string>& done);

}  // namespace finetune::tests
