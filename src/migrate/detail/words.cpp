// SPDX-License-Identifier: Apache-2.0
#include "migrate/detail/words.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace finetune::migrate {
namespace {

constexpr std::string_view by_given_rate =
    "by optimizer.lr, not relative to the step or to weights, and without momentum";
constexpr std::string_view eight_bits = "its moments have 8 bits, the fewest there are";
constexpr std::string_view no_paging =
    "moments are paged nowhere; optimizer.offload keeps them in host memory";
constexpr std::string_view own_template =
    "written as the model's own chat template says, which may differ in system messages";

constexpr auto words = std::to_array<Word>({
    {"optimizer.name", "adamw", "adamw"},
    {"optimizer.name", "adam", "adamw"},
    {"optimizer.name", "adamw_torch", "adamw"},
    {"optimizer.name", "adamw_torch_fused", "adamw"},
    {"optimizer.name", "adamw_torch_xla", "adamw"},
    {"optimizer.name", "adamw_torch_npu_fused", "adamw"},
    {"optimizer.name", "adamw_apex_fused", "adamw"},
    {"optimizer.name", "adamw_anyprecision", "adamw"},
    {"optimizer.name", "adamw_hf", "adamw"},
    {"optimizer.name", "torch.optim.adamw", "adamw"},
    {"optimizer.name", "torch.optim.adam", "adamw"},
    {"optimizer.name", "paged_adamw", "adamw", no_paging},
    {"optimizer.name", "paged_adamw_32bit", "adamw", no_paging},
    {"optimizer.name", "bitsandbytes.optim.pagedadamw", "adamw", no_paging},
    {"optimizer.name", "bitsandbytes.optim.adamw", "adamw"},
    {"optimizer.name", "adafactor", "adafactor", by_given_rate},
    {"optimizer.name", "adamw_8bit", "adamw8bit"},
    {"optimizer.name", "adamw_bnb_8bit", "adamw8bit"},
    {"optimizer.name", "adamw_torch_8bit", "adamw8bit"},
    {"optimizer.name", "ao_adamw_8bit", "adamw8bit"},
    {"optimizer.name", "paged_adamw_8bit", "adamw8bit", no_paging},
    {"optimizer.name", "bitsandbytes.optim.adamw8bit", "adamw8bit"},
    {"optimizer.name", "bitsandbytes.optim.pagedadamw8bit", "adamw8bit", no_paging},
    {"optimizer.name", "torchao.optim.adamw8bit", "adamw8bit"},
    {"optimizer.name", "torchao.prototype.low_bit_optim.adamw8bit", "adamw8bit"},
    {"optimizer.name", "adamw_torch_4bit", "adamw8bit", eight_bits},
    {"optimizer.name", "ao_adamw_4bit", "adamw8bit", eight_bits},
    {"optimizer.name", "adamw_torch_fp8", "adamw8bit", eight_bits},
    {"optimizer.name", "lion", "lion"},
    {"optimizer.name", "lion_32bit", "lion"},
    {"optimizer.name", "lion_8bit", "lion8bit"},
    {"optimizer.name", "bitsandbytes.optim.lion8bit", "lion8bit"},
    {"optimizer.name", "paged_lion_32bit", "lion", no_paging},
    {"optimizer.name", "paged_lion_8bit", "lion8bit", no_paging},
    {"optimizer.name", "muon", "muon"},
    {"optimizer.name", "torch.optim.muon", "muon"},
    {"optimizer.name", "schedule_free_adamw", "schedule_free"},
    {"optimizer.name", "schedulefree.adamwschedulefree", "schedule_free"},

    {"optimizer.schedule", "cosine", "cosine"},
    {"optimizer.schedule", "cosine_with_min_lr", "cosine"},
    {"optimizer.schedule", "cosine_warmup_with_min_lr", "cosine"},
    {"optimizer.schedule", "cosine_with_restarts", "cosine_with_restarts"},
    {"optimizer.schedule", "linear", "linear"},
    {"optimizer.schedule", "polynomial", "polynomial"},
    {"optimizer.schedule", "inverse_sqrt", "inverse_sqrt"},
    {"optimizer.schedule", "constant", "constant"},
    {"optimizer.schedule", "constant_with_warmup", "constant"},
    {"optimizer.schedule", "warmup_stable_decay", "wsd"},
    {"optimizer.schedule", "warmuplr", "constant"},
    {"optimizer.schedule", "warmupdecaylr", "linear"},
    {"optimizer.schedule", "warmupcosinelr", "cosine"},

    {"data.template", "alpaca", "alpaca"},
    {"data.template", "chatml", "chatml"},
    {"data.template", "llama2", "llama2"},
    {"data.template", "llama3", "llama3"},
    {"data.template", "llama4", "llama4"},
    {"data.template", "mistral_v1", "mistral-v1"},
    {"data.template", "mistral_v2v3", "mistral-v3"},
    {"data.template", "mistral_v3_tekken", "mistral-v3-tekken"},
    {"data.template", "mistral_v7", "mistral-v7"},
    {"data.template", "qwen_25", "qwen2.5"},
    {"data.template", "qwen3", "qwen3"},
    {"data.template", "tokenizer_default", "model"},
    {"data.template", "jinja", "model", own_template},
    {"data.template", "*", "model", own_template},

    {"precision.mode", "bf16", "bf16-true"},
    {"precision.mode", "fp32", "32-true"},
    {"precision.mode", "bf16-true", "bf16-true"},
    {"precision.mode", "bf16-mixed", "bf16-mixed"},
    {"precision.mode", "16-mixed", "16-mixed"},
    {"precision.mode", "32-true", "32-true"},
});

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

const Word* find_word(std::string_view key, std::string_view value) {
  const std::string wanted = lower_case(value);
  const auto is_meant = [&](const Word& word) {
    return word.key == key && (word.value == wanted || word.value == "*");
  };
  const auto found = std::ranges::find_if(words, is_meant);
  return found == words.end() ? nullptr : &*found;
}

}  // namespace finetune::migrate
