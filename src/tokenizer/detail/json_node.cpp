// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/json_node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::tokenizer {
namespace {

constexpr std::size_t most_elements = 2'000'000;

}  // namespace

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_->is_object()) refuse("this is not a JSON object", "it must have named members");
  const auto found = value_->find(std::string(key));
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonNode(*found, fmt::format("{}.{}", place_, key));
}

JsonNode JsonNode::at(std::string_view key) const {
  if (const auto node = find(key)) return *node;
  refuse(fmt::format("\"{}\" is missing", key), "it is needed to read this part of the file");
}

std::string JsonNode::text(std::string_view key) const {
  return at(key).as_text();
}

bool JsonNode::boolean(std::string_view key) const {
  const JsonNode node = at(key);
  if (!node.value().is_boolean()) node.refuse("this is not true or false", "a switch is needed");
  return node.value().get<bool>();
}

bool JsonNode::boolean(std::string_view key, bool fallback) const {
  return find(key) ? boolean(key) : fallback;
}

std::int32_t JsonNode::id(std::string_view key) const {
  return at(key).as_id();
}

std::vector<JsonNode> JsonNode::list(std::string_view key) const {
  return at(key).as_list();
}

std::string JsonNode::as_text() const {
  if (!value_->is_string()) refuse("this is not a text", "a text is needed here");
  return value_->get<std::string>();
}

std::int32_t JsonNode::as_id() const {
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
  if (!value_->is_number_unsigned() || value_->get<std::uint64_t>() > largest) {
    refuse("this is not a whole number from 0 to 2147483647", "token ids and counts are");
  }
  return static_cast<std::int32_t>(value_->get<std::uint64_t>());
}

std::vector<JsonNode> JsonNode::as_list() const {
  if (!value_->is_array()) refuse("this is not a JSON array", "a list is needed here");
  // Every element gets its place in words, which is longer than most elements.
  if (value_->size() > most_elements)
    refuse(fmt::format("{} elements", value_->size()),
           fmt::format("{} are possible", most_elements));
  std::vector<JsonNode> nodes;
  nodes.reserve(value_->size());
  for (const core::Json& element : *value_)
    nodes.emplace_back(element, fmt::format("{}[{}]", place_, nodes.size()));
  return nodes;
}

void JsonNode::only(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) refuse("this is not a JSON object", "it must have named members");
  for (const auto& [key, ignored] : value_->items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    refuse(fmt::format("unknown member \"{}\"", key),
           "it may change the ids, so it cannot be skipped",
           "Remove it if it has no effect, or use a tokenizer without it.");
  }
}

void JsonNode::limit_steps(std::size_t num_steps) const {
  constexpr std::size_t most_steps = 64;
  if (num_steps < most_steps) return;
  refuse("too many steps", fmt::format("a chain may have {}", most_steps));
}

void check_growth(std::size_t before, std::size_t after) {
  constexpr std::size_t most_times = 64;
  constexpr std::size_t always_allowed = 1 << 20;
  if (after <= always_allowed || after / most_times <= before) return;
  core::fail(core::ErrorKind::input,
             {"tokenizer", fmt::format("{} bytes of text became {}", before, after),
              "the steps of tokenizer.json blow it up", "Use another tokenizer.json."});
}

void JsonNode::refuse(const std::string& problem, const std::string& why,
                      const std::string& remedy) const {
  // Names in the file are somebody else's text: they neither steer the terminal nor begin a line.
  // And they may be as long as the file.
  const auto shown = [](const std::string& text) {
    constexpr std::size_t longest = 1000;
    const std::string line = core::one_line(text);
    return line.size() <= longest ? line : line.substr(0, longest) + "...";
  };
  core::fail(core::ErrorKind::input, {shown(place_), shown(problem), shown(why), remedy});
}

void JsonNode::refuse_type(const std::string& type, const std::string& supported) const {
  refuse(fmt::format("type \"{}\" is not supported", type),
         fmt::format("supported here: {}", supported),
         "Use a model whose tokenizer.json consists of these parts.");
}

}  // namespace finetune::tokenizer
