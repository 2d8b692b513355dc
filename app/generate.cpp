// SPDX-License-Identifier: Apache-2.0
#include "train/infer/generate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "commands.hpp"
#include "core/error.hpp"
#include "data/text/model_template.hpp"
#include "data/text/prompt.hpp"
#include "data/text/text_source.hpp"
#include "formats/alpaca/alpaca.hpp"
#include "model_folders.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/corpus/corpus.hpp"
#include "train/infer/loaded_model.hpp"

namespace finetune::app {
namespace {

/// Prints text as it grows. A token may end inside a character: only what no later token can change
/// is printed.
class Printer {
 public:
  explicit Printer(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(std::int32_t token) {
    tokens_.push_back(token);
    const std::string text = tokenizer_.decode(tokens_);
    if (!text.ends_with("\xEF\xBF\xBD")) print(text);
  }

  void finish() {
    if (!tokens_.empty()) print(tokenizer_.decode(tokens_));
    std::fputs("\n", stdout);
  }

 private:
  void print(const std::string& text) {
    if (text.size() > printed_) std::fputs(text.c_str() + printed_, stdout);
    std::fflush(stdout);
    printed_ = std::max(printed_, text.size());
  }

  const tokenizer::Tokenizer& tokenizer_;
  std::vector<std::int32_t> tokens_;
  std::size_t printed_ = 0;
};

struct Prompt {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> stop;  ///< tokens that end the answer
};

/// The prompt as what a user says, with the markup of a chat template.
Prompt chat_prompt(const Arguments& arguments, const tokenizer::Tokenizer& tokenizer,
                   const train::Registry& registry) {
  const auto& templates = registry.templates;
  const auto is_named = [&](const data::ChatTemplate& chat) {
    return chat.name == arguments.chat_template;
  };
  if (arguments.chat_template != "model" && std::ranges::none_of(templates, is_named)) {
    std::vector<std::string> names;
    for (const data::ChatTemplate& chat : templates)
      names.push_back(chat.name);
    core::fail(core::ErrorKind::command_line,
               {"finetune generate",
                fmt::format("there is no chat template \"{}\"", arguments.chat_template),
                fmt::format("there are {}", fmt::join(names, ", ")), "Use one of these."});
  }
  const data::ChatTemplate chat = data::choose_template(arguments.chat_template, arguments.path,
                                                        tokenizer, templates, "--template");
  data::Conversation conversation;
  if (!arguments.system.empty())
    conversation.messages.push_back({data::ChatRole::system, arguments.system, {}, {}});
  conversation.messages.push_back({data::ChatRole::user, arguments.second, {}, {}});
  const auto segments = data::render_prompt(chat, conversation, "finetune generate");
  return {data::tokenise(segments, tokenizer, data::SpecialNameMeaning::text, false).ids,
          {tokenizer.eos_id(), *tokenizer.id(chat.stop)}};
}

Prompt prompt_of(const Arguments& arguments, const tokenizer::Tokenizer& tokenizer,
                 const train::Registry& registry) {
  if (arguments.is_chat) return chat_prompt(arguments, tokenizer, registry);
  const std::string text = arguments.is_instruction
                               ? formats::alpaca::alpaca_prompt(arguments.second)
                               : arguments.second;
  return {data::encode_prompt(tokenizer, text), {tokenizer.eos_id()}};
}

}  // namespace

int run_generate(const comm::Environment* environment, const Arguments& arguments,
                 const train::Registry& registry) {
  const comm::Communicator world =
      environment != nullptr ? environment->world() : comm::Communicator();
  for (const auto& folder : {arguments.path, arguments.adapter})
    require_no_run(folder);
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(arguments.path);
  train::LoadedModel loaded(arguments.path, registry, world, core::DType::f32, arguments.adapter,
                            arguments.device);
  train::require_vocabulary(tokenizer, loaded.architecture());
  const Prompt prompt = prompt_of(arguments, tokenizer, registry);
  if (prompt.ids.empty()) {
    core::fail(core::ErrorKind::command_line, {"finetune generate", "the prompt is empty",
                                               "there is nothing to continue", "Give a prompt."});
  }
  const std::int64_t positions = loaded.architecture().max_positions;
  if (std::ssize(prompt.ids) >= positions) {
    core::fail(core::ErrorKind::command_line,
               {"finetune generate", fmt::format("the prompt has {} tokens", prompt.ids.size()),
                fmt::format("the model has {} positions, and the answer needs some", positions),
                "Shorten it."});
  }
  const train::Sampling sampling{.temperature = arguments.temperature,
                                 .top_p = arguments.top_p,
                                 .seed = static_cast<std::uint64_t>(arguments.seed),
                                 .max_tokens = arguments.max_tokens,
                                 .stop = prompt.stop,
                                 .vocab_size = tokenizer.vocab_size()};
  Printer printer(tokenizer);
  train::generate(loaded.engine(), prompt.ids, sampling,
                  [&](std::int32_t token) { printer.add(token); });
  printer.finish();
  return core::exit_done;
}

}  // namespace finetune::app
