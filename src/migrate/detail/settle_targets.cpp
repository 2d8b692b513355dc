// SPDX-License-Identifier: Apache-2.0
// Which matrices have adapters.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <memory>

#include "deck/value.hpp"
#include "migrate/detail/settle.hpp"

namespace finetune::migrate {
namespace {

constexpr std::uint32_t most_attempts = 100'000;

/// Where matrices lie in models, also where their text part lies within others.
constexpr auto places = std::to_array<std::string_view>(
    {"model.layers.0.", "model.language_model.layers.0.", "language_model.model.layers.0."});
constexpr auto matrices = std::to_array<std::string_view>(
    {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
     "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"});

bool matches(const pcre2_code* code, pcre2_match_context* limits, const std::string& name) {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data.get(),
                     limits) >= 0;
}

bool is_expression(const std::string& text) {
  return text.find_first_of("*[(|\\^$+?") != std::string::npos;
}

/// LLaMA-Factory and PEFT have words for all matrices.
bool means_all(const std::string& text) {
  return text == "all" || text == "all-linear" || text == "linear";
}

}  // namespace

std::vector<std::string> names_in(const Node& node) {
  std::vector<std::string> names;
  if (node.is_list()) {
    for (const Node& item : node.items)
      if (item.is_text()) names.push_back(item.text);
    return names;
  }
  if (is_expression(node.text)) return {node.text};
  std::string rest = node.text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(", "), rest.size());
    if (end > 0) names.push_back(rest.substr(0, end));
    rest.erase(0, std::min(end + 1, rest.size()));
  }
  return names;
}

std::vector<std::string> targets_of(const std::string& expression) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                    PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &offset, nullptr),
      &pcre2_code_free);
  if (code == nullptr) return {};
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), most_attempts);
  std::vector<std::string> names;
  for (const std::string_view matrix : matrices) {
    const bool is_meant = std::ranges::any_of(places, [&](std::string_view place) {
      return matches(code.get(), limits.get(), fmt::format("{}{}", place, matrix));
    });
    if (is_meant) names.emplace_back(matrix.substr(matrix.find('.') + 1));
  }
  return names;
}

void settle_targets(Draft& draft) {
  const std::string all = deck::to_toml(std::string("all-linear"));
  if (draft.is_on("lora_linear"))
    draft.set("adapter.target_modules", all, draft.fact("lora_linear")->name);
  const Fact* fact = draft.fact("lora_modules");
  if (fact == nullptr || draft.has("adapter.target_modules")) return;
  std::vector<std::string> targets;
  for (const std::string& name : names_in(fact->value)) {
    if (means_all(name)) {
      draft.set("adapter.target_modules", all, fact->name);
      return;
    }
    std::vector<std::string> meant = {name};
    if (is_expression(name)) meant = targets_of(name);
    if (meant.empty())
      draft.stop(fact->value, fmt::format("{} = {}", fact->name, fact->value.shown()),
                 "this regular expression means none of the usual matrices",
                 "adapter.target_modules=all-linear");
    for (const std::string& each : meant)
      if (std::ranges::find(targets, each) == targets.end()) targets.push_back(each);
  }
  if (!targets.empty()) draft.set("adapter.target_modules", deck::to_toml(targets), fact->name);
}

}  // namespace finetune::migrate
