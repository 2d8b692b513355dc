// SPDX-License-Identifier: Apache-2.0
#include "tasks/detail/instructions.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "tasks/detail/checks.hpp"
#include "tasks/detail/phrases.hpp"

namespace finetune::tasks {
namespace {

[[noreturn]] void refuse_id(const std::string& id, const std::string& where) {
  std::vector<std::string> known;
  for (const CheckKind& kind : check_kinds())
    known.emplace_back(kind.id);
  const auto near = core::nearest(id, known);
  core::fail(core::ErrorKind::input,
             {where, fmt::format("there is no instruction \"{}\"", core::one_line(id)),
              "an answer cannot be judged by it",
              near ? fmt::format("Did you mean \"{}\"?", *near) : "Use those of IFEval's data."});
}

Check check_of(const std::string& id, const core::Json& arguments, const std::string& where) {
  for (const CheckKind& kind : check_kinds())
    if (id == kind.id) return kind.make(CheckArguments(arguments, where + ": " + id));
  refuse_id(id, where);
}

/// The answer, and what is left of it without opening and closing lines and marks of emphasis.
std::vector<std::string> variants_of(const std::string& answer) {
  const std::size_t first = answer.find('\n'), last = answer.rfind('\n');
  const bool has_lines = first != std::string::npos;
  std::vector<std::string> variants = {
      answer, has_lines ? stripped(answer.substr(first + 1)) : "",
      has_lines ? stripped(answer.substr(0, last)) : "",
      has_lines && first < last ? stripped(answer.substr(first + 1, last - first - 1)) : ""};
  for (std::size_t i = 0; i < 4; ++i) {
    std::string plain = variants[i];
    std::erase(plain, '*');
    variants.push_back(std::move(plain));
  }
  return variants;
}

}  // namespace

Instructions Instructions::read(const std::string& json, const std::string& where) {
  const core::Json read = core::Json::parse(json, nullptr, false);
  const bool has_lists = read.is_object() && read.contains("instructions") &&
                         read.contains("kwargs") && read["instructions"].is_array() &&
                         read["kwargs"].is_array() &&
                         read["instructions"].size() == read["kwargs"].size();
  if (!has_lists)
    core::fail(core::ErrorKind::input,
               {where, "task.answer writes no instructions",
                R"(metrics of instructions need {"instructions": [...], "kwargs": [...]}, as many)"
                " of one as of the other",
                "See inputs/tasks/ifeval.toml."});
  Instructions result;
  for (std::size_t i = 0; i < read["instructions"].size(); ++i) {
    const core::Json& id = read["instructions"][i];
    if (!id.is_string()) refuse_id(id.dump(), where);
    if (id == language_id) continue;
    result.checks_.push_back(check_of(id.get<std::string>(), read["kwargs"][i], where));
  }
  return result;
}

std::vector<double> Instructions::strict(const std::string& answer) const {
  std::vector<double> followed;
  for (const auto& check : checks_)
    followed.push_back(!stripped(answer).empty() && check(answer));
  return followed;
}

std::vector<double> Instructions::loose(const std::string& answer) const {
  const std::vector<std::string> variants = variants_of(answer);
  std::vector<double> followed;
  for (const auto& check : checks_)
    followed.push_back(std::ranges::any_of(variants, [&](const std::string& variant) {
      return !stripped(variant).empty() && check(variant);
    }));
  return followed;
}

}  // namespace finetune::tasks
