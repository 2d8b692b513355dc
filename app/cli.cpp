// SPDX-License-Identifier: Apache-2.0
#include "cli.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "core/error.hpp"
#include "migrate/migrate.hpp"
#include "options.hpp"
#include "report/pictures.hpp"
#include "train/input/settings.hpp"
#include "verbs.hpp"
#include "weights/received.hpp"

namespace finetune::app {
namespace {

constexpr const char* footer = R"(
commands:
  finetune DECK.toml [key=value ...]       train, or continue from the newest good checkpoint;
                                           finetune train DECK.toml is the same
  finetune plan DECK.toml [key=value ...]  does it fit: parameters, batch, memory per rank
  finetune plan DECK.toml --machine NAME   how long does it take there, on how many nodes
  finetune plan DECK.toml --data           the data report: what is trained on
  finetune plan MODEL --texts --ranks N    memory per rank of finetune generate
  finetune lr-range DECK.toml              find a learning rate: the loss while it rises
  finetune import FILE [key=value ...]     a deck from a configuration of axolotl, LLaMA-Factory,
                                           torchtune, LitGPT, TRL or DeepSpeed
  finetune check DECK.toml [key=value ...] on the ranks of a job: is it ready to train? 69 if not
  finetune tokenize DECK.toml              fill the token cache, for example on a login node
  finetune generate MODEL "prompt"         try a model folder
  finetune evaluate MODEL... --tasks FILE... -o OUT   ask models questions, and compare them
  finetune export CHECKPOINT OUT           write a Hugging Face folder, or a PEFT adapter
  finetune quantize MODEL OUT              write a model in 4 bits (NF4) or 8 (FP8)
  finetune verify CHECKPOINT|MODEL         checksums, sizes, completeness
  finetune report RUN [RUN...] -o OUT.html curves, times, memory, starts and data of runs, in one page
  finetune watch RUN                       how a run is now; the exit code says it, too (--once)
  finetune trace hang RUN                  who kept whom waiting, of a run that hung or failed
  finetune trace merge RUN                 profiles of all ranks in one file, and the critical path
  finetune --reference                     every deck key
  finetune --version                       how this binary was built
)";

bool is_command(const std::string& word) {
  return word == "plan" || word == "check" || word == "tokenize" || word == "generate" ||
         word == "evaluate" || word == "export" || word == "quantize" || word == "verify" ||
         word == "report" || word == "watch" || word == "trace" || word == "import" ||
         word == "lr-range";
}

bool is_there(const std::string& file) {
  std::error_code ignored;
  return std::filesystem::exists(file, ignored);
}

bool is_help(const std::string& word) {
  return word == "--help" || word == "-h" || word == "help";
}

/// finetune --help, and finetune train --help.
bool asks_for_help(int argc, char** argv) {
  const auto is_help_at = [&](int i) { return argc > i && is_help(argv[i]); };
  return is_help_at(1) || (is_help_at(2) && argv[1] == std::string("train"));
}

/// What a question about the program is asked with.
bool is_flag(const std::string& word) {
  return is_help(word) || word == "--reference" || word == "reference" || word == "--version" ||
         word == "version";
}

/// Whether mpirun, srun and the like started this process together with others.
bool has_companions() {
  constexpr std::array sizes = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  return std::any_of(sizes.begin(), sizes.end(), [](const char* name) {
    const char* size = std::getenv(name);
    return size != nullptr && std::atoi(size) > 1;
  });
}

void add_check(CLI::App& app, Arguments& arguments) {
  CLI::App* check = app.add_subcommand(
      "check",
      "Is the job ready to train? Started on its ranks, like training: programs, files, devices, "
      "cores, memory, disks, links and rates of all nodes in one table.");
  check->add_option("deck", arguments.path, "The deck")->required();
  check->add_option("overrides", arguments.overrides, "table.key=value");
  CLI::Option* quick = check->add_flag("--quick", arguments.is_quick,
                                       "Do not measure links, rates, loads and disks");
  check
      ->add_option("--save", arguments.save,
                   "Write the measured rates to this file, for finetune plan --machine")
      ->excludes(quick);
}

void add_import(CLI::App& app, Arguments& arguments) {
  CLI::App* import = app.add_subcommand(
      "import",
      "Print a deck made from another program's configuration, YAML or JSON: every key is in it, "
      "or "
      "in a comment that says what it would mean here. 78 if something essential is missing.");
  import->add_option("file", arguments.path, "The configuration")->required();
  import->add_option("overrides", arguments.overrides,
                     "table.key=value of the deck, in the place of what the file says");
  import->add_option("--from", arguments.from, "Whose it is; default: recognised by its keys")
      ->check(CLI::IsMember(migrate::source_names()));
  import
      ->add_option("--ranks", arguments.ranks,
                   "Ranks that the batch per device is multiplied by; default: as the file says, "
                   "or 1")
      ->check(CLI::Range(1, 1 << 16));
}

void add_tokenize(CLI::App& app, Arguments& arguments) {
  CLI::App* tokenize = app.add_subcommand(
      "tokenize", "Fill the token cache and print the data report. Needs no MPI job.");
  tokenize->add_option("deck", arguments.path, "The deck")->required();
  tokenize->add_option("overrides", arguments.overrides, "table.key=value");
}

/// Folders of the Hugging Face cache stand for a version of their models.
void find_versions(Arguments& arguments) {
  const auto find = [](std::string& path) {
    if (!path.empty()) path = weights::version_in_cache(path).string();
  };
  find(arguments.path);
  find(arguments.model);
  for (std::string& model : arguments.evaluate.models)
    find(model);
}

void add_export(CLI::App& app, Arguments& arguments) {
  CLI::App* out = app.add_subcommand(
      "export",
      "Write a checkpoint's weights as a Hugging Face folder; an adapter's as a PEFT folder.");
  out->add_option("checkpoint", arguments.path,
                  "A step folder, or an output folder: its newest good checkpoint")
      ->required();
  out->add_option("out", arguments.second, "The folder to create")->required();
  out->add_option("--model", arguments.model,
                  "Folder of the model that the run began with: config.json and tokenizer are "
                  "copied from it, and --merge takes its weights; default: the run's");
  out->add_option("--dtype", arguments.dtype,
                  "Type of all tensors: float32, bfloat16, float16; default: as in the source "
                  "files, and float32 for a PEFT folder. fp8, fp8-block: of matrices, as finetune "
                  "quantize has it. Of a .gguf also q8_0; default: float16")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "q8_0", "fp8", "fp8-block"}));
  CLI::Option* merge =
      out->add_flag("--merge", arguments.merges,
                    "Write the whole model with the adapter merged into its weights");
  out->add_option("--merge-into", arguments.merge_into,
                  "trained: the weights that the adapter was trained on, for qlora the quantised "
                  "ones; original: those of the model's files")
      ->check(CLI::IsMember({"trained", "original"}))
      ->needs(merge);
  out->add_option("--device", arguments.merges_on,
                  "With --merge: cpu, whose files are the same on every machine; gpu: the first "
                  "one, which may differ in the last bits; auto: that if there is any")
      ->transform(CLI::CheckedTransformer(train::device_choices()).description("auto|gpu|cpu"))
      ->needs(merge);
  out->add_flag("--ema", arguments.is_ema,
                "Of a run with train.ema_decay: write the mean of its weights in their place");
  out->add_flag("--best", arguments.is_best,
                "In an output folder: take the checkpoint with the lowest validation loss");
  out->add_option("--max-shard-size", arguments.max_shard_size, "Largest file, for example 5GB");
}

