// SPDX-License-Identifier: Apache-2.0
// Number formats, and how the model lies on ranks.
#include <fmt/format.h>

#include <algorithm>

#include "deck/value.hpp"
#include "migrate/detail/settle.hpp"
#include "migrate/detail/words.hpp"

namespace finetune::migrate {
namespace {

std::string in_quotes(std::string_view text) {
  return deck::to_toml(std::string(text));
}

void settle_precision(Draft& draft) {
  if (const Fact* dtype = draft.fact("dtype")) {
    const Word* word = find_word("precision.mode", dtype->value.text);
    if (word == nullptr)
      draft.stop(dtype->value, fmt::format("{} = {}", dtype->name, dtype->value.shown()),
                 "there is no number format like it", "precision.mode=bf16-mixed");
    else
      draft.set("precision.mode", in_quotes(word->here), dtype->name);
    return;
  }
  const auto take = [&](const char* fact, const char* mode) {
    if (draft.is_on(fact)) draft.set("precision.mode", in_quotes(mode), fact);
  };
  take("fp8", "fp8-mixed");
  if (draft.text("bf16") == "full")
    draft.set("precision.mode", in_quotes("bf16-true"), "bf16 = full");
  take("pure_bf16", "bf16-true");
  if (draft.text("mixed").starts_with("bf16"))
    draft.set("precision.mode", in_quotes("bf16-mixed"), "mixed_precision");
  take("bf16", "bf16-mixed");
  take("fp16", "16-mixed");
  if (draft.has("precision.mode")) return;
  const bool says_no = draft.fact("bf16") != nullptr && draft.fact("bf16")->value.is_off();
  if (says_no) draft.set("precision.mode", in_quotes("32-true"), "neither bf16 nor fp16");
}

std::string strategy_of(std::string word) {
  std::ranges::transform(word, word.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  if (word == "1" || word.find("FULL_SHARD") != std::string::npos) return "FULL_SHARD";
  if (word == "2" || word.find("SHARD_GRAD_OP") != std::string::npos) return "SHARD_GRAD_OP";
  if (word == "3" || word.find("NO_SHARD") != std::string::npos) return "NO_SHARD";
  if (word == "4" || word.find("HYBRID_SHARD") != std::string::npos) return "HYBRID_SHARD";
  return "";
}

void settle_sharding(Draft& draft) {
  if (const Fact* strategy = draft.fact("fsdp_strategy")) {
    const std::string name = strategy_of(strategy->value.text);
    if (!name.empty()) draft.set("parallel.sharding", in_quotes(name), strategy->name);
  }
  if (const auto stage = draft.integer("zero_stage"))
    draft.set("parallel.sharding",
              in_quotes(*stage >= 3   ? "FULL_SHARD"
                        : *stage >= 1 ? "SHARD_GRAD_OP"
                                      : "NO_SHARD"),
              fmt::format("ZeRO {}", *stage));
  if (const Fact* reshard = draft.fact("reshard_after_forward"))
    draft.set("parallel.sharding",
              in_quotes(reshard->value.is_off() ? "SHARD_GRAD_OP" : "FULL_SHARD"), reshard->name);
  if (const Fact* fsdp = draft.fact("fsdp"); fsdp != nullptr && !fsdp->value.is_off()) {
    const std::string name = strategy_of(fsdp->value.shown());
    if (!name.empty()) draft.set("parallel.sharding", in_quotes(name), fsdp->name);
  }
  const bool offloads = draft.is_on("offload") || draft.fact("offload_device") != nullptr ||
                        draft.fact("offload_param_device") != nullptr;
  if (offloads) draft.set("optimizer.offload", "true", "offloaded to the host");
}

void settle_axes(Draft& draft) {
  const auto take = [&](const char* fact, const char* key) {
    const auto size = draft.integer(fact);
    if (size && *size > 1) draft.set(key, std::to_string(*size), draft.fact(fact)->name);
  };
  take("tp", "parallel.tp");
  take("cp", "parallel.cp");
  take("ep", "parallel.ep");
  const auto replicas = draft.integer("dp_replicate");
  if (replicas && *replicas > 1) {
    take("dp_replicate", "parallel.dp_replicate");
    take("dp_shard", "parallel.dp_shard");
  } else if (const Fact* shards = draft.fact("dp_shard")) {
    draft.note(Kind::needless, shards->name, "all ranks of the job share the model");
  }
}

void settle_recomputation(Draft& draft) {
  const Fact* fact = draft.fact("recompute");
  if (fact == nullptr) return;
  const bool is_inverse = fact->name.find("disable") != std::string::npos;
  const bool is_on = fact->value.is_off() == is_inverse;
  draft.set("train.activation_checkpointing", in_quotes(is_on ? "full" : "none"), fact->name);
  if (is_on && !fact->value.boolean())
    draft.note(Kind::differs, fmt::format("{} = {}", fact->name, fact->value.shown()),
               "train.offloaded_blocks keeps what blocks keep in host memory");
}

}  // namespace

void settle_machine(Draft& draft) {
  settle_precision(draft);
  settle_sharding(draft);
  settle_axes(draft);
  settle_recomputation(draft);
}

}  // namespace finetune::migrate
