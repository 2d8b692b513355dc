// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/lineage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace finetune::checkpoint {
namespace {

using core::Json;

/// Where the number begins, with its '#'; npos without one.
std::size_t number_in(std::string_view resume) {
  const std::size_t mark = resume.rfind('#');
  if (mark == std::string_view::npos) return mark;
  const std::string_view digits = resume.substr(mark + 1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool is_number =
      !digits.empty() && digits.size() < 10 && std::ranges::all_of(digits, is_digit);
  return is_number ? mark : std::string_view::npos;
}

/// More than any folder sees, and far from where numbers end: files may hold anything.
constexpr std::int64_t largest_count = 1'000'000'000'000;

bool is_count(const Json& json) {
  return json.is_number_integer() && json >= 0 && json <= largest_count;
}

}  // namespace

Lineage Lineage::from_json(const Json& json) {
  Lineage lineage;
  if (!json.is_object()) return lineage;
  const auto list = [&](const char* key) { return json.value(key, Json::array()); };
  if (const auto branch = json.find("branch"); branch != json.end() && is_count(*branch))
    lineage.branch = branch->get<std::int64_t>();
  for (const Json& parent : list("parents")) {
    const bool fits = parent.is_object() && parent.contains("run_id") && parent.contains("step") &&
                      parent["run_id"].is_string() && is_count(parent["step"]);
    if (!fits) break;  // what lies behind it is not known to be its past
    lineage.parents.push_back(
        {parent["run_id"].get<std::string>(), parent["step"].get<std::int64_t>()});
  }
  for (const Json& value : list("begun_by"))
    if (value.is_string()) lineage.begun_by.push_back(value.get<std::string>());
  return lineage;
}

Json Lineage::to_json() const {
  Json list = Json::array();
  for (const Ancestor& parent : parents)
    list.push_back({{"run_id", parent.run_id}, {"step", parent.step}});
  return {{"branch", branch}, {"parents", std::move(list)}, {"begun_by", begun_by}};
}

bool Line::holds(std::string_view id, std::int64_t step) const {
  return id == run_id || std::ranges::any_of(lineage.parents, [&](const Ancestor& parent) {
           return id == parent.run_id && step <= parent.step;
         });
}

bool Line::was_begun_by(std::string_view resume) const {
  return std::ranges::find(lineage.begun_by, resume) != lineage.begun_by.end();
}

Line go_back(const std::string& resume, const Line& last, const Line* from, std::int64_t step) {
  Line line;
  line.lineage.branch = last.lineage.branch + 1;
  line.lineage.begun_by = last.lineage.begun_by;
  line.lineage.begun_by.insert(line.lineage.begun_by.begin(), resume);
  if (from == nullptr) return line;
  line.lineage.parents = from->lineage.parents;
  line.lineage.parents.insert(line.lineage.parents.begin(), {from->run_id, step});
  return line;
}

std::string_view without_number(std::string_view resume) {
  return resume.substr(0, number_in(resume));
}

std::string once_more(std::string_view resume) {
  const std::size_t mark = number_in(resume);
  std::int64_t number = 1;
  if (mark != std::string_view::npos)
    std::from_chars(resume.data() + mark + 1, resume.data() + resume.size(), number);
  return fmt::format("{}#{}", without_number(resume), number + 1);
}

}  // namespace finetune::checkpoint