void add_quantize(CLI::App& app, Arguments& arguments) {
  CLI::App* quantize = app.add_subcommand(
      "quantize",
      "Write a model in 4 bits (NF4) as bitsandbytes does, to train adapters on; or in 8 bits "
      "(FP8) as compressed-tensors does, to serve it.");
  quantize->add_option("model", arguments.path, "Hugging Face folder")->required();
  quantize->add_option("out", arguments.second, "The folder to create")->required();
  quantize
      ->add_option("--format", arguments.format,
                   "nf4; fp8: with a scale per matrix; fp8-block: per 128 x 128 of its weights")
      ->check(CLI::IsMember({"nf4", "fp8", "fp8-block"}));
  quantize->add_flag(
      "--single", arguments.is_single,
      "nf4: do not quantise the maxima of blocks as well: 4.5 bits per weight, not 4.13");
  quantize->add_option("--max-shard-size", arguments.max_shard_size,
                       "Largest file, for example 5GB");
}

void add_report(CLI::App& app, Arguments& arguments) {
  CLI::App* report = app.add_subcommand(
      "report",
      "Write what runs left in their output folders as one HTML page that needs no other file.");
  report->add_option("runs", arguments.runs, "Output folders (train.output)")->required();
  report->add_option("-o,--out", arguments.second,
                     "The file to write; default: report.html, and with --csv and --svg the "
                     "terminal");
  CLI::Option* csv = report->add_flag("--csv", arguments.is_csv,
                                      "Steps and validations as a table of numbers instead");
  report->add_option("--svg", arguments.picture, "One picture instead, for a paper")
      ->check(CLI::IsMember(report::picture_names()))
      ->excludes(csv);
  report->add_flag("--log", arguments.is_logarithmic, "Losses on an axis of powers of ten")
      ->excludes(csv);
}

void add_watch(CLI::App& app, Arguments& arguments) {
  CLI::App* watch = app.add_subcommand(
      "watch",
      "Show how a run is, from its output folder alone: progress, loss, rates, memory, time left. "
      "Exit code: 0 finished, 10 running, 11 starting, 12 waiting, 13 hung, 14 dead, 15 failed.");
  watch->add_option("run", arguments.path, "Output folder (train.output)")->required();
  watch->add_flag("--once", arguments.is_once, "Print it once, for scripts");
  watch->add_option("--every", arguments.interval_s, "Seconds between two looks")
      ->check(CLI::Range(0.1, 3600.0));
}

