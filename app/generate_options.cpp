// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>

#include "options.hpp"
#include "train/input/settings.hpp"

namespace finetune::app {

void add_generate(CLI::App& app, Arguments& arguments) {
  CLI::App* generate = app.add_subcommand("generate", "Continue a prompt with a model folder.");
  generate->add_option("model", arguments.path, "Hugging Face folder")->required();
  CLI::Option* prompt = generate->add_option(
      "prompt", arguments.second, "The text to continue; with --chat none: a conversation");
  generate->add_flag("--instruction", arguments.is_instruction,
                     "The prompt is an instruction: wrap it as Alpaca data does");
  generate
      ->add_option("--adapter", arguments.adapters,
                   "Folder of a PEFT adapter for the model; in a conversation once per adapter")
      ->expected(1)
      ->take_all();
  generate
      ->add_option("--file", arguments.file,
                   "Prompts: a JSON object a line with \"prompt\" or \"messages\"; of a model with "
                   "labels \"text\" or \"messages\"")
      ->excludes(prompt);
  generate->add_option("-o,--output", arguments.output, "With --file: the answers, a line each")
      ->needs("--file");
  generate
      ->add_option("--batch", arguments.batch, "With --file: answers that a rank writes at once")
      ->check(CLI::Range(1, 1 << 16));
  generate->add_option("--samples", arguments.num_answers, "Answers of each prompt")
      ->check(CLI::Range(1, 1 << 16));
  generate->add_option("--tp", arguments.tp, "On ranks: so many of a node share every matrix")
      ->check(CLI::Range(1, 1024));
  generate
      ->add_option("--dtype", arguments.dtype_of_products,
                   "What is computed in. auto: bf16 if the model's files are, else fp32")
      ->check(CLI::IsMember({"auto", "bf16", "fp32"}));
  CLI::Option* chat =
      generate->add_flag("--chat", arguments.is_chat,
                         "The prompt is a user's message: wrap it in the model's chat template");
  chat->excludes("--instruction");
  generate
      ->add_option("--template", arguments.chat_template,
                   "With --chat: name of a template, if the model's own is not known")
      ->needs(chat);
  generate
      ->add_option("--template-kwargs", arguments.template_kwargs,
                   "With --chat: names for the template, {\"enable_thinking\": false}")
      ->needs(chat);
  generate->add_option("--system", arguments.system, "With --chat: the system message")
      ->needs(chat);
  generate
      ->add_option("--temperature", arguments.sampling.temperature,
                   "0: always take the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->check([](const std::string& text) { return text == "nan" ? "is no number" : ""; });
  generate
      ->add_option("--top-p", arguments.sampling.top_p,
                   "Sample from the most likely tokens that together have this probability")
      ->check(CLI::Range(0.0, 1.0));
  generate
      ->add_option("--top-k", arguments.sampling.top_k,
                   "Sample from so many of the most likely tokens")
      ->check(CLI::Range(0, 1 << 24));
  generate
      ->add_option("--min-p", arguments.sampling.min_p,
                   "Sample from tokens with this part of the likeliest's probability")
      ->check(CLI::Range(0.0, 1.0));
  generate
      ->add_option("--repetition-penalty", arguments.sampling.repetition_penalty,
                   "Above 1: tokens that are there already are less likely")
      ->check(CLI::Range(0.001, 1000.0));
  generate->add_option("--stop", arguments.stops, "A text that ends an answer; once per text")
      ->expected(1)
      ->take_all();
  generate->add_flag("--log-probs", arguments.shows_log_probs,
                     "Also says how likely each token was");
  generate->add_option("--max-tokens", arguments.max_tokens, "Longest answer")
      ->check(CLI::Range(1, 1 << 24));
  generate->add_option("--seed", arguments.seed, "Seed of the sampling")
      ->check(CLI::NonNegativeNumber);
  generate
      ->add_option("--device", arguments.device,
                   "auto: the first GPU if there is any; gpu: that or nothing; cpu")
      ->transform(CLI::CheckedTransformer(train::device_choices()).description("auto|gpu|cpu"));
  generate->callback([&arguments] {
    if (arguments.second.empty() && arguments.file.empty() && !arguments.is_chat)
      throw CLI::RequiredError("prompt");
    if (std::ranges::find(arguments.stops, "") != arguments.stops.end())
      throw CLI::ValidationError("--stop", "an empty text would end every answer at once");
  });
}

}  // namespace finetune::app
