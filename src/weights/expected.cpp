// SPDX-License-Identifier: Apache-2.0
#include "weights/expected.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "core/error.hpp"
#include "core/text.hpp"
#include "weights/detail/names.hpp"

namespace finetune::weights {
namespace {

constexpr std::size_t most_listed = 10;
/// Names compared for a suggestion: a hostile file may have a million.
constexpr std::size_t most_candidates = 2000;

/// Angles, and masks of GPT-2 and GPT-NeoX.
bool is_computed_buffer(std::string_view name) {
  constexpr std::array endings = {"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias",
                                  ".attention.bias", ".attention.masked_bias"};
  return std::ranges::any_of(endings, [&](const char* end) { return name.ends_with(end); });
}

bool fits(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& expected) {
  return std::equal(
      shape.begin(), shape.end(), expected.begin(), expected.end(),
      [](std::int64_t size, std::int64_t wanted) { return size == wanted || wanted == -1; });
}

/// A tensor of any size has none to tell.
std::string needed(const ExpectedTensor& tensor) {
  const bool has_any = std::ranges::find(tensor.shape, -1) != tensor.shape.end();
  return has_any ? "of any size" : shape_text(tensor.shape);
}

struct Differences {
  std::vector<const ExpectedTensor*> missing;
  std::vector<std::string> unexpected;
  std::vector<const ExpectedTensor*> misshapen;

  bool none() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
};

Differences compare(const ModelFiles& files, std::span<const ExpectedTensor> expected,
                    std::span<const std::string> foreign) {
  Differences differences;
  std::set<std::string_view> known;
  for (const ExpectedTensor& tensor : expected) {
    known.insert(tensor.name);
    if (!files.contains(tensor.name)) {
      if (!tensor.optional) differences.missing.push_back(&tensor);
    } else if (!fits(files.entry(tensor.name).shape, tensor.shape)) {
      differences.misshapen.push_back(&tensor);
    }
  }
  for (std::string& name : files.names()) {
    const bool is_foreign = std::any_of(foreign.begin(), foreign.end(), [&](const auto& prefix) {
      return name.starts_with(prefix);
    });
    if (!known.contains(name) && !is_computed_buffer(name) && !is_foreign)
      differences.unexpected.push_back(std::move(name));
  }
  return differences;
}

/// "\n  missing:" and up to ten lines made by `line`, then how many more there are.
template <typename T, typename F>
std::string listed(const char* title, const std::vector<T>& all, F&& line) {
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), most_listed); ++i)
    text += fmt::format("\n  {}: {}", title, line(all[i]));
  if (all.size() > most_listed)
    text += fmt::format("\n  {}: and {} more", title, all.size() - most_listed);
  return text;
}

std::string list(const Differences& differences, const ModelFiles& files) {
  const std::span candidates = std::span(differences.unexpected)
                                   .first(std::min(differences.unexpected.size(), most_candidates));
  const auto missing = [&](const ExpectedTensor* tensor) {
    const auto near = core::nearest(tensor->name, candidates);
    return fmt::format("{} {}{}", tensor->name, needed(*tensor),
                       near ? fmt::format(" (there is {}: is it meant?)", in_quotes(*near)) : "");
  };
  const auto unexpected = [&](const std::string& name) {
    return fmt::format("{} {}", in_quotes(name), shape_text(files.entry(name).shape));
  };
  const auto misshapen = [&](const ExpectedTensor* tensor) {
    return fmt::format("{} is {}, should be {}", tensor->name,
                       shape_text(files.entry(tensor->name).shape), needed(*tensor));
  };
  return listed("missing", differences.missing, missing) +
         listed("unexpected", differences.unexpected, unexpected) +
         listed("wrong shape", differences.misshapen, misshapen);
}

}  // namespace

void check(const ModelFiles& files, std::span<const ExpectedTensor> expected,
           const std::string& config_path, std::span<const std::string> foreign) {
  check(files, expected,
        Reason{.why = fmt::format("{} describes another model", config_path),
               .remedy = "Check that the weights and config.json belong together."},
        foreign);
}

void check(const ModelFiles& files, std::span<const ExpectedTensor> expected, const Reason& reason,
           std::span<const std::string> foreign) {
  const Differences differences = compare(files, expected, foreign);
  if (differences.none()) return;
  core::fail(core::ErrorKind::input,
             {files.folder().string(),
              fmt::format("of {} tensors {} are missing, {} have the wrong shape, and {} are "
                          "unexpected",
                          std::count_if(expected.begin(), expected.end(),
                                        [](const ExpectedTensor& one) { return !one.optional; }),
                          differences.missing.size(), differences.misshapen.size(),
                          differences.unexpected.size()),
              reason.why, reason.remedy + list(differences, files)});
}

}  // namespace finetune::weights
