// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace finetune::checkpoint {
namespace {

constexpr std::string_view step_prefix = "step-";
constexpr std::size_t step_digits = 10;

// Not std::isalnum: names mean the same in every locale.
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}

}  // namespace

mode_t folder_mode(Access access) {
  return access == Access::owner ? 0700 : access == Access::group ? 0750 : 0755;
}

mode_t file_mode(Access access) {
  return access == Access::owner ? 0600 : access == Access::group ? 0640 : 0644;
}

std::string folder_name(std::int64_t step) {
  return fmt::format("{}{:010}", step_prefix, step);
}

std::optional<std::int64_t> step_of(std::string_view folder_name) {
  if (folder_name.size() != step_prefix.size() + step_digits) return std::nullopt;
  if (!folder_name.starts_with(step_prefix)) return std::nullopt;
  std::int64_t step = 0;
  for (const char c : folder_name.substr(step_prefix.size())) {
    if (!is_digit(c)) return std::nullopt;
    step = 10 * step + (c - '0');
  }
  return step;
}

std::string file_name(Files files, std::int64_t index) {
  return fmt::format("{}{:05}.h5", files == Files::node ? "node" : "rank", index);
}

bool is_file_name(std::string_view name) {
  if (!name.starts_with("node") && !name.starts_with("rank")) return false;
  if (!name.ends_with(".h5") || name.size() < 12 || name.size() > 16) return false;
  const std::string_view digits = name.substr(4, name.size() - 7);
  return std::ranges::all_of(digits, is_digit);
}

bool is_kind(std::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::ranges::all_of(name, [](char c) { return is_lower(c) || is_digit(c) || c == '_'; });
}

bool is_tensor_name(std::string_view name) {
  return !name.empty() && name.size() <= 1024 && name.front() != '.' &&
         std::ranges::all_of(name, [](char c) {
           return is_lower(c) || is_upper(c) || is_digit(c) ||
                  std::string_view("._-:+").find(c) != std::string_view::npos;
         });
}

}  // namespace finetune::checkpoint
