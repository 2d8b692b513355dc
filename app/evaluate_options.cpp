// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "options.hpp"
#include "train/input/settings.hpp"

namespace finetune::app {

void add_evaluate(CLI::App& app, Arguments& arguments) {
  CLI::App* evaluate = app.add_subcommand(
      "evaluate",
      "Ask models the questions of tasks, and compare them. Also on the ranks of a job.");
  EvaluateArguments& how = arguments.evaluate;
  evaluate
      ->add_option("models", how.models,
                   "Hugging Face folders, output or step folders of runs, or decks, which stand "
                   "for their model and run; the first is compared with")
      ->required();
  evaluate->add_option("--tasks", how.tasks,
                       "Task files (inputs/tasks); default: those of the deck");
  evaluate
      ->add_option(
          "--adapter", how.adapters,
          "Folder of a PEFT adapter, once per adapter: each on the first model is one more "
          "to compare")
      ->expected(1)
      ->take_all();
  evaluate->add_option("--data", how.data, "Folder of the tasks' data, if not beside their files");
  evaluate->add_option("-o,--output", how.output, "Folder of the results, and of what goes on")
      ->required();
  evaluate->add_option("--limit", how.limit, "So many questions of each task alone")
      ->check(CLI::Range(1, 1 << 30));
  evaluate->add_option("--batch-tokens", how.batch_tokens, "Tokens that a rank computes at once")
      ->check(CLI::Range(1, 1 << 24));
  evaluate->add_option("--batch", how.batch, "Answers that a rank writes at once")
      ->check(CLI::Range(1, 1 << 16));
  evaluate->add_option("--seed", how.seed, "Of answers that are sampled")
      ->check(CLI::NonNegativeNumber);
  evaluate
      ->add_option("--dtype", how.dtype,
                   "What is computed in. auto: bf16 if the model's files are, else fp32")
      ->check(CLI::IsMember({"auto", "bf16", "fp32"}));
  evaluate->add_flag("--ema", how.is_ema,
                     "Of runs with train.ema_decay: the mean of their weights");
  evaluate
      ->add_option("--device", arguments.device, "auto: the first GPU if there is any; gpu; cpu")
      ->transform(CLI::CheckedTransformer(train::device_choices()).description("auto|gpu|cpu"));
}

}  // namespace finetune::app
