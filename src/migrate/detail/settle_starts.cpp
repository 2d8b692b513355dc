// SPDX-License-Identifier: Apache-2.0
// What low-rank matrices begin with, and how fast those of an embedding learn.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "deck/value.hpp"
#include "migrate/detail/settle.hpp"

namespace finetune::migrate {
namespace {

/// PiSSA by so many iterations, where adapter.init takes them.
std::string start_after(std::int64_t number, const std::string& shown, Draft& draft) {
  constexpr std::int64_t most = 1000;
  if (number >= 1 && number <= most) return fmt::format("pissa_niter_{}", number);
  draft.note(Kind::differs, shown,
             fmt::format("adapter.init takes from 1 to {} iterations; pissa needs none", most));
  return "pissa";
}

/// The value of adapter.init; "" for what the usual start is, or is like.
std::string start_named(Draft& draft, const Fact& fact) {
  const std::string text = fact.value.text;
  constexpr auto usual = std::to_array<std::string_view>({"true", "True", "default", ""});
  for (const std::string_view name : usual)
    if (text == name) return "";
  if (text == "olora" || text == "pissa") return text;
  const std::string shown = fmt::format("{} = {}", fact.name, fact.value.shown());
  if (constexpr std::string_view with_number = "pissa_niter_"; text.starts_with(with_number)) {
    const std::string number = text.substr(with_number.size());
    if (const auto count = Node{.kind = Node::Kind::text, .text = number}.integer())
      return start_after(*count, shown, draft);
  }
  if (text == "gaussian" || text == "orthogonal") {
    draft.note(Kind::differs, shown, "A begins with numbers of a uniform distribution, B with 0");
    return "";
  }
  draft.stop(fact.value, shown, "low-rank matrices begin as lora, pissa or olora do",
             "adapter.init=lora");
  return "";
}

/// LLaMA-Factory's pissa_init and pissa_iter.
std::string start_by_iterations(Draft& draft) {
  constexpr std::int64_t usual = 16, exactly = -1;
  const std::int64_t number = draft.integer("pissa_iterations").value_or(usual);
  if (number == exactly) return "pissa";
  return start_after(number, fmt::format("pissa_iter = {}", number), draft);
}

/// Others give the rate itself.
void settle_embedding_rate(Draft& draft) {
  const std::optional<double> rate = draft.number("embedding_rate");
  const std::string targets = draft.value("adapter.target_modules");
  if (!rate || targets.find("embed_tokens") == std::string::npos) return;
  const Fact& fact = *draft.fact("embedding_rate");
  const std::string text = draft.value("optimizer.lr");
  double lr = 0;
  std::from_chars(text.data(), text.data() + text.size(), lr);
  if (lr <= 0) {
    draft.note(
        Kind::differs, fact.name,
        "adapter.loraplus_embedding_lr_ratio is a multiple of optimizer.lr, which is unknown");
    return;
  }
  draft.set("adapter.loraplus_embedding_lr_ratio", deck::to_toml(*rate / lr), fact.name);
}

}  // namespace

void settle_starts(Draft& draft) {
  settle_embedding_rate(draft);
  const Fact* named = draft.fact("lora_start");
  std::string start = named == nullptr ? "" : start_named(draft, *named);
  if (const bool is_on = draft.is_on("pissa"); is_on) start = start_by_iterations(draft);
  if (start.empty()) return;
  const Fact& fact = draft.is_on("pissa") ? *draft.fact("pissa") : *named;
  if (draft.value("adapter.name") == "\"qlora\"")
    draft.stop(fact.value, fmt::format("{} = {}", fact.name, fact.value.shown()),
               "on weights in 4 bits low-rank matrices begin with random numbers and zeros",
               "adapter.init=lora");
  else
    draft.set("adapter.init", deck::to_toml(start), fact.name);
}

}  // namespace finetune::migrate
