// SPDX-License-Identifier: Apache-2.0
#include "generate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "comm/agree.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/text/model_template.hpp"
#include "data/text/prompt.hpp"
#include "data/text/text_source.hpp"
#include "formats/alpaca/alpaca.hpp"
#include "formats/chat/calls.hpp"
#include "model_folders.hpp"
#include "option_names.hpp"
#include "train/corpus/corpus.hpp"
#include "train/input/described_model.hpp"

namespace finetune::app {
namespace {

train::Sampling sampling_of(const Arguments& arguments, const comm::Communicator& world,
                            const tokenizer::Tokenizer& tokenizer) {
  const train::ChosenSampling chosen = comm::agree(world, [&] {
    return train::choose_sampling(arguments.sampling,
                                  train::read_generation_config(arguments.path));
  });
  if (!chosen.note.empty()) remark(world, chosen.note);
  train::Sampling sampling = chosen.sampling;
  sampling.seed = static_cast<std::uint64_t>(arguments.seed);
  sampling.max_tokens = arguments.max_tokens;
  sampling.vocab_size = tokenizer.vocab_size();
  return sampling;
}

core::OrderedJson kwargs_of(const Arguments& arguments) {
  try {
    return formats::chat::read_template_kwargs(arguments.template_kwargs, "--template-kwargs");
  } catch (const core::Error& error) {
    throw core::Error(core::ErrorKind::command_line, error.what());
  }
}

int generate_one(const Generator& of) {
  const Prompt prompt = comm::agree(
      of.world, [&] { return prompt_of(of, of.arguments.second, "finetune generate"); });
  const auto loaded = of.load(of.arguments.adapters.empty() ? "" : of.arguments.adapters.front());
  const std::int64_t count = of.arguments.num_answers;
  for (std::int64_t i = 0; i < count; ++i) {
    const train::TextRequest request =
        comm::agree(of.world, [&] { return request_of(of, prompt, i, "finetune generate"); });
    Printer printer(of.tokenizer, of.world.is_root());
    const bool streams = request.is_complete == nullptr;
    train::GenerateOptions how{.wants_log_probs = of.arguments.shows_log_probs,
                               .same_on_all_ranks = true};
    if (streams) how.on_token = [&](std::size_t, std::int32_t token) { printer.add(token); };
    const auto text = train::generate_texts(loaded->engine(), std::span(&request, 1), how).front();
    if (streams)
      printer.finish();
    else if (of.world.is_root())
      std::puts(before_stop(of.tokenizer.decode(text.tokens), of.arguments.stops).c_str());
    if (!of.arguments.shows_log_probs || !of.world.is_root()) continue;
    for (std::size_t t = 0; t < text.tokens.size(); ++t)
      std::printf("%10.4f  %s\n", static_cast<double>(text.log_probs[t]),
                  core::Json(of.tokenizer.decode(std::span(&text.tokens[t], 1)))
                      .dump(-1, ' ', false, core::Json::error_handler_t::replace)
                      .c_str());
  }
  return core::exit_done;
}

}  // namespace

core::DType dtype_of_products(const Arguments& arguments, core::DType of_files) {
  if (arguments.dtype_of_products == "bf16") return core::DType::bf16;
  if (arguments.dtype_of_products == "auto" && of_files == core::DType::bf16)
    return core::DType::bf16;
  return core::DType::f32;
}

std::unique_ptr<train::LoadedModel> Generator::load(const std::string& adapter) const {
  auto loaded = std::make_unique<train::LoadedModel>(arguments.path, registry, groups, options,
                                                     train::WeightUse::read, adapter);
  comm::agree_all(world, [&] { train::require_vocabulary(tokenizer, loaded->architecture()); });
  return loaded;
}

void remark(const comm::Communicator& world, const std::string& text) {
  if (!world.is_root()) return;
  std::fputs((core::printable(text) + "\n").c_str(), stderr);
}

data::ChatTemplate chat_template_of(const Generator& of) {
  const auto& adapters = of.arguments.adapters;
  return chat_template_of(of, adapters.empty() ? "" : adapters.front());
}

data::ChatTemplate chat_template_of(const Generator& of, const std::string& adapter) {
  const auto& templates = of.registry.templates;
  const std::string& name = of.arguments.chat_template;
  const auto is_named = [&](const data::ChatTemplate& chat) { return chat.name == name; };
  if (name != "model" && !name.starts_with("model:") && std::ranges::none_of(templates, is_named)) {
    std::vector<std::string> names;
    for (const data::ChatTemplate& chat : templates)
      names.push_back(chat.name);
    core::fail(core::ErrorKind::command_line,
               {"finetune generate", fmt::format("there is no chat template \"{}\"", name),
                fmt::format("there are {}", fmt::join(names, ", ")), "Use one of these."});
  }
  data::ChatTemplate chat =
      data::choose_template(name, of.arguments.path, of.tokenizer, templates, "--template",
                            folder_with_template(adapter, "--template"));
  chat.kwargs = kwargs_of(of.arguments);
  for (const std::string& line : data::unread_names(chat, chat.kwargs))
    log::warn("--template-kwargs: " + line);
  return chat;
}

Prompt prompt_of(const Generator& of, const data::ChatTemplate& chat,
                 const data::Conversation& conversation, const std::string& where) {
  const auto segments = [&] {
    try {
      return data::render_prompt(chat, conversation, where);
    } catch (const core::Error& error) {
      throw core::Error(error.kind(), with_options(error.what(), "--template"));
    }
  }();
  return {data::tokenise(segments, of.tokenizer, data::SpecialNameMeaning::text, false).ids,
          chat.ends};
}

void settle_asked(const data::ChatTemplate& chat, const std::string& where, const std::string& why,
                  data::Conversation& conversation) {
  try {
    data::settle_whole(chat, where, why, "Give it a role that the template writes.", conversation);
  } catch (const core::Error& error) {
    throw core::Error(error.kind(), with_options(error.what(), "--template"));
  }
}

Prompt prompt_of(const Generator& of, const std::string& text, const std::string& where) {
  Prompt prompt;
  if (of.arguments.is_chat) {
    data::Conversation conversation;
    if (!of.arguments.system.empty())
      conversation.messages.push_back({data::ChatRole::system, of.arguments.system, {}, {}});
    conversation.messages.push_back({data::ChatRole::user, text, {}, {}});
    prompt = prompt_of(of, chat_template_of(of), conversation, where);
  } else {
    prompt = {data::encode_prompt(of.tokenizer, of.arguments.is_instruction
                                                    ? formats::alpaca::alpaca_prompt(text)
                                                    : text),
              {of.tokenizer.eos_id()}};
  }
  if (prompt.ids.empty())
    core::fail(core::ErrorKind::command_line,
               {where, "the prompt is empty", "there is nothing to continue", "Give a prompt."});
  return prompt;
}

train::TextRequest request_of(const Generator& of, const Prompt& prompt, std::int64_t id,
                              const std::string& where) {
  if (std::ssize(prompt.ids) >= of.architecture.max_positions)
    core::fail(core::ErrorKind::command_line,
               {where, fmt::format("the prompt has {} tokens", prompt.ids.size()),
                fmt::format("the model has {} positions, and the answer needs some",
                            of.architecture.max_positions),
                "Shorten it."});
  train::TextRequest request{.id = id, .prompt = prompt.ids, .sampling = of.sampling};
  std::vector<std::int32_t>& stop = request.sampling.stop;
  stop.insert(stop.end(), prompt.stop.begin(), prompt.stop.end());
  end_at(of, of.arguments.stops, request);
  return request;
}

void end_at(const Generator& of, const std::vector<std::string>& stops,
            train::TextRequest& request) {
  request.is_complete = nullptr;
  if (stops.empty()) return;
  request.is_complete = [&of, stops](std::span<const std::int32_t> tokens) {
    return holds_stop(of.tokenizer.decode(tokens), stops);
  };
}

bool holds_stop(const std::string& text, const std::vector<std::string>& stops) {
  return std::ranges::any_of(
      stops, [&](const std::string& stop) { return text.find(stop) != std::string::npos; });
}

std::string before_stop(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t first = text.size();
  for (const std::string& stop : stops)
    first = std::min(first, text.find(stop));
  return text.substr(0, first);
}

void Printer::add(std::int32_t token) {
  tokens_.push_back(token);
  const std::string text = tokenizer_.decode(tokens_);
  if (!text.ends_with("\xEF\xBF\xBD")) print(text);
}

std::string Printer::finish() {
  const std::string text = tokens_.empty() ? "" : tokenizer_.decode(tokens_);
  print(text);
  if (prints_) std::fputs("\n", stdout);
  return text;
}

void Printer::print(const std::string& text) {
  if (!prints_) return;
  if (text.size() > printed_) std::fputs(text.c_str() + printed_, stdout);
  std::fflush(stdout);
  printed_ = std::max(printed_, text.size());
}

int run_generate(const comm::Environment* environment, const Arguments& arguments,
                 const train::Registry& registry) {
  const comm::Communicator world =
      environment != nullptr ? environment->world() : comm::Communicator();
  const comm::Communicator node =
      environment != nullptr ? environment->node() : comm::Communicator();
  const auto tokenizer = comm::agree(world, [&] {
    require_no_run(arguments.path);
    for (const std::string& adapter : arguments.adapters)
      require_no_run(adapter);
    return tokenizer::Tokenizer::load(arguments.path);
  });
  const auto described = train::describe_model(world, arguments.path, registry);
  const core::DType dtype = dtype_of_products(arguments, described.architecture.file_dtype);
  const shard::Groups groups = train::sharing_groups(world, node, arguments.tp);
  const shard::Options options = comm::agree(world, [&] {
    try {
      return train::inference_options(dtype, world, arguments.device);
    } catch (const core::Error& error) {
      throw core::Error(error.kind(), with_options(error.what(), "--template"));
    }
  });
  const train::Sampling sampling = sampling_of(arguments, world, tokenizer);
  const Generator generator{
      arguments, registry, world, groups, options, tokenizer, described.architecture, sampling};
  if (described.architecture.outputs.are_of_texts()) return label_texts(generator);
  if (!arguments.file.empty()) return generate_file(generator);
  if (arguments.is_chat && arguments.second.empty()) return generate_chat(generator);
  if (arguments.adapters.size() > 1)
    core::fail(core::ErrorKind::command_line,
               {"finetune generate", "several adapters are named", "one prompt has one answer",
                "Name one, or talk to them: finetune generate MODEL --chat."});
  return generate_one(generator);
}

}  // namespace finetune::app
