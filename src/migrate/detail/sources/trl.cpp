// SPDX-License-Identifier: Apache-2.0
// TRL's sft, and scripts around the Trainer of transformers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "deck/value.hpp"
#include "migrate/detail/source.hpp"
#include "migrate/detail/sources/notes.hpp"

namespace finetune::migrate {
namespace {

constexpr auto trl_marks = std::to_array<std::string_view>(
    {"model_name_or_path", "dataset_name", "per_device_train_batch_size", "num_train_epochs",
     "output_dir", "learning_rate", "gradient_accumulation_steps", "lora_r"});

constexpr auto trl_rows = std::to_array<Row>({
    {"dataset_name", Kind::fact, "dataset"},
    {"dataset_config", Kind::fact, "subset"},
    {"dataset_train_split", Kind::fact, "train_split"},
    {"dataset_test_split", Kind::fact, "test_split"},
    {"datasets", Kind::fact, "mixture"},
    {"env", Kind::needless, "", notes::job_ranks},
    {"ignore_bias_buffers", Kind::needless, "", notes::own_sharding},
});

constexpr auto trl_defaults = std::to_array<Default>({
    {"data.max_seq_length", "1024"},
    {"adapter.lora_r", "16"},
    {"adapter.lora_alpha", "32.0"},
    {"adapter.lora_dropout", "0.05"},
    {"adapter.double_quant", "false"},
    {"adapter.target_modules", R"(["q_proj", "v_proj"])"},
    {"precision.mode", R"("bf16-mixed")"},
    {"optimizer.lr", "2e-05"},
    {"optimizer.schedule", R"("linear")"},
    {"optimizer.beta2", "0.999"},
    {"train.epochs", "3"},
    {"train.activation_checkpointing", R"("full")"},
    {"checkpoint.save_steps", "500"},
});

/// One that has no splits.
bool is_file(const std::string& path) {
  constexpr auto endings = std::to_array<std::string_view>(
      {".arrow", ".csv", ".gz", ".json", ".jsonl", ".parquet", ".tsv", ".txt", ".zst"});
  const std::string ending = std::filesystem::path(path).extension().string();
  return std::ranges::find(endings, ending) != endings.end();
}

void take_validation_of_trl(const Fact& dataset, Draft& draft) {
  const std::string strategy = draft.text("eval_strategy");
  if (strategy.empty() || strategy == "no") return;
  if (is_file(dataset.value.text)) {
    draft.note(Kind::differs, fmt::format("{} = {}", dataset.name, dataset.value.shown()),
               "it names no validation data: data.validation_path is another file, and "
               "data.validation_fraction holds out a part of this one");
    return;
  }
  draft.add_validation({.path = dataset.value.text});
  const std::string test = draft.text("test_split");
  draft.set("data.validation_split", deck::to_toml(test.empty() ? std::string("test") : test),
            "dataset_test_split");
}

void read_trl(const Node& root, Draft& draft) {
  if (root.find("per_device_train_batch_size") == nullptr)
    draft.remember("micro_batch", "the default of TRL",
                   Node{.kind = Node::Kind::text, .text = "8"});
  if (root.find("num_train_epochs") == nullptr)
    draft.remember("epochs", "the default of TRL", Node{.kind = Node::Kind::text, .text = "3"});
  const std::string split = draft.text("train_split");
  if (const Fact* mixture = draft.fact("mixture")) {
    for (const Node& each : mixture->value.items) {
      DataSet set;
      if (const Node* path = each.find("path")) set.path = path->text;
      if (const Node* its = each.find("split")) set.split = its->text;
      if (const Node* its = each.find("name"); its != nullptr && its->is_text())
        set.subset = its->text;
      if (!set.path.empty()) draft.add_data(set);
    }
  } else if (const Fact* name = draft.fact("dataset")) {
    DataSet set{.path = name->value.text, .split = split, .subset = draft.text("subset")};
    if (!draft.text("text_field").empty() && draft.text("text_field") != "text")
      set.columns["data.text_column"] = draft.text("text_field");
    draft.add_data(set);
    take_validation_of_trl(*name, draft);
  }
  if (draft.is_on("answers_only"))
    draft.set("data.train_on", R"("answers")", draft.fact("answers_only")->name);
  else
    draft.note(
        Kind::differs, "data.train_on",
        "TRL trains whole conversations unless assistant_only_loss is set; here only answers "
        "are, unless data.train_on = \"all\"");
}

}  // namespace

const Source trl = {
    "trl", "TRL or transformers", trl_marks, trl_rows, hugging_face_rows(), trl_defaults, read_trl};

}  // namespace finetune::migrate