void add_trace(CLI::App& app, Arguments& arguments) {
  CLI::App* trace = app.add_subcommand("trace", "What ranks did, by what they wrote down.");
  CLI::App* hang = trace->add_subcommand(
      "hang",
      "Say in two lines who is where: of a run that hung or failed, or whose ranks got SIGUSR2.");
  hang->add_option("run", arguments.path, "Output folder (train.output), or a folder of records")
      ->required();
  CLI::App* merge = trace->add_subcommand(
      "merge",
      "Join what [profile] wrote into one file, clocks aligned, and print the critical path: which "
      "rank, which collective, how long.");
  merge->add_option("run", arguments.path, "Output folder (train.output), or a folder of traces")
      ->required();
  merge->add_option("-o,--output", arguments.second,
                    "The file; without it merged.json beside theirs");
  merge->callback([&arguments] { arguments.is_merge = true; });
  trace->require_subcommand(1);
}

Arguments parse_command(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("finetune: fine-tunes large language models on MPI ranks", "finetune");
  add_plan(app, arguments);
  add_check(app, arguments);
  add_import(app, arguments);
  add_lr_range(app, arguments);
  add_tokenize(app, arguments);
  add_generate(app, arguments);
  add_evaluate(app, arguments);
  add_export(app, arguments);
  add_quantize(app, arguments);
  add_report(app, arguments);
  add_watch(app, arguments);
  add_trace(app, arguments);
  CLI::App* verify = app.add_subcommand(
      "verify",
      "Check a checkpoint (checksums, sizes, completeness, finite numbers), or a model that came "
      "from elsewhere (files, sizes, shapes, tokenizer, template, hashes that came with it).");
  verify
      ->add_option("path", arguments.path,
                   "A step folder, or an output folder: all of them; or a model's folder")
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
                      : name == "check"    ? Command::check
                      : name == "import"   ? Command::import_configuration
                      : name == "lr-range" ? Command::lr_range
                      : name == "tokenize" ? Command::tokenize
                      : name == "generate" ? Command::generate
                      : name == "evaluate" ? Command::evaluate
                      : name == "export"   ? Command::export_weights
                      : name == "quantize" ? Command::quantize
                      : name == "report"   ? Command::report
                      : name == "watch"    ? Command::watch
                      : name == "trace"    ? Command::trace
                                           : Command::verify;
  find_versions(arguments);
  return arguments;
}

[[noreturn]] void refuse_empty() {
  core::fail(core::ErrorKind::command_line,
             {"finetune", "no deck is named", "a deck says what to train",
              std::string("These are the ") + (footer + 1)});
}

/// A first word that looks like a command and not like a file.
void require_deck(const std::string& word) {
  if (word.find_first_of("./\\") != std::string::npos || is_there(word)) return;
  if (const auto advice = advice_for_verb(word))
    core::fail(core::ErrorKind::command_line, {"finetune", "there is no command '" + word + "'",
                                               "and no file of that name", *advice});
  const auto meant = nearest_command(word);
  core::fail(core::ErrorKind::command_line,
             {"finetune", "'" + word + "' is neither a command nor a file",
              "the first word is a command or a deck",
              meant ? "Did you mean '" + *meant + "'?" : "Try finetune --help."});
}

/// `words`: the deck and what follows it.
Arguments parse_train(const std::vector<std::string>& words) {
  Arguments arguments;
  arguments.path = words.front();
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].starts_with("-")) {
      core::fail(core::ErrorKind::command_line,
                 {"finetune", "unknown option " + words[i],
                  "after the deck only key=value may follow", advice_for_option(words[i])});
    }
    arguments.overrides.push_back(words[i]);
  }
  return arguments;
}

}  // namespace

bool needs_ranks(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  const auto asks = [&] { return std::any_of(argv + 2, argv + argc, is_flag); };
  if (first == "check" || first == "lr-range") return !asks();
  // Alone they start where there is no launcher, as on login nodes.
  if (first == "generate" || first == "evaluate") return has_companions() && !asks();
  if (is_command(first) || is_flag(first) || asks_for_help(argc, argv)) return false;
  return (!first.empty() && !first.starts_with("-")) || has_companions();
}

Arguments parse(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string first = words.empty() ? "" : words.front();
  if (asks_for_help(argc, argv)) {
    std::cout << "finetune: fine-tunes large language models on MPI ranks\n" << footer;
    std::exit(core::exit_done);
  }
  if (is_command(first)) return parse_command(argc, argv);
  Arguments arguments;
  if (is_flag(first)) {
    arguments.command = first.ends_with("version") ? Command::version : Command::reference;
    return arguments;
  }
  const bool says_train = first == "train" && (words.size() > 1 || !is_there(first));
  const std::vector<std::string> deck_first(words.begin() + (says_train ? 1 : 0), words.end());
  if (deck_first.empty() || deck_first.front().empty()) refuse_empty();
  if (deck_first.front().starts_with("-")) {
    core::fail(core::ErrorKind::command_line, {"finetune", "unknown option " + deck_first.front(),
                                               "the first word is a command or a deck",
                                               std::string("These are the ") + (footer + 1)});
  }
  require_deck(deck_first.front());
  return parse_train(deck_first);
}

}  // namespace finetune::app
