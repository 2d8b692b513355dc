// SPDX-License-Identifier: Apache-2.0
// LitGPT: options of its finetune and pretrain commands.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "deck/value.hpp"
#include "migrate/detail/source.hpp"
#include "migrate/detail/sources/notes.hpp"

namespace finetune::migrate {
namespace {

constexpr auto litgpt_marks = std::to_array<std::string_view>(
    {"train.global_batch_size", "train.micro_batch_size", "train.max_seq_length", "lora_query",
     "data.class_path", "eval.max_iters", "initial_checkpoint_dir"});

constexpr auto litgpt_rows = std::to_array<Row>({
    {"checkpoint_dir", Kind::key, "model.path"},
    {"initial_checkpoint_dir", Kind::key, "model.path"},
    {"model_name", Kind::fact, "model_name"},
    {"model_config", Kind::differs, "", "config.json in model.path says it"},
    {"tokenizer_dir", Kind::needless, "", notes::own_tokenizer},
    {"access_token", Kind::needless, "", notes::no_network},
    {"out_dir", Kind::key, "train.output"},
    {"precision", Kind::fact, "dtype"},
    {"quantize", Kind::fact, "bits"},
    {"devices", Kind::fact, "devices"},
    {"num_nodes", Kind::fact, "nodes"},
    {"resume", Kind::needless, "", notes::goes_on},
    {"lora_r", Kind::key, "adapter.lora_r"},
    {"lora_alpha", Kind::key, "adapter.lora_alpha"},
    {"lora_dropout", Kind::key, "adapter.lora_dropout"},
    {"lora_query", Kind::fact, "q_proj"},
    {"lora_key", Kind::fact, "k_proj"},
    {"lora_value", Kind::fact, "v_proj"},
    {"lora_projection", Kind::fact, "o_proj"},
    {"lora_mlp", Kind::fact, "mlp"},
    {"lora_head", Kind::fact, "head"},
    {"data", Kind::fact, "data"},
    {"train.save_interval", Kind::fact, "save_steps"},
    {"train.log_interval", Kind::fact, "log_steps"},
    {"train.global_batch_size", Kind::fact, "global_batch"},
    {"train.micro_batch_size", Kind::fact, "micro_batch"},
    {"train.lr_warmup_steps", Kind::fact, "warmup_steps"},
    {"train.lr_warmup_fraction", Kind::differs, "",
     "optimizer.warmup_ratio is a part of all steps, not of an epoch"},
    {"train.epochs", Kind::fact, "epochs"},
    {"train.max_tokens", Kind::fact, "max_tokens"},
    {"train.max_steps", Kind::fact, "max_steps"},
    {"train.max_time", Kind::key, "train.max_seconds"},
    {"train.max_seq_length", Kind::key, "data.max_seq_length"},
    {"train.tie_embeddings", Kind::needless, "", notes::local_files},
    {"train.max_norm", Kind::key, "optimizer.max_grad_norm"},
    {"train.min_lr", Kind::fact, "min_lr"},
    {"eval.interval", Kind::fact, "eval_steps"},
    {"eval.max_new_tokens", Kind::needless, "", "metrics.answers prints answers"},
    {"eval.evaluate_example", Kind::needless, "", "metrics.answers prints answers"},
    {"eval.max_iters", Kind::differs, "", "all validation samples are measured"},
    {"eval.initial_validation", Kind::needless, "", "validation begins with the first step"},
    {"eval.final_validation", Kind::needless, "", "validation ends with the last step"},
    {"log", Kind::needless, "", notes::no_tracker},
    {"logger_name", Kind::needless, "", notes::no_tracker},
    {"seed", Kind::key, "train.seed"},
    {"optimizer.class_path", Kind::word, "optimizer.name"},
    {"optimizer.init_args.lr", Kind::key, "optimizer.lr"},
    {"optimizer.init_args.weight_decay", Kind::key, "optimizer.weight_decay"},
    {"optimizer.init_args.betas", Kind::fact, "betas"},
    {"optimizer.init_args.eps", Kind::key, "optimizer.eps"},
    {"optimizer.init_args.fused", Kind::needless, "", notes::own_kernels},
    {"optimizer", Kind::word, "optimizer.name"},
    {"strategy", Kind::fact, "fsdp"},
});

constexpr auto litgpt_defaults = std::to_array<Default>({
    {"data.max_seq_length", "2048"},
    {"adapter.lora_r", "8"},
    {"adapter.lora_alpha", "16.0"},
    {"adapter.lora_dropout", "0.05"},
    {"precision.mode", R"("bf16-true")"},
    {"optimizer.schedule", R"("cosine")"},
    {"optimizer.beta2", "0.999"},
    {"optimizer.weight_decay", "0.01"},
    {"optimizer.max_grad_norm", "0.0"},
    {"checkpoint.save_steps", "1000"},
});

/// Its classes of data sets.
struct Class {
  std::string_view name, source, format;
  std::string_view prompt = "", input = "", answer = "";
};
constexpr auto classes = std::to_array<Class>({
    {"Alpaca", "tatsu-lab/alpaca", "alpaca"},
    {"Alpaca2k", "mhenrichsen/alpaca_2k_test", "alpaca"},
    {"AlpacaGPT4", "vicgalle/alpaca-gpt4", "alpaca"},
    {"Dolly", "databricks/databricks-dolly-15k", "alpaca", "instruction", "context", "response"},
    {"LongForm", "akoksal/LongForm", "alpaca", "input", "", "output"},
    {"FLAN", "Muennighoff/flan", "alpaca", "inputs", "", "targets"},
    {"LIMA", "GAIR/lima", "chat"},
    {"Deita", "HuggingFaceH4/deita-10k-v0-sft", "chat"},
    {"JSON", "", "alpaca"},
    {"TextFiles", "", "text"},
    {"TinyStories", "data/tinystories", "text"},
    {"TinyLlama", "data/tinyllama", "text"},
    {"MicroLlama", "data/microllama", "text"},
    {"OpenWebText", "data/openwebtext", "text"},
    {"LitData", "", "text"},
});

std::string text_in_litgpt(const Node& node, const char* key) {
  const Node* value = node.find(key);
  return value != nullptr && value->is_text() && !value->is_empty() ? value->text : "";
}

void take_arguments_of_litgpt(const Node& data, DataSet& set, Draft& draft) {
  for (const char* key :
       {"init_args.json_path", "init_args.train_data_path", "init_args.data_path"})
    if (const std::string path = text_in_litgpt(data, key); !path.empty()) set.path = path;
  if (const std::string path = text_in_litgpt(data, "init_args.val_data_path"); !path.empty())
    draft.add_validation({.path = path, .format = set.format});
  if (const Node* part = data.find("init_args.val_split_fraction"))
    draft.remember("val_size", "data.val_split_fraction", *part);
  const Node* masks = data.find("init_args.mask_prompt");
  if (set.format != "text" && (masks == nullptr || masks->is_off()))
    draft.set("data.train_on", R"("all")", "mask_prompt = false");
  const std::string style = text_in_litgpt(data, "init_args.prompt_style");
  if (set.format == "alpaca" && (style.empty() || style == "alpaca"))
    draft.set("data.template", R"("alpaca")", "prompt_style");
  else if (!style.empty())
    draft.set("data.template", R"("model")", "prompt_style = " + style);
  for (const char* key : {"init_args.ignore_index", "init_args.seed", "init_args.num_workers",
                          "init_args.download_dir"})
    if (const Node* value = data.find(key); value != nullptr && !value->is_empty())
      draft.note(Kind::needless, std::string("data.") + key, std::string(notes::one_cache));
}

void take_data_of_litgpt(Draft& draft) {
  const Fact* fact = draft.fact("data");
  if (fact == nullptr) return;
  const std::string whole =
      fact->value.is_map() ? text_in_litgpt(fact->value, "class_path") : fact->value.text;
  const std::string name = whole.substr(whole.rfind('.') + 1);
  const auto found = std::ranges::find(classes, name, &Class::name);
  if (found == classes.end()) {
    draft.stop(fact->value, "data = " + whole, "its samples are not known", "data.path=FILE");
    return;
  }
  DataSet set{.path = std::string(found->source), .format = std::string(found->format)};
  const auto put = [&](const char* key, std::string_view column) {
    if (!column.empty()) set.columns[key] = std::string(column);
  };
  put("data.prompt_column", found->prompt);
  put("data.input_column", found->input);
  put("data.answer_column", found->answer);
  take_arguments_of_litgpt(fact->value, set, draft);
  if (set.path.empty())
    draft.stop(fact->value, "data names no file", "there is nothing to read", "data.path=FILE");
  else
    draft.add_data(std::move(set));
}

void take_adapter_of_litgpt(const Node& root, Draft& draft) {
  if (root.find("lora_r") == nullptr && root.find("lora_query") == nullptr) return;
  draft.remember("adapter", "lora_r", Node{.kind = Node::Kind::text, .text = "lora"});
  std::vector<std::string> targets;
  const auto take = [&](const char* fact, const char* key, bool usual) {
    const bool is_on = root.find(key) == nullptr ? usual : draft.is_on(fact);
    if (is_on) targets.emplace_back(fact);
  };
  take("q_proj", "lora_query", true);
  take("k_proj", "lora_key", false);
  take("v_proj", "lora_value", true);
  take("o_proj", "lora_projection", false);
  if (draft.is_on("mlp")) targets.insert(targets.end(), {"gate_proj", "up_proj", "down_proj"});
  if (draft.is_on("head"))
    draft.note(Kind::differs, "lora_head",
               "the head has no adapter: adapter.modules_to_save = \"lm_head\" trains it whole");
  draft.set("adapter.target_modules", deck::to_toml(targets), "lora_query, lora_key, ...");
}

/// LitGPT pre-trains from random weights where it starts from no checkpoint.
void take_pretraining(const Node& root, Draft& draft) {
  const Fact* name = draft.fact("model_name");
  const Node* start = root.find("initial_checkpoint_dir");
  if (name == nullptr || (start != nullptr && !start->is_empty())) return;
  draft.set("model.path", deck::to_toml(name->value.text), name->name);
  draft.set("model.init", R"("random")", "no initial_checkpoint_dir");
  draft.say("model.path needs config.json and a tokenizer of that model.");
}

/// Tokens as steps of full sequences.
void take_tokens(Draft& draft) {
  const Fact* fact = draft.fact("max_tokens");
  const auto tokens = draft.integer("max_tokens");
  const auto batch = draft.integer("global_batch");
  const auto length =
      Node{.kind = Node::Kind::text, .text = draft.value("data.max_seq_length")}.integer();
  if (!tokens || !batch || *batch < 1) return;
  const std::int64_t per_step = *batch * std::max<std::int64_t>(1, length.value_or(2048));
  draft.set("train.max_steps", deck::to_toml((*tokens + per_step - 1) / per_step),
            fmt::format("{} = {} in full sequences", fact->name, *tokens));
}

void read_litgpt(const Node& root, Draft& draft) {
  take_data_of_litgpt(draft);
  take_adapter_of_litgpt(root, draft);
  take_pretraining(root, draft);
  take_tokens(draft);
  const Fact* lowest = draft.fact("min_lr");
  if (lowest == nullptr) return;
  const auto lr = Node{.kind = Node::Kind::text, .text = draft.value("optimizer.lr")}.number();
  const auto end = lowest->value.number();
  if (draft.has("model.init") && lr && end && *lr > 0 && *end <= *lr)
    draft.set("optimizer.min_lr_ratio", deck::to_toml(*end / *lr), lowest->name);
  else
    draft.note(Kind::needless, lowest->name,
               "the learning rate falls to 0, as LitGPT's does in fine-tuning");
}

}  // namespace

const Source litgpt = {"litgpt", "LitGPT",        litgpt_marks, litgpt_rows,
                       {},       litgpt_defaults, read_litgpt};

}  // namespace finetune::migrate
