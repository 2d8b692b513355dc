// SPDX-License-Identifier: Apache-2.0
// A conversation in the terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "generate.hpp"

namespace finetune::app {
namespace {

constexpr const char* help =
    "/base            the model without an adapter, to compare\n"
    "/adapter NAME    one of the adapters of the command line\n"
    "/again           the last question once more, to whoever answers now\n"
    "/system TEXT     the system message; without TEXT none\n"
    "/reset           forgets what was said\n"
    "/quit            ends, as does the end of the input";

/// What is typed on the root; nothing at the end of the input. Collective on the world.
std::optional<std::string> typed(const comm::Communicator& world, const std::string& asking) {
  std::string line;
  if (world.is_root()) {
    if (::isatty(STDIN_FILENO) != 0) std::cout << asking << std::flush;
    const bool is_there = static_cast<bool>(std::getline(std::cin, line));
    line = (is_there ? "1" : "0") + line;
  }
  line = world.broadcast_text(std::move(line));
  if (line.starts_with('0')) return std::nullopt;
  return line.substr(1);
}

class Chat {
 public:
  explicit Chat(const Generator& of)
      : of_(of),
        chat_(comm::agree(of.world, [&] { return chat_template_of(of); })),
        system_(of.arguments.system) {
    use(of.arguments.adapters.empty() ? "" : of.arguments.adapters.front());
    tell("/help says what can be typed.");
  }

  void run() {
    while (const auto line = typed(of_.world, name() + "> ")) {
      if (*line == "/quit" || *line == "/exit") return;
      if (line->starts_with('/'))
        command(*line);
      else if (!line->empty())
        answer(*line);
    }
  }

 private:
  void tell(const std::string& text) const {
    if (of_.world.is_root()) log::info(text);
  }
  std::string name() const {
    if (adapter_.empty() || !uses_adapter_) return "base";
    return std::filesystem::path(adapter_).lexically_normal().filename().string();
  }

  void use(const std::string& adapter) {
    loaded_.reset();
    loaded_ = of_.load(adapter);
    adapter_ = adapter;
    uses_adapter_ = true;
  }

  /// Is an error for nobody: the conversation goes on.
  void command(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string word = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (word == "/base") {
      uses_adapter_ = false;
    } else if (word == "/adapter") {
      choose(rest);
    } else if (word == "/system") {
      system_ = rest;
    } else if (word == "/reset") {
      said_.messages.clear();
    } else if (word == "/again") {
      again();
    } else {
      tell(help);
    }
  }

  void choose(const std::string& wanted) {
    const auto& all = of_.arguments.adapters;
    const auto found = std::ranges::find_if(all, [&](const std::string& adapter) {
      return adapter == wanted ||
             std::filesystem::path(adapter).lexically_normal().filename() == wanted;
    });
    if (found == all.end()) {
      tell(fmt::format("there is no adapter \"{}\" among those of --adapter", wanted));
    } else if (*found != adapter_) {
      use(*found);
    } else {
      uses_adapter_ = true;
    }
  }

  void again() {
    while (!said_.messages.empty() && said_.messages.back().role != data::ChatRole::user)
      said_.messages.pop_back();
    if (said_.messages.empty()) return tell("nothing was asked yet");
    const std::string question = said_.messages.back().text;
    said_.messages.pop_back();
    answer(question);
  }

  void answer(const std::string& question) {
    data::Conversation all;
    if (!system_.empty()) all.messages.push_back({data::ChatRole::system, system_, {}, {}});
    all.messages.insert(all.messages.end(), said_.messages.begin(), said_.messages.end());
    all.messages.push_back({data::ChatRole::user, question, {}, {}});
    std::optional<train::TextRequest> request;
    try {
      request = comm::agree(of_.world, [&] {
        return request_of(of_, prompt_of(of_, chat_, all, "the conversation"), num_answers_,
                          loaded_->architecture(), "the conversation");
      });
    } catch (const core::Error& error) {
      return tell(error.what());
    }
    ++num_answers_;
    train::Engine engine = loaded_->engine();
    engine.uses_adapter = uses_adapter_ || adapter_.empty();
    Printer printer(of_.tokenizer, of_.world.is_root());
    const train::GenerateOptions how{
        .on_token = [&](std::size_t, std::int32_t token) { printer.add(token); },
        .same_on_all_ranks = true};
    train::generate_texts(engine, std::span(&*request, 1), how);
    const std::string said = printer.finish();
    said_.messages.push_back({data::ChatRole::user, question, {}, {}});
    said_.messages.push_back({data::ChatRole::assistant, said, {}, {}});
  }

  const Generator& of_;
  data::ChatTemplate chat_;
  std::string system_;
  data::Conversation said_;
  std::unique_ptr<train::LoadedModel> loaded_;
  std::string adapter_;
  bool uses_adapter_ = true;
  std::int64_t num_answers_ = 0;
};

}  // namespace

int generate_chat(const Generator& of) {
  Chat(of).run();
  return core::exit_done;
}

}  // namespace finetune::app
