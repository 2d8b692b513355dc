// SPDX-License-Identifier: Apache-2.0
#include "cli.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>

#include "core/error.hpp"

namespace finetune::app {
namespace {

constexpr const char* footer = R"(
commands:
  finetune DECK.toml [key=value ...]       train, or go on where the newest good checkpoint stopped
  finetune plan DECK.toml [key=value ...]  will it fit: parameters, batch, memory a rank
  finetune plan DECK.toml --data           the data report: what would be trained on
  finetune tokenize DECK.toml              fill the token cache, for example on a login node
  finetune generate MODEL "prompt"         try a model folder
  finetune export CHECKPOINT OUT           write a Hugging Face folder
  finetune verify CHECKPOINT               checksums, sizes, completeness, finite numbers
  finetune --reference                     every deck key
  finetune --version                       how this binary was built
)";

bool is_command(const std::string& word) {
  return word == "plan" || word == "tokenize" || word == "generate" || word == "export" ||
         word == "verify";
}

bool is_flag(const std::string& word) {
  return word == "--help" || word == "-h" || word == "--reference" || word == "--version";
}

/// Whether mpirun, srun and the like started this process together with others.
bool has_companions() {
  constexpr std::array sizes = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  return std::any_of(sizes.begin(), sizes.end(), [](const char* name) {
    const char* size = std::getenv(name);
    return size != nullptr && std::atoi(size) > 1;
  });
}

void add_plan(CLI::App& app, Arguments& arguments) {
  CLI::App* plan = app.add_subcommand(
      "plan", "Will it fit: parameters, batch, memory a rank. Needs no MPI job.");
  plan->add_option("deck", arguments.path, "The deck")->required();
  plan->add_option("overrides", arguments.overrides, "table.key=value");
  plan->add_option("--ranks", arguments.ranks, "Ranks of the job")->check(CLI::Range(1, 1 << 24));
  plan->add_option("--ranks-per-node", arguments.ranks_per_node, "Ranks of one node")
      ->check(CLI::Range(1, 1 << 16));
  plan->add_flag("--gpu", arguments.on_gpu, "Each rank computes on a GPU of its own");
  plan->add_option("--memory", arguments.memory,
                   "Memory of one rank, for example 80GiB: exit 69 if it does not fit");
  plan->add_flag("--data", arguments.is_about_data,
                 "The data report instead: lengths, trained part, what is odd");
}

void add_tokenize(CLI::App& app, Arguments& arguments) {
  CLI::App* tokenize = app.add_subcommand(
      "tokenize", "Fill the token cache and print the data report. Needs no MPI job.");
  tokenize->add_option("deck", arguments.path, "The deck")->required();
  tokenize->add_option("overrides", arguments.overrides, "table.key=value");
}

void add_generate(CLI::App& app, Arguments& arguments) {
  CLI::App* generate = app.add_subcommand("generate", "Continue a prompt with a model folder.");
  generate->add_option("model", arguments.path, "Hugging Face folder")->required();
  generate->add_option("prompt", arguments.second, "The text to go on from")->required();
  generate->add_flag("--instruction", arguments.is_instruction,
                     "The prompt is an instruction: wrap it as Alpaca data do");
  CLI::Option* chat = generate->add_flag(
      "--chat", arguments.is_chat,
      "The prompt is what a user says: write it as the model's chat template does");
  chat->excludes("--instruction");
  generate
      ->add_option("--template", arguments.chat_template,
                   "With --chat: a template by its name, where the model has none that is known")
      ->needs(chat);
  generate->add_option("--system", arguments.system, "With --chat: the system message")
      ->needs(chat);
  generate->add_option("--temperature", arguments.temperature, "0: always the most likely token")
      ->check(CLI::Range(0.0, 100.0));
  generate
      ->add_option("--top-p", arguments.top_p,
                   "Sample from the likeliest tokens with this probability")
      ->check(CLI::Range(0.0, 1.0));
  generate->add_option("--max-tokens", arguments.max_tokens, "Longest answer")
      ->check(CLI::Range(1, 1 << 24));
  generate->add_option("--seed", arguments.seed, "Of the sampling")->check(CLI::NonNegativeNumber);
}

void add_export(CLI::App& app, Arguments& arguments) {
  CLI::App* out =
      app.add_subcommand("export", "Write a checkpoint's weights as a Hugging Face folder.");
  out->add_option("checkpoint", arguments.path,
                  "A step folder, or an output folder: its newest good checkpoint")
      ->required();
  out->add_option("out", arguments.second, "The folder to make")->required();
  out->add_option("--model", arguments.model,
                  "Folder to copy config.json and tokenizer from; default: the run's");
  out->add_option("--dtype", arguments.dtype,
                  "Of all tensors: float32, bfloat16, float16; default: as in the source files")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  out->add_flag("--best", arguments.is_best,
                "Of an output folder: the checkpoint with the lowest validation loss");
  out->add_option("--max-shard-size", arguments.max_shard_size, "Largest file, for example 5GB");
}

Arguments parse_command(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("finetune: fine-tunes large language models on MPI ranks", "finetune");
  add_plan(app, arguments);
  add_tokenize(app, arguments);
  add_generate(app, arguments);
  add_export(app, arguments);
  CLI::App* verify = app.add_subcommand(
      "verify", "Check a checkpoint: checksums, sizes, completeness, finite numbers.");
  verify
      ->add_option("checkpoint", arguments.path, "A step folder, or an output folder: all of them")
      ->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    core::fail(core::ErrorKind::command_line,
               {"finetune", error.what(), "", "Try finetune --help."});
  }
  const std::string name = app.get_subcommands().front()->get_name();
  arguments.command = name == "plan"       ? Command::plan
                      : name == "tokenize" ? Command::tokenize
                      : name == "generate" ? Command::generate
                      : name == "export"   ? Command::export_weights
                                           : Command::verify;
  return arguments;
}

Arguments parse_train(const std::vector<std::string>& words) {
  Arguments arguments;
  arguments.path = words.front();
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].starts_with("-")) {
      core::fail(core::ErrorKind::command_line,
                 {"finetune", "unknown option " + words[i],
                  "after the deck only key=value may follow", "Try finetune --help."});
    }
    arguments.overrides.push_back(words[i]);
  }
  return arguments;
}

}  // namespace

bool is_training(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (is_command(first) || is_flag(first)) return false;
  return (!first.empty() && !first.starts_with("-")) || has_companions();
}

Arguments parse(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string first = words.empty() ? "" : words.front();
  if (first == "--help" || first == "-h") {
    std::cout << "finetune: fine-tunes large language models on MPI ranks\n" << footer;
    std::exit(core::exit_done);
  }
  if (is_command(first)) return parse_command(argc, argv);
  Arguments arguments;
  if (first == "--reference" || first == "--version") {
    arguments.command = first == "--version" ? Command::version : Command::reference;
    return arguments;
  }
  if (first.empty() || first.starts_with("-")) {
    core::fail(
        core::ErrorKind::command_line,
        {"finetune", first.empty() ? "no deck is named" : "unknown option " + first,
         first.empty() ? "a deck says what to train" : "the first word is a command or a deck",
         std::string("These are the ") + (footer + 1)});
  }
  return parse_train(words);
}

}  // namespace finetune::app
