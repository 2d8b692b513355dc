// SPDX-License-Identifier: Apache-2.0
#include "verbs.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/text.hpp"
#include "deck/aliases.hpp"

namespace finetune::app {
namespace {

constexpr std::string_view train_it = "finetune DECK.toml trains.";
constexpr std::string_view going_on =
    "finetune DECK.toml continues from the newest good checkpoint in train.output.";
constexpr std::string_view trying =
    "finetune generate MODEL \"prompt\" continues a text, or gives it a label.";
constexpr std::string_view validating =
    "A run validates on data.validation_path every train.validate_steps, and metrics.answers shows "
    "answers; finetune generate MODEL \"prompt\" tries a model.";
constexpr std::string_view evaluating =
    "finetune evaluate MODEL... --tasks FILE... -o OUT asks models questions, and compares them.";
constexpr std::string_view exporting =
    "finetune export CHECKPOINT OUT writes a Hugging Face folder, with --merge an adapter in it.";
constexpr std::string_view tokenizing = "finetune tokenize DECK.toml fills the token cache.";
constexpr std::string_view planning =
    "finetune plan DECK.toml says whether it fits and how long "
    "it takes, with --data what would be trained on.";
constexpr std::string_view serving =
    "Servers such as vLLM read what finetune export CHECKPOINT OUT writes.";
constexpr std::string_view reporting =
    "finetune report RUN -o report.html draws curves, finetune watch RUN shows how a run is.";
constexpr std::string_view importing =
    "finetune import FILE prints a deck made from another program's configuration.";
constexpr std::string_view finding_lr =
    "finetune lr-range DECK.toml finds a learning rate by a short run in which it rises.";
constexpr std::string_view watching = "finetune watch RUN shows how a run is.";
constexpr std::string_view fetching =
    "Nothing is downloaded: bring the model's folder along and name it in model.path.";

// One line each.
constexpr auto verbs = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"bench", planning},
    {"benchmark", planning},
    {"chat", "finetune generate MODEL \"prompt\" --chat answers as a chat does."},
    {"continue", going_on},
    {"convert", exporting},
    {"convert_to_hf", exporting},
    {"cp", "The decks in inputs/ are there to copy."},
    {"data", planning},
    {"download", fetching},
    {"dpo", "Supervised fine-tuning is what there is: finetune DECK.toml."},
    {"dry-run", planning},
    {"dryrun", planning},
    {"env", "finetune --version says how this program was built."},
    {"estimate", planning},
    {"eval", evaluating},
    {"fetch", fetching},
    {"finetune", train_it},
    {"finetune_full", train_it},
    {"finetune_lora", train_it},
    {"fit", train_it},
    {"infer", trying},
    {"inference", trying},
    {"init", "The decks in inputs/ are there to copy."},
    {"launch", "srun or mpirun starts the ranks: srun finetune DECK.toml."},
    {"lint", planning},
    {"lr-find", finding_lr},
    {"lr_find", finding_lr},
    {"lr_finder", finding_lr},
    {"lr_range", finding_lr},
    {"ls", "The decks are in inputs/, the keys in finetune --reference."},
    {"memory", planning},
    {"merge", exporting},
    {"merge_lora", exporting},
    {"migrate", importing},
    {"monitor", watching},
    {"plot", reporting},
    {"plot_loss", reporting},
    {"predict", trying},
    {"prepare", tokenizing},
    {"preprocess", tokenizing},
    {"pretrain", train_it},
    {"prompt", trying},
    {"publish", exporting},
    {"push", exporting},
    {"quantise", "finetune quantize MODEL OUT writes a model in 4 bits."},
    {"restart", going_on},
    {"resume", going_on},
    {"run", train_it},
    {"serve", serving},
    {"sft", train_it},
    {"status", watching},
    {"tail", watching},
    {"tensorboard", reporting},
    {"test", validating},
    {"upload", exporting},
    {"validate", validating},
});

constexpr auto own_commands = std::to_array<std::string_view>(
    {"train", "plan", "check", "import", "tokenize", "generate", "evaluate", "export", "quantize",
     "verify", "report", "watch", "trace", "lr-range"});

}  // namespace

std::optional<std::string> advice_for_verb(std::string_view word) {
  const auto found = std::find_if(verbs.begin(), verbs.end(),
                                  [&](const auto& verb) { return verb.first == word; });
  if (found == verbs.end()) return std::nullopt;
  return std::string(found->second);
}

std::optional<std::string> nearest_command(std::string_view word) {
  const std::array<std::string, own_commands.size()> names = [] {
    std::array<std::string, own_commands.size()> texts;
    std::copy(own_commands.begin(), own_commands.end(), texts.begin());
    return texts;
  }();
  return core::nearest(word, names);
}

std::string advice_for_option(std::string_view option) {
  option.remove_prefix(std::min(option.find_first_not_of('-'), option.size()));
  const std::size_t equals = std::min(option.find('='), option.size());
  const std::string_view name = option.substr(0, equals);
  const std::string value(equals < option.size() ? option.substr(equals + 1) : "..");
  if (name.find('.') != std::string_view::npos)
    return "Write " + std::string(name) + "=" + value + ", without dashes.";
  const deck::KeyAlias* alias = deck::find_alias(name);
  if (alias == nullptr || alias->here.empty()) return "Try finetune --help.";
  const bool is_name_alone = alias->value().empty() && alias->note.empty();
  return "Write " + std::string(alias->table()) + "." + std::string(alias->key()) + "=" +
         (is_name_alone ? value : "..") + ", without dashes.";
}

}  // namespace finetune::app
