// SPDX-License-Identifier: Apache-2.0
#include "data/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/text/columns.hpp"
#include "data/text/conversation.hpp"
#include "data/text/detect_format.hpp"
#include "data/text/record_template.hpp"

namespace finetune::data {
namespace {

using deck::Restart;

void bind_sources(deck::Table& table, DataSettings& data, std::span<const Format> formats) {
  std::vector<std::string> choices = {auto_format};
  for (const Format& format : formats)
    choices.push_back(format.name);
  // Paths may change on restart: whether the data did is told by their fingerprint.
  table.texts(
      {.name = "path",
       .restart = Restart::free,
       .sentence =
           "Training data: a file, a folder of files at any depth, a pattern (data/*.jsonl, "
           "data/**/part-?.csv), or an array of several data sets. JSON, JSONL, "
           "CSV, TSV, tar (compressed by gzip or zstd, too), Parquet, Arrow, MDS shards, or token "
           "ids of Megatron-LM (NAME of NAME.bin and NAME.idx).",
       .required = true},
      data.paths);
  table.texts(
      {.name = "format",
       .restart = Restart::fixed,
       .sentence = "Format of the files: one for all of data.path, or one for each. auto: found "
                   "from the fields of the first records, and logged."},
      data.formats, choices);
  table.text({.name = "split",
              .restart = Restart::fixed,
              .sentence = "Of a folder, the files that are of this split by its README.md or their "
                          "names (train-*, test.jsonl, ...), where these tell one; all: every "
                          "file."},
             data.split);
  table.text({.name = "subset",
              .restart = Restart::fixed,
              .sentence = "Of a folder whose README.md lists several data sets (configs, as on the "
                          "Hugging Face Hub), the name of one. Empty: the default, or the only "
                          "one."},
             data.subset);
  table.reals({.name = "weights",
               .restart = Restart::fixed,
               .sentence = "Passes over each of data.path per epoch: 2 is twice; 0.5 is one half, "
                           "and the other half in the next epoch; empty: one each."},
              data.weights, {.max = 1e6, .above = 0.0});
  table.texts({.name = "validation_path",
               .restart = Restart::free,
               .sentence = "Validation data of the same format; empty for none."},
              data.validation_paths);
  table.text(
      {.name = "validation_split",
       .restart = Restart::free,
       .sentence = "As split, of folders in validation_path. Without files of \"validation\" "
                   "there, the only other split than \"train\" is taken."},
      data.validation_split);
  table.real({.name = "validation_fraction",
              .restart = Restart::fixed,
              .sentence = "Fraction of the training data that is held out for validation instead; "
                          "the choice depends on train.seed."},
             data.validation_fraction, {.min = 0.0, .below = 1.0});
}

void bind_columns(deck::Table& table, Columns& columns, std::span<const Format> formats) {
  table.named_texts({.name = "columns",
                     .restart = Restart::fixed,
                     .sentence = "Columns of the data by the names of the format's fields: "
                                 "{ instruction = \"question\", output = \"answer\" }. The keys "
                                 "below do the same for one column each."},
                    columns.mapped, field_names(formats));
  const auto column = [&](const char* name, const char* sentence, std::string& value) {
    table.text({.name = name, .restart = Restart::fixed, .sentence = sentence}, value);
  };
  column("conversation_column",
         "Chats: column of the list of messages. Empty: \"messages\", else \"conversations\".",
         columns.conversation);
  table.texts(
      {.name = "turn_columns",
       .restart = Restart::fixed,
       .sentence = "Chats whose turns lie in columns of their own: the columns of what user "
                   "and assistant say by turns, [\"question\", \"answer\", \"question_2\", "
                   "\"answer_2\"]. A conversation ends before the first that is empty."},
      columns.turns);
  table.named_texts({.name = "message_fields",
                     .restart = Restart::fixed,
                     .sentence = "What messages call their fields: { role = \"speaker\", content = "
                                 "\"text\" }. Otherwise as data.format says."},
                    columns.message_fields, message_field_names());
  table.named_texts({.name = "roles",
                     .restart = Restart::fixed,
                     .sentence = "What messages call roles, several names with commas between: "
                                 "{ user = \"customer\", assistant = \"agent, clerk\" }. Usual "
                                 "names (human, gpt, ...) are known; all others go to the model's "
                                 "own template as they are."},
                    columns.roles, role_names());
  column(
      "prompt_column",
      "Column of the instruction or prompt, a text, in completion also a list of messages. Empty: "
      "\"instruction\" in alpaca, \"prompt\" in completion.",
      columns.prompt);
  column("input_column",
         "Alpaca: column of the text that the instruction is about. Empty: \"input\", if present.",
         columns.input);
  column("answer_column",
         "Column of the answer. Empty: \"output\" in alpaca, \"completion\" in completion.",
         columns.answer);
  column("text_column", "Column of running text. Empty: \"text\".", columns.text);
  column("system_column",
         "Alpaca, completion and chats: column of a system message. Empty: \"system\", if present.",
         columns.system);
  column(
      "tools_column",
      "Lists of messages: column of the functions the model may call, a list, its JSON text, or a "
      "list of JSON texts. Empty: \"tools\", if present.",
      columns.tools);
  column("label_column", "Labelled: column of the text's label. Empty: \"label\".", columns.label);
  column("tokens_column", "Tokens: column of their ids. Empty: \"input_ids\".", columns.tokens);
  column("labels_column",
         "Tokens: column of the labels, -100 where a token is not trained, else its id. Empty: "
         "\"labels\", if present; without labels every token is trained.",
         columns.labels);
  const auto written = [&](const char* name, const char* sentence, std::string& value) {
    table.text({.name = name, .restart = Restart::fixed, .sentence = sentence}, value);
    if (const auto problem = template_problem(value))
      table.problem(name, fmt::format("data.{} is no template: {}", name, *problem),
                    "it is in Jinja, as chat templates are", "Correct it.");
  };
  written("prompt_template",
          "Alpaca, completion, labelled, preference: Jinja over the fields of a record that writes "
          "the prompt (labelled: the text), \"Question: {{ question }}\\nAnswer:\". The answer "
          "follows it as it stands. Empty: the prompt is a column.",
          columns.prompt_template);
  written("answer_template",
          "Alpaca, completion: the same for the answer, \" {{ choices[label] }}\". Empty: the "
          "answer is a column.",
          columns.answer_template);
}

/// Where the deck leaves formats to the data, that is looked at with them.
void require_columns(deck::Table& table, const DataSettings& data,
                     std::span<const Format> formats) {
  std::vector<const Format*> chosen;
  for (const std::string& name : data.formats) {
    const auto found = std::ranges::find(formats, name, &Format::name);
    if (found == formats.end()) return;
    chosen.push_back(&*found);
  }
  if (chosen.empty()) return;
  if (const auto problem = column_problem(data.columns, chosen))
    table.problem(problem->key, problem->problem, problem->why, problem->remedy);
}

void bind_manner(deck::Table& table, DataSettings& data,
                 const std::vector<std::string>& template_names) {
  std::vector<std::string> choices = {"auto", "model"};
  choices.insert(choices.end(), template_names.begin(), template_names.end());
  table.choice({.name = "template",
                .restart = Restart::fixed,
                .sentence = "How conversations are written for the model. auto: as the format says "
                            "(alpaca, completion), otherwise as the model does; model: as the "
                            "model says (chat_template.jinja, else tokenizer_config.json or "
                            "chat_template.json), for any format. A template that writes the day "
                            "writes 26 July 2024 in training."},
               data.chat_template, choices);
  table.text({.name = "model_template",
              .restart = Restart::fixed,
              .sentence = "Of a model with several chat templates, the name of the one that "
                          "data.template takes for the model's. Empty: its default, and "
                          "\"tool_use\" for conversations with tools, if it has that."},
             data.model_template);
  table.values({.name = "template_kwargs",
                .restart = Restart::fixed,
                .sentence = "Names that the chat template is given beside the messages: { "
                            "enable_thinking = false, reasoning_effort = \"high\" }. What a sample "
                            "has in a column \"chat_template_kwargs\" comes over them. One that "
                            "the template does not read is warned about."},
               data.columns.template_kwargs);
  table.choice({.name = "train_on",
                .restart = Restart::fixed,
                .sentence = "Which tokens are trained: the model's answers including the token "
                            "that ends its turn, or everything."},
               data.train_on, {{"answers", TrainOn::answers}, {"all", TrainOn::all}});
  table.choice({.name = "special_names",
                .restart = Restart::fixed,
                .sentence = "How the name of a special token inside the data is read: as text like "
                            "any other, or as that token, as the Hugging Face libraries do."},
               data.special_names,
               {{"text", SpecialNameMeaning::text}, {"tokens", SpecialNameMeaning::tokens}});
}

void require_splits(deck::Table& table, const DataSettings& data) {
  for (const auto& [key, value] :
       {std::pair("split", &data.split), std::pair("validation_split", &data.validation_split)}) {
    if (!value->empty()) continue;
    table.problem(key, fmt::format("data.{} is empty", key), "a split has a name",
                  "Name one, or \"all\" for every file.");
  }
}

/// Lists that belong together have the same length.
void require_lengths(deck::Table& table, const DataSettings& data) {
  const std::size_t n = data.paths.size();
  if (data.formats.empty() || (data.formats.size() > 1 && data.formats.size() != n)) {
    table.problem("format",
                  fmt::format("data.format has {} entries, data.path {}", data.formats.size(), n),
                  "each data set has one format", "Give one for all, or one for each.");
  }
  if (!data.weights.empty() && data.weights.size() != n) {
    table.problem("weights",
                  fmt::format("data.weights has {} entries, data.path {}", data.weights.size(), n),
                  "each data set has one weight", "Give one for each, or none.");
  }
  if (data.formats.size() > 1 && !data.validation_paths.empty() &&
      data.validation_paths.size() != data.formats.size()) {
    table.problem("validation_path",
                  fmt::format("data.validation_path has {} entries, data.format {}",
                              data.validation_paths.size(), data.formats.size()),
                  "the formats belong to the validation data as well",
                  "Give as many, or one format for all.");
  }
}

void bind_sequences(deck::Table& table, DataSettings& data) {
  table.integer(
      {.name = "max_seq_length",
       .restart = Restart::fixed,
       .sentence = "Longest sequence in training; longer samples are treated as on_overlong says.",
       .unit = "tokens"},
      data.max_seq_length, {.min = 2});
  table.choice({.name = "on_overlong",
                .restart = Restart::fixed,
                .sentence = "What to do with a sample longer than max_seq_length: cut off its end, "
                            "leave it out, or stop."},
               data.on_overlong,
               {{"truncate", OnOverlong::truncate},
                {"drop", OnOverlong::drop},
                {"error", OnOverlong::error}});
  table.choice(
      {.name = "on_masked",
       .restart = Restart::fixed,
       .sentence = "What to do with a sample in which no token is trained: stop, or leave it out."},
      data.on_masked, {{"error", OnMasked::error}, {"drop", OnMasked::drop}});
  table.boolean(
      {.name = "packing",
       .restart = Restart::fixed,
       .sentence = "Fill sequences with as many samples as fit into max_seq_length, which "
                   "do not see each other; otherwise each sample is a sequence. Running "
                   "text is cut into full sequences either way."},
      data.packing);
  table.boolean({.name = "shuffle",
                 .restart = Restart::fixed,
                 .sentence = "Shuffle the samples, differently in each epoch."},
                data.shuffle);
  table.integer(
      {.name = "shuffle_block",
       .restart = Restart::fixed,
       .sentence = "Sequences that stay near each other when shuffled: blocks of so many "
                   "neighbours follow each other at random, 16 of them mixed at a time. For data "
                   "larger than the memory of a node, which are then read in large pieces; 0: any "
                   "sequence may follow any other."},
      data.shuffle_block, {.min = 0});
  table.boolean({.name = "allow_changed",
                 .restart = Restart::free,
                 .sentence = "Continue from a checkpoint although the training data, or which "
                             "of their tokens are trained, have changed; otherwise that is an "
                             "error."},
                data.allow_changed);
}

void bind_cache(deck::Table& table, DataSettings& data) {
  table.boolean({.name = "cache",
                 .restart = Restart::free,
                 .sentence = "Keep the tokens in a file, which the next start maps instead of "
                             "tokenising again; otherwise they are in the memory of every rank."},
                data.cache);
  table.text(
      {.name = "cache_dir",
       .restart = Restart::free,
       .sentence = "Folder of these files, which may be removed while no run uses them; empty: "
                   "token-cache next to train.output, so that runs on the same data share it."},
      data.cache_dir);
}

void bind_limits(deck::Table& table, DataSettings& data) {
  const auto limit = [&](const char* name, const char* sentence, double& value) {
    table.real({.name = name, .restart = Restart::free, .sentence = sentence}, value,
               {.min = 0.0, .max = 1.0});
  };
  limit("max_truncated", "Largest fraction of samples that may be cut; more is an error.",
        data.limits.truncated);
  limit("max_masked",
        "Largest fraction of samples without a trained token, if on_masked drops them.",
        data.limits.masked);
  limit("max_duplicates", "Largest fraction of samples that equal an earlier one of the data set.",
        data.limits.duplicates);
  limit("max_empty_answers", "Largest fraction of samples with an empty answer.",
        data.limits.empty_answers);
  limit("max_unknown_roles",
        "Largest fraction of samples with a message whose role the template does not know.",
        data.limits.unknown_roles);
  limit("max_missing_end_of_turn",
        "Largest fraction of samples with a trained answer that no end token follows.",
        data.limits.missing_end_of_turn);
  limit("max_not_written",
        "Largest fraction of samples with text, reasoning or calls of an answer that the chat "
        "template "
        "leaves out.",
        data.limits.not_written);
}

}  // namespace

void DataSettings::bind(deck::Table& table, std::span<const Format> known_formats,
                        const std::vector<std::string>& template_names) {
  bind_sources(table, *this, known_formats);
  bind_columns(table, columns, known_formats);
  bind_manner(table, *this, template_names);
  bind_sequences(table, *this);
  bind_cache(table, *this);
  bind_limits(table, *this);
  require_splits(table, *this);
  require_lengths(table, *this);
  require_columns(table, *this, known_formats);
  if (!model_template.empty() && chat_template != "auto" && chat_template != "model") {
    table.problem("model_template",
                  fmt::format("data.template is \"{}\", none of the model's", chat_template),
                  "it chooses among the templates that the model has", "Remove one.");
  }
  if (validation_fraction > 0 && !validation_paths.empty()) {
    table.problem("validation_fraction", "data.validation_path is given too",
                  "validation data come from one of the two", "Remove one.");
  }
}

DatasetOptions DataSettings::options(std::string name, std::int64_t vocab_size) const {
  DatasetOptions options;
  options.name = std::move(name);
  options.max_seq_length = max_seq_length;
  options.vocab_size = vocab_size;
  options.on_overlong = on_overlong;
  options.limits = limits;
  options.on_masked = on_masked;
  return options;
}

}  // namespace finetune::data
