// SPDX-License-Identifier: Apache-2.0
// What other programs call tables and values. One line each.
#include <algorithm>
#include <array>

#include "deck/aliases.hpp"

namespace finetune::deck {
namespace {

constexpr auto table_rows = std::to_array<TableAlias>({
    {"checkpointer", "checkpoint"},
    {"checkpointing", "checkpoint"},
    {"dataset", "data"},
    {"datasets", "data"},
    {"deepspeed", "parallel"},
    {"distributed", "parallel"},
    {"evaluation", "train"},
    {"fsdp", "parallel"},
    {"fsdp_config", "parallel"},
    {"logging", "metrics"},
    {"lora", "adapter"},
    {"lora_config", "adapter"},
    {"lr_scheduler", "optimizer"},
    {"metric_logger", "metrics"},
    {"mixed_precision", "precision"},
    {"optim", "optimizer"},
    {"parallelism", "parallel"},
    {"peft", "adapter"},
    {"peft_config", "adapter"},
    {"quantization", "adapter"},
    {"quantization_config", "adapter"},
    {"scheduler", "optimizer"},
    {"sft_config", "train"},
    {"tokenizer", "model"},
    {"train_dataset", "data"},
    {"trainer", "train"},
    {"training", "train"},
    {"training_args", "train"},
    {"training_arguments", "train"},
    {"validation", "data"},
    {"wandb", "metrics"},
    {"zero_optimization", "parallel"},
});

// Values without -, _ and blanks.
constexpr auto value_rows = std::to_array<ValueAlias>({
    {"checkpoint.resume", "true", "auto"},
    {"checkpoint.resume", "false", "never"},
    {"data.format", "json", "alpaca"},
    {"data.format", "instruct", "alpaca"},
    {"data.format", "instruction", "alpaca"},
    {"data.format", "chattemplate", "chat"},
    {"data.format", "conversation", "chat"},
    {"data.format", "openai", "messages"},
    {"data.format", "pretrain", "text"},
    {"data.format", "pretraining", "text"},
    {"data.on_overlong", "truncation", "truncate"},
    {"data.train_on", "assistant", "answers"},
    {"data.train_on", "completion", "answers"},
    {"data.train_on", "inputs", "all"},
    {"data.train_on", "false", "answers"},
    {"data.train_on", "true", "all"},
    {"adapter.name", "full", "none"},
    {"adapter.name", "dora", "lora"},
    {"optimizer.name", "adam", "adamw"},
    {"optimizer.name", "adamwtorch", "adamw"},
    {"optimizer.name", "adamwtorchfused", "adamw"},
    {"optimizer.name", "adamwapexfused", "adamw"},
    {"optimizer.name", "adamwhf", "adamw"},
    {"optimizer.name", "torch.optim.adamw", "adamw"},
    {"optimizer.name", "pagedadamw32bit", "adamw"},
    {"optimizer.name", "adamwbnb8bit", "adamw8bit"},
    {"optimizer.name", "pagedadamw8bit", "adamw8bit"},
    {"optimizer.schedule", "cosineannealing", "cosine"},
    {"optimizer.schedule", "cosinewithminlr", "cosine"},
    {"optimizer.schedule", "cosinerestarts", "cosine_with_restarts"},
    {"optimizer.schedule", "cosinewithhardrestarts", "cosine_with_restarts"},
    {"optimizer.schedule", "cosineannealingwarmrestarts", "cosine_with_restarts"},
    {"optimizer.schedule", "polynomialdecay", "polynomial"},
    {"optimizer.schedule", "inversesquareroot", "inverse_sqrt"},
    {"optimizer.schedule", "cosinewithwarmup", "cosine"},
    {"optimizer.schedule", "linearwithwarmup", "linear"},
    {"optimizer.schedule", "constantwithwarmup", "constant"},
    {"optimizer.schedule", "warmupstabledecay", "wsd"},
    {"parallel.sharding", "zero3", "FULL_SHARD"},
    {"parallel.sharding", "zerostage3", "FULL_SHARD"},
    {"parallel.sharding", "3", "FULL_SHARD"},
    {"parallel.sharding", "fsdp", "FULL_SHARD"},
    {"parallel.sharding", "full", "FULL_SHARD"},
    {"parallel.sharding", "fullshardautowrap", "FULL_SHARD"},
    {"parallel.sharding", "true", "AUTO"},
    {"parallel.sharding", "zero2", "SHARD_GRAD_OP"},
    {"parallel.sharding", "zerostage2", "SHARD_GRAD_OP"},
    {"parallel.sharding", "2", "SHARD_GRAD_OP"},
    {"parallel.sharding", "hsdp", "HYBRID_SHARD"},
    {"parallel.sharding", "hybrid", "HYBRID_SHARD"},
    {"parallel.sharding", "ddp", "NO_SHARD"},
    {"parallel.sharding", "zero0", "NO_SHARD"},
    {"parallel.sharding", "none", "NO_SHARD"},
    {"parallel.sharding", "false", "NO_SHARD"},
    {"precision.mode", "bf16", "bf16-mixed"},
    {"precision.mode", "bfloat16", "bf16-mixed"},
    {"precision.mode", "torch.bfloat16", "bf16-mixed"},
    {"precision.mode", "amp", "bf16-mixed"},
    {"precision.mode", "fp8", "fp8-mixed"},
    {"precision.mode", "float8", "fp8-mixed"},
    {"precision.mode", "purebf16", "bf16-true"},
    {"precision.mode", "16", "16-mixed"},
    {"precision.mode", "fp16", "16-mixed"},
    {"precision.mode", "float16", "16-mixed"},
    {"precision.mode", "half", "16-mixed"},
    {"precision.mode", "torch.float16", "16-mixed"},
    {"precision.mode", "32", "32-true"},
    {"precision.mode", "fp32", "32-true"},
    {"precision.mode", "float32", "32-true"},
    {"precision.mode", "torch.float32", "32-true"},
    {"precision.mode", "no", "32-true"},
    {"train.activation_checkpointing", "true", "full"},
    {"train.activation_checkpointing", "false", "none"},
    {"train.activation_checkpointing", "op", "selective"},
    {"train.determinism", "true", "run"},
    {"train.determinism", "false", "off"},
});

}  // namespace

std::span<const TableAlias> table_aliases() {
  return table_rows;
}
std::span<const ValueAlias> value_aliases() {
  return value_rows;
}

std::optional<std::string> find_table_alias(std::string_view name) {
  const std::string wanted = plain_name(name);
  const auto found = std::find_if(table_rows.begin(), table_rows.end(),
                                  [&](const TableAlias& a) { return a.name == wanted; });
  if (found == table_rows.end()) return std::nullopt;
  return std::string(found->here);
}

std::optional<std::string> find_value_alias(std::string_view key, std::string_view value) {
  std::string wanted = plain_name(value);
  std::erase_if(wanted, [](char c) { return c == '_' || c == ' '; });
  const auto found = std::find_if(value_rows.begin(), value_rows.end(), [&](const ValueAlias& a) {
    return a.key == key && a.value == wanted;
  });
  if (found == value_rows.end()) return std::nullopt;
  return std::string(found->here);
}

}  // namespace finetune::deck
