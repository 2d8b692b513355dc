// SPDX-License-Identifier: Apache-2.0
// A conversation in the terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "generate.hpp"
#include "model_folders.hpp"

namespace finetune::app {
namespace {

constexpr const char* help =
    "/base            the model without an adapter, to compare\n"
    "/adapter NAME    one of the adapters that were used, or named in the command line\n"
    "/adapter FOLDER  another one; the model is not loaded again\n"
    "/again           the last question once more, to whoever answers now\n"
    "/system TEXT     the system message; without TEXT none\n"
    "/reset           forgets what was said\n"
    "/quit            ends, as does the end of the input (Ctrl-D)\n"
    "Ctrl-C           ends an answer, or drops what was typed";

/// A handler can reach nothing else.
volatile std::sig_atomic_t interruptions = 0;

/// While it lives, Ctrl-C interrupts what goes on, and not the program.
class Interruptible {
 public:
  Interruptible() {
    struct sigaction action = {};
    action.sa_handler = [](int) { interruptions = interruptions + 1; };
    // Not restarted: what waits for a line is to end, too.
    ::sigaction(SIGINT, &action, &before_);
  }
  ~Interruptible() { ::sigaction(SIGINT, &before_, nullptr); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  struct sigaction before_ = {};
};

/// What is typed on the root; nothing at the end of the input. Collective on the world.
std::optional<std::string> typed(const comm::Communicator& world, const std::string& asking) {
  std::string line;
  if (world.is_root()) {
    const bool is_terminal = ::isatty(STDIN_FILENO) != 0;
    bool is_there = false;
    for (bool asks = true; asks;) {
      if (is_terminal) std::cerr << asking << std::flush;
      const std::sig_atomic_t before = interruptions;
      is_there = static_cast<bool>(std::getline(std::cin, line));
      asks = !is_there && interruptions != before;
      if (!asks) break;
      std::cin.clear();
      std::clearerr(stdin);
      line.clear();
      std::cerr << "\n";
    }
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
        system_(of.arguments.system),
        adapters_(of.arguments.adapters) {
    if (!adapters_.empty()) adapter_ = adapters_.front();
    loaded_ = of_.load(adapter_);
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
  void tell(const std::string& text) const { remark(of_.world, text); }
  std::string name() const {
    if (adapter_.empty() || !uses_adapter_) return "base";
    return std::filesystem::path(adapter_).lexically_normal().filename().string();
  }

  /// Is an error for nobody: the conversation goes on.
  void command(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string word = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (word == "/base") {
      uses_adapter_ = false;
      use_base_template();
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

  /// A known one by its name, else a folder. One that cannot be used leaves all as it was.
  void choose(const std::string& wanted) {
    const auto found = std::ranges::find_if(adapters_, [&](const std::string& adapter) {
      return adapter == wanted ||
             std::filesystem::path(adapter).lexically_normal().filename() == wanted;
    });
    const bool is_known = found != adapters_.end();
    const std::string adapter = is_known ? *found : wanted;
    data::ChatTemplate chat;
    try {
      comm::agree_all(of_.world, [&] {
        if (!is_known) require_adapter(adapter);
        chat = chat_template_of(of_, adapter);
      });
      if (adapter != adapter_) loaded_->use_adapter(adapter);
    } catch (const comm::AgreedError& error) {
      if (!loaded_->is_usable()) throw;
      return tell(error.what());
    }
    if (!is_known) adapters_.push_back(adapter);
    adapter_ = adapter;
    uses_adapter_ = true;
    chat_ = std::move(chat);
  }

  /// Where the model has a template; else the one stays that the adapter brought.
  void use_base_template() {
    try {
      chat_ = comm::agree(of_.world, [&] { return chat_template_of(of_, ""); });
    } catch (const comm::AgreedError& error) {
      tell(error.what());
    }
  }

  static void require_adapter(const std::string& folder) {
    require_no_run(folder);
    std::error_code ignored;
    if (!std::filesystem::is_directory(folder, ignored))
      core::fail(core::ErrorKind::command_line,
                 {"/adapter", fmt::format("there is no adapter \"{}\"", folder),
                  "it is neither one of --adapter nor a folder", "Name one of these."});
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
                          "the conversation");
      });
    } catch (const core::Error& error) {
      return tell(error.what());
    }
    ++num_answers_;
    train::Engine engine = loaded_->engine();
    engine.uses_adapter = uses_adapter_ || adapter_.empty();
    Printer printer(of_.tokenizer, of_.world.is_root());
    const std::sig_atomic_t before = interruptions;
    const train::GenerateOptions how{
        .on_token = [&](std::size_t, std::int32_t token) { printer.add(token); },
        .same_on_all_ranks = true,
        .should_stop = [&] { return interruptions != before; }};
    train::generate_texts(engine, std::span(&*request, 1), how);
    const std::string said = printer.finish();
    said_.messages.push_back({data::ChatRole::user, question, {}, {}});
    said_.messages.push_back({data::ChatRole::assistant, said, {}, {}});
  }

  const Generator& of_;
  data::ChatTemplate chat_;
  std::string system_;
  std::vector<std::string> adapters_;
  data::Conversation said_;
  std::unique_ptr<train::LoadedModel> loaded_;
  std::string adapter_;
  bool uses_adapter_ = true;
  std::int64_t num_answers_ = 0;
};

}  // namespace

int generate_chat(const Generator& of) {
  Chat chat(of);
  const Interruptible interruptible;
  chat.run();
  return core::exit_done;
}

}  // namespace finetune::app
