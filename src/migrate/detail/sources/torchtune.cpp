// SPDX-License-Identifier: Apache-2.0
// torchtune: recipes of components.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "deck/value.hpp"
#include "migrate/detail/settle.hpp"
#include "migrate/detail/source.hpp"
#include "migrate/detail/sources/notes.hpp"

namespace finetune::migrate {
namespace {

constexpr std::string_view torchtune_preferences =
    "it trains on preferences, rewards or a teacher, and a deck that imports it would "
    "not";
constexpr std::string_view no_training = "it does not train";

constexpr auto torchtune_marks = std::to_array<std::string_view>(
    {"model._component_", "tokenizer._component_", "checkpointer._component_",
     "dataset._component_", "policy_model._component_", "orchestration"});

constexpr auto torchtune_rows = std::to_array<Row>({
    {"output_dir", Kind::key, "train.output"},
    {"name", Kind::needless, "", notes::no_tracker},
    {"tokenizer._component_", Kind::fact, "tokenizer"},
    {"tokenizer.max_seq_len", Kind::key, "data.max_seq_length"},
    {"tokenizer.prompt_template", Kind::fact, "prompt_template"},
    {"tokenizer", Kind::needless, "", notes::own_tokenizer},
    {"model._component_", Kind::fact, "model"},
    {"model.lora_attn_modules", Kind::fact, "attention_modules"},
    {"model.apply_lora_to_mlp", Kind::fact, "mlp"},
    {"model.apply_lora_to_output", Kind::fact, "head"},
    {"model.lora_rank", Kind::key, "adapter.lora_r"},
    {"model.lora_alpha", Kind::key, "adapter.lora_alpha"},
    {"model.lora_dropout", Kind::key, "adapter.lora_dropout"},
    {"model.use_dora", Kind::key, "adapter.use_dora"},
    {"model.quantize_base", Kind::fact, "4bit"},
    {"model.decoder_trainable", Kind::stops, "", "images and sound are not read"},
    {"model.encoder_trainable", Kind::stops, "", "images and sound are not read"},
    {"model.fusion_trainable", Kind::stops, "", "images and sound are not read"},
    {"model.image_size", Kind::stops, "", "images and sound are not read"},
    {"model", Kind::needless, "", notes::local_files},
    {"base_model_path", Kind::needless, "", notes::local_files},
    {"checkpointer.checkpoint_dir", Kind::key, "model.path"},
    {"checkpointer.keep_last_n_checkpoints", Kind::key, "checkpoint.save_total_limit"},
    {"checkpointer.adapter_checkpoint", Kind::needless, "", notes::goes_on},
    {"checkpointer", Kind::needless, "", notes::local_files},
    {"resume_from_checkpoint", Kind::needless, "", notes::goes_on},
    {"save_adapter_weights_only", Kind::needless, "", notes::whole_state},
    {"save_every_n_steps", Kind::fact, "save_steps"},
    {"save_every_n_epochs", Kind::fact, "save_every_epochs"},
    {"use_distributed_state_dict", Kind::needless, "", notes::whole_state},
    {"enable_async_checkpointing", Kind::needless, "",
     "checkpoints are written while training goes on"},
    {"dataset", Kind::fact, "dataset"},
    {"dataset_val", Kind::fact, "dataset_val"},
    {"datasets", Kind::fact, "datasets"},
    {"dataloader", Kind::needless, "", notes::one_cache},
    {"collate_fn", Kind::needless, "", notes::one_cache},
    {"batch_size_val", Kind::needless, "", "validation takes train.micro_batch, too"},
    {"run_val_every_n_steps", Kind::fact, "eval_steps"},
    {"seed", Kind::key, "train.seed"},
    {"shuffle", Kind::key, "data.shuffle"},
    {"optimizer._component_", Kind::word, "optimizer.name"},
    {"optimizer.lr", Kind::key, "optimizer.lr"},
    {"optimizer.weight_decay", Kind::key, "optimizer.weight_decay"},
    {"optimizer.eps", Kind::key, "optimizer.eps"},
    {"optimizer.betas", Kind::fact, "betas"},
    {"optimizer.fused", Kind::needless, "", notes::own_kernels},
    {"optimizer_in_bwd", Kind::key, "optimizer.in_backward"},
    {"lr_scheduler._component_", Kind::fact, "scheduler"},
    {"lr_scheduler.num_warmup_steps", Kind::fact, "warmup_steps"},
    {"lr_scheduler", Kind::differs, "", "cosine falls over half of its period"},
    {"loss._component_", Kind::fact, "loss"},
    {"loss", Kind::needless, "", "the head and its loss are computed in chunks"},
    {"epochs", Kind::fact, "epochs"},
    {"batch_size", Kind::fact, "micro_batch"},
    {"max_steps_per_epoch", Kind::fact, "steps_per_epoch"},
    {"gradient_accumulation_steps", Kind::fact, "accumulation"},
    {"clip_grad_norm", Kind::key, "optimizer.max_grad_norm"},
    {"compile", Kind::needless, "", notes::no_compiler},
    {"metric_logger", Kind::needless, "", notes::no_tracker},
    {"log_every_n_steps", Kind::fact, "log_steps"},
    {"log_peak_memory_stats", Kind::needless, "", notes::no_tracker},
    {"log_level", Kind::needless, "", notes::no_tracker},
    {"device", Kind::fact, "device"},
    {"dtype", Kind::fact, "dtype"},
    {"enable_activation_checkpointing", Kind::fact, "recompute"},
    {"enable_activation_offloading", Kind::differs, "",
     "train.offloaded_blocks moves blocks to the host"},
    {"ac_mode", Kind::differs, "",
     "train.activation_checkpointing = \"selective\" recomputes norms and activation functions"},
    {"ac_option", Kind::differs, "", "train.recomputed_blocks counts blocks"},
    {"custom_sharded_layers", Kind::needless, "", "embedding and head are sharded as blocks are"},
    {"memory_efficient_fsdp_wrap", Kind::needless, "",
     "embedding and head are sharded as blocks are"},
    {"fsdp_cpu_offload", Kind::fact, "offload"},
    {"fsdp.cpu_offload", Kind::fact, "offload"},
    {"fsdp_reshard_after_forward", Kind::fact, "reshard_after_forward"},
    {"tensor_parallel_dim", Kind::fact, "tp"},
    {"tensor_parallel_plan", Kind::needless, "", "parallel.tp shares every matrix"},
    {"context_parallel_dim", Kind::fact, "cp"},
    {"data_parallel_shard_dim", Kind::fact, "dp_shard"},
    {"data_parallel_replicate_dim", Kind::fact, "dp_replicate"},
    {"use_flex", Kind::needless, "", notes::one_attention},
    {"low_cpu_ram", Kind::needless, "", "a rank reads its part of the weights"},
    {"profiler.enabled", Kind::fact, "profile"},
    {"profiler.wait_steps", Kind::fact, "wait_steps"},
    {"profiler.warmup_steps", Kind::fact, "warmup_of_profile"},
    {"profiler.active_steps", Kind::fact, "active_steps"},
    {"profiler.num_cycles", Kind::fact, "num_cycles"},
    {"profiler", Kind::needless, "", "[profile] records steps"},
    // Other recipes
    {"quantizer", Kind::stops, "", no_training},
    {"tasks", Kind::stops, "", no_training},
    {"prompt", Kind::stops, "", no_training},
    {"max_new_tokens", Kind::needless, "", no_training},
    {"enable_kv_cache", Kind::needless, "", no_training},
    {"policy_model", Kind::stops, "", torchtune_preferences},
    {"teacher_model", Kind::stops, "", torchtune_preferences},
    {"orchestration", Kind::stops, "", torchtune_preferences},
    {"grpo_samples", Kind::stops, "", torchtune_preferences},
    {"kd_ratio", Kind::needless, "", torchtune_preferences},
    {"kd_loss", Kind::needless, "", torchtune_preferences},
    {"teacher_checkpointer", Kind::needless, "", torchtune_preferences},
    {"ref_checkpointer", Kind::stops, "", torchtune_preferences},
});

constexpr auto torchtune_defaults = std::to_array<Default>({
    {"data.max_seq_length", "2048"},
    {"adapter.lora_r", "8"},
    {"adapter.lora_alpha", "16.0"},
    {"adapter.lora_dropout", "0.0"},
    {"adapter.double_quant", "true"},
    {"optimizer.beta2", "0.999"},
    {"optimizer.weight_decay", "0.01"},
    {"optimizer.max_grad_norm", "0.0"},
});

/// A builder of data sets, and what its samples are.
struct Builder {
  std::string_view name, source, format;
  std::string_view prompt = "", input = "", answer = "", text = "", conversation = "";
};
constexpr auto builders = std::to_array<Builder>({
    {"alpaca_dataset", "tatsu-lab/alpaca", "alpaca"},
    {"alpaca_cleaned_dataset", "yahma/alpaca-cleaned", "alpaca"},
    {"instruct_dataset", "", "completion", "input", "", "output"},
    {"chat_dataset", "", "chat"},
    {"slimorca_dataset", "Open-Orca/SlimOrca-Dedup", "chat"},
    {"grammar_dataset", "liweili/c4_200m", "completion", "input", "", "output"},
    {"samsum_dataset", "Samsung/samsum", "completion", "dialogue", "", "summary"},
    {"text_completion_dataset", "", "text"},
    {"wikitext_dataset", "EleutherAI/wikitext_document_level", "text", "", "", "", "page"},
    {"cnn_dailymail_articles_dataset", "ccdv/cnn_dailymail", "text", "", "", "", "article"},
});

/// Keys of a data set that a deck has, or has no need of.
constexpr auto keys_of_set = std::to_array<std::string_view>(
    {"_component_", "source", "data_files", "split", "name", "partition", "column_map", "column",
     "conversation_column", "conversation_style", "train_on_input", "packed"});

/// What is written around messages: by a tokenizer that has a part of this name, or by a prompt
/// template of it.
struct Markup {
  std::string_view name;
  std::string_view here;  ///< of data.template; "": nothing
};
constexpr auto markup_of_tokenizers =
    std::to_array<Markup>({{"llama2", "llama2"}, {"mistral", "mistral-v1"}, {"gemma", ""}});
constexpr auto markup_of_templates = std::to_array<Markup>({{"Llama2ChatTemplate", "llama2"},
                                                            {"MistralChatTemplate", "mistral-v1"},
                                                            {"ChatMLTemplate", "chatml"}});

std::string last_part(const std::string& component) {
  return component.substr(component.rfind('.') + 1);
}

std::string text_in_torchtune(const Node& node, const char* key) {
  const Node* value = node.find(key);
  return value != nullptr && value->is_text() && !value->is_empty() ? value->text : "";
}

std::optional<DataSet> set_of_torchtune(const Node& node, Draft& draft) {
  const std::string name = last_part(text_in_torchtune(node, "_component_"));
  const auto found = std::ranges::find(builders, name, &Builder::name);
  if (found == builders.end()) {
    draft.stop(node, "dataset = " + name, "its samples are not instructions, conversations or text",
               "data.path=FILE");
    return std::nullopt;
  }
  DataSet set{.path = std::string(found->source), .format = std::string(found->format)};
  set.split = text_in_torchtune(node, "split");
  set.subset = text_in_torchtune(node, "name");
  const std::string source = text_in_torchtune(node, "source"),
                    files = text_in_torchtune(node, "data_files");
  if (!source.empty()) set.path = source;
  if (!files.empty()) set.path = files;
  const auto put = [&](const char* key, std::string_view usual, const std::string& column) {
    if (!column.empty() || !usual.empty())
      set.columns[key] = column.empty() ? std::string(usual) : column;
  };
  const bool is_alpaca = set.format == "alpaca";
  put("data.prompt_column", found->prompt,
      text_in_torchtune(node, is_alpaca ? "column_map.instruction" : "column_map.input"));
  if (is_alpaca) put("data.input_column", "", text_in_torchtune(node, "column_map.input"));
  put("data.answer_column", found->answer, text_in_torchtune(node, "column_map.output"));
  put("data.text_column", found->text, text_in_torchtune(node, "column"));
  put("data.conversation_column", "", text_in_torchtune(node, "conversation_column"));
  return set;
}

void take_key(const Node& set, const char* theirs, const char* ours, Draft& draft) {
  const Node* value = set.find(theirs);
  if (value != nullptr && value->boolean())
    draft.set(ours, *value->boolean() ? "true" : "false", fmt::format("dataset.{}", theirs));
}

void note_keys_of_set(const Node& set, Draft& draft) {
  for (const auto& [key, value] : set.entries) {
    if (value.is_empty() || std::ranges::find(keys_of_set, key) != keys_of_set.end()) continue;
    draft.note(value.is_off() ? Kind::needless : Kind::differs,
               fmt::format("dataset.{} = {}", key, value.shown()),
               key == "new_system_prompt"
                   ? "a system message is one of the record: data.system_column"
                   : "data sets are read as data.format says");
  }
}

void take_data_of_torchtune(Draft& draft) {
  const Fact* fact = draft.fact("dataset");
  if (fact == nullptr) return;
  const auto set = set_of_torchtune(fact->value, draft);
  if (!set) return;
  const Fact* other = draft.fact("dataset_val");
  const std::string held = other == nullptr ? "" : text_in_torchtune(other->value, "split");
  const Split own = parse_split(set->split);
  DataSet data = *set;
  // The end of the same data: what is left of them is trained on.
  const bool is_end = own.part < 1 && held == fmt::format("{}[{:g}%:]", own.name, own.part * 100);
  if (is_end) {
    data.split = own.name;
    draft.set("data.validation_fraction", deck::to_toml(std::round((1 - own.part) * 1e9) / 1e9),
              "dataset_val.split");
  } else if (other != nullptr) {
    if (auto validation = set_of_torchtune(other->value, draft)) draft.add_validation(*validation);
  }
  draft.add_data(data);
  note_keys_of_set(fact->value, draft);
  take_key(fact->value, "packed", "data.packing", draft);
  const Node* on_input = fact->value.find("train_on_input");
  const bool trains_all = on_input == nullptr ? data.format == "alpaca" : !on_input->is_off();
  if (trains_all) draft.set("data.train_on", R"("all")", "train_on_input, as it is by default");
  if (const std::string part = text_in_torchtune(fact->value, "partition"); !part.empty())
    draft.note(Kind::differs, "dataset.partition = " + part, "data sets are read whole");
}

/// The value of data.template for what the tokenizer writes around messages; "": nothing.
std::string template_of_torchtune(const Node& root, Draft& draft) {
  const std::string tokenizer = draft.text("tokenizer");
  const auto its = std::ranges::find_if(markup_of_tokenizers, [&](const Markup& markup) {
    return tokenizer.find(markup.name) != std::string::npos;
  });
  const bool is_own = its == markup_of_tokenizers.end();  // in the tokens of all its messages
  const std::string_view usual = is_own ? "model" : its->here;
  const Node* named = root.find("tokenizer.prompt_template");
  if (named == nullptr) return std::string(usual);
  const Fact* fact = draft.fact("prompt_template");
  if (fact == nullptr) return is_own ? "model" : "";
  const auto found = std::ranges::find(markup_of_templates, last_part(named->text), &Markup::name);
  if (!is_own && found != markup_of_templates.end()) return std::string(found->here);
  draft.note(Kind::differs, fmt::format("{} = {}", fact->name, named->shown()),
             "data.prompt_template writes texts around a prompt");
  return is_own ? "model" : "";
}

void take_template_of_torchtune(const Node& root, Draft& draft) {
  const std::string format = draft.data().empty() ? "text" : draft.data().front().format;
  const std::string name = template_of_torchtune(root, draft);
  if (format == "text") return;
  if (name.empty() && format == "chat")
    draft.note(Kind::differs, "messages",
               "it joins them as they stand; here a template is written");
  // Conversations are written as the model does in any case.
  if (name.empty() || (format == "chat" && name == "model")) return;
  draft.set("data.template", deck::to_toml(name), "as the tokenizer of torchtune does");
  if (format == "alpaca")
    draft.note(Kind::differs, "dataset",
               "the sentences that torchtune puts around an instruction of "
               "Alpaca are left out: it is the user's message");
}

void take_adapter_of_torchtune(Draft& draft) {
  const std::string component = last_part(draft.text("model"));
  const bool is_packed = component.starts_with("qlora");
  if (!is_packed && !component.starts_with("lora")) return;
  draft.remember("adapter", "model._component_",
                 Node{.kind = Node::Kind::text, .text = is_packed ? "qlora" : "lora"});
  std::vector<std::string> targets;
  if (const Fact* attention = draft.fact("attention_modules"))
    for (const Node& name : attention->value.items)
      targets.push_back(name.text == "output_proj" ? "o_proj" : name.text);
  if (draft.is_on("mlp")) targets.insert(targets.end(), {"gate_proj", "up_proj", "down_proj"});
  if (draft.is_on("head"))
    draft.note(Kind::differs, draft.fact("head")->name,
               "the head has no adapter: adapter.modules_to_save = \"lm_head\" trains it whole");
  if (!targets.empty())
    draft.set("adapter.target_modules", deck::to_toml(targets),
              "lora_attn_modules, apply_lora_to_mlp");
}

void take_schedule(Draft& draft) {
  const Fact* scheduler = draft.fact("scheduler");
  const std::string name = scheduler == nullptr ? "" : last_part(scheduler->value.text);
  if (scheduler != nullptr && name.find("cosine") == std::string::npos)
    draft.stop(scheduler->value, "lr_scheduler = " + name, "there is no schedule like it",
               "optimizer.schedule=cosine");
  draft.set("optimizer.schedule", scheduler == nullptr ? R"("constant")" : R"("cosine")",
            scheduler == nullptr ? "no lr_scheduler" : name);
  const Fact* loss = draft.fact("loss");
  if (loss != nullptr && (loss->value.text.find("rlhf") != std::string::npos ||
                          loss->value.text.find(".rl.") != std::string::npos ||
                          loss->value.text.find("grpo") != std::string::npos))
    draft.stop(loss->value, "loss = " + last_part(loss->value.text),
               std::string(torchtune_preferences), "");
}

void read_torchtune(const Node& root, Draft& draft) {
  take_data_of_torchtune(draft);
  take_template_of_torchtune(root, draft);
  take_adapter_of_torchtune(draft);
  take_schedule(draft);
  if (draft.text("device") == "cpu") draft.set("train.device", R"("cpu")", "device");
  const Node* length = root.find("tokenizer.max_seq_len");
  if (length != nullptr && length->is_empty()) {
    draft.set("data.on_overlong", R"("error")", "there is no longest length there");
    draft.note(
        Kind::differs, "tokenizer.max_seq_len",
        "data.max_seq_length is a number: a longer sample stops the run and says its length");
  }
}

}  // namespace

const Source torchtune = {"torchtune", "torchtune",        torchtune_marks, torchtune_rows,
                          {},          torchtune_defaults, read_torchtune};

}  // namespace finetune::migrate
