// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "options.hpp"
#include "train/input/settings.hpp"

namespace finetune::app {

void add_generate(CLI::App& app, Arguments& arguments) {
  CLI::App* generate = app.add_subcommand("generate", "Continue a prompt with a model folder.");
  generate->add_option("model", arguments.path, "Hugging Face folder")->required();
  generate->add_option("prompt", arguments.second, "The text to continue")->required();
  generate->add_flag("--instruction", arguments.is_instruction,
                     "The prompt is an instruction: wrap it as Alpaca data does");
  generate->add_option("--adapter", arguments.adapter, "Folder of a PEFT adapter for the model");
  CLI::Option* chat =
      generate->add_flag("--chat", arguments.is_chat,
                         "The prompt is a user's message: wrap it in the model's chat template");
  chat->excludes("--instruction");
  generate
      ->add_option("--template", arguments.chat_template,
                   "With --chat: name of a template, if the model's own is not known")
      ->needs(chat);
  generate->add_option("--system", arguments.system, "With --chat: the system message")
      ->needs(chat);
  generate
      ->add_option("--temperature", arguments.temperature, "0: always take the most likely token")
      ->check(CLI::Range(0.0, 100.0));
  generate
      ->add_option("--top-p", arguments.top_p,
                   "Sample from the most likely tokens that together have this probability")
      ->check(CLI::Range(0.0, 1.0));
  generate->add_option("--max-tokens", arguments.max_tokens, "Longest answer")
      ->check(CLI::Range(1, 1 << 24));
  generate->add_option("--seed", arguments.seed, "Seed of the sampling")
      ->check(CLI::NonNegativeNumber);
  generate
      ->add_option("--device", arguments.device,
                   "auto: the first GPU if there is any; gpu: that or nothing; cpu")
      ->transform(CLI::CheckedTransformer(train::device_choices()).description("auto|gpu|cpu"));
}

}  // namespace finetune::app
