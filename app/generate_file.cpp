// SPDX-License-Identifier: Apache-2.0
// Answers to a file of prompts, in their order, on all ranks; what was stopped goes on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "data/records/records.hpp"
#include "data/text/conversation.hpp"
#include "generate.hpp"
#include "train/run/stop.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;

/// A line of the file.
struct Asked {
  core::Json id = {};       ///< as the line says it; null: none
  std::string fingerprint;  ///< of line and settings: whose answer one is
  std::int64_t line = 0;    ///< from 1
  train::TextRequest request = {};
};

std::string text_in(const core::Json& record, const char* field, const std::string& where) {
  if (!record.at(field).is_string())
    core::fail(core::ErrorKind::input, {where, fmt::format("\"{}\" is no text", field), "",
                                        "Write a text between quotes."});
  return record.at(field).get<std::string>();
}

data::Conversation conversation_in(const core::Json& list, const std::string& where) {
  data::Conversation conversation;
  const auto refuse = [&](const std::string& problem) {
    core::fail(core::ErrorKind::input,
               {where, problem, "a message is {\"role\": ..., \"content\": ...}",
                "Correct it: roles are system, user, assistant and tool."});
  };
  if (!list.is_array() || list.empty()) refuse("\"messages\" is no list of messages");
  for (const core::Json& message : list) {
    if (!message.is_object() || !message.contains("role") || !message.contains("content") ||
        !message["role"].is_string() || !message["content"].is_string())
      refuse("a message has no role or no content that is a text");
    const auto role = data::role_named(message["role"].get<std::string>());
    if (!role) refuse(fmt::format("there is no role {}", message["role"].dump()));
    conversation.messages.push_back({role->role, message["content"].get<std::string>(), {}, {}});
  }
  return conversation;
}

/// Sampling of its own, where a line has it.
void read_own(const core::Json& record, const std::string& where, train::Sampling& sampling) {
  const auto number = [&](const char* field, double low, double high, auto& value) {
    if (!record.contains(field)) return;
    const core::Json& given = record.at(field);
    if (!given.is_number() || given.get<double>() < low || given.get<double>() > high)
      core::fail(core::ErrorKind::input,
                 {where, fmt::format("\"{}\" is {}", field, given.dump()),
                  fmt::format("a number from {} to {} is expected", low, high), "Correct it."});
    value = given.get<std::decay_t<decltype(value)>>();
  };
  number("temperature", 0, 100, sampling.temperature);
  number("top_k", 0, 1e9, sampling.top_k);
  number("top_p", 0, 1, sampling.top_p);
  number("min_p", 0, 1, sampling.min_p);
  number("repetition_penalty", 1e-3, 1e3, sampling.repetition_penalty);
  number("seed", 0, 1e15, sampling.seed);
  number("max_tokens", 1, 1 << 24, sampling.max_tokens);
}

/// What else decides an answer.
std::string settings_of(const Generator& of) {
  const Arguments& a = of.arguments;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", a.path,
                     fmt::join(a.adapters, " "), core::name(of.options.numbers.compute),
                     a.temperature, a.top_k, a.top_p, a.min_p, a.repetition_penalty, a.seed,
                     a.max_tokens, a.num_answers, fmt::join(a.stops, "\n"), a.is_chat,
                     a.is_instruction, a.chat_template, a.system, a.shows_log_probs);
}

std::vector<Asked> read_prompts(const Generator& of, const model::Architecture& architecture) {
  const auto records = data::open_records(of.arguments.file);
  const std::string how = settings_of(of);
  std::vector<Asked> all;
  std::optional<data::ChatTemplate> chat;
  for (std::int64_t i = 0; i < records->size(); ++i) {
    const core::Json record = records->object(i);
    const std::string where = records->where(i);
    Asked asked{.id = record.value("id", core::Json()),
                .fingerprint = core::fingerprint(record.dump() + how).substr(0, 16),
                .line = i + 1};
    Prompt prompt;
    if (record.contains("messages")) {
      if (!chat) chat = chat_template_of(of);
      prompt = prompt_of(of, *chat, conversation_in(record.at("messages"), where), where);
    } else if (record.contains("prompt")) {
      prompt = prompt_of(of, text_in(record, "prompt", where));
    } else {
      core::fail(core::ErrorKind::input, {where, "there is neither \"prompt\" nor \"messages\"",
                                          "one of them is what the model continues", "Add one."});
    }
    asked.request = request_of(of, prompt, i, architecture, where);
    read_own(record, where, asked.request.sampling);
    all.push_back(std::move(asked));
  }
  return all;
}

/// The file of the answers, of the root alone.
class Answers {
 public:
  Answers(const comm::Communicator& world, fs::path file) : world_(world), file_(std::move(file)) {}

  /// How many lines of an earlier start are whole answers to the same prompts.
  std::int64_t open(const std::vector<Asked>& prompts) {
    const auto done = comm::agree(world_, [&]() -> std::int64_t {
      if (!world_.is_root()) return 0;
      std::error_code ignored;
      std::string kept;
      std::int64_t count = 0;
      if (fs::exists(file_, ignored)) {
        std::ifstream in(file_);
        for (std::string line; std::getline(in, line) && !in.eof(); ++count) {
          require_same(line, prompts, count);
          kept += line + "\n";
        }
        fs::resize_file(file_, kept.size());
      }
      out_.open(file_, std::ios::app);
      if (!out_)
        core::fail(core::ErrorKind::create, {file_.string(), "cannot be written",
                                             core::system_reason(), "Name another file by -o."});
      return count;
    });
    return world_.all_reduce(done, comm::Reduce::max);
  }

  void add(const std::string& lines) {
    comm::agree_all(world_, [&] {
      if (!world_.is_root()) return;
      out_ << lines << std::flush;
      if (!out_)
        core::fail(core::ErrorKind::io,
                   {file_.string(), "cannot be written", core::system_reason(),
                    "Is the disk full? The same command goes on from what is there."});
    });
  }

 private:
  void require_same(const std::string& line, const std::vector<Asked>& prompts,
                    std::int64_t index) const {
    const core::Json answer = core::Json::parse(line, nullptr, false);
    const bool is_same =
        index < std::ssize(prompts) && answer.is_object() &&
        answer.value("prompt_hash", "") == prompts[static_cast<std::size_t>(index)].fingerprint;
    if (is_same) return;
    core::fail(core::ErrorKind::create,
               {fmt::format("{}:{}", file_.string(), index + 1),
                "is no answer to this line of the prompts",
                "what is there already is kept, and these are other prompts or other settings",
                "Remove it, or name another file by -o."});
  }

  comm::Communicator world_;
  fs::path file_;
  std::ofstream out_;
};

class Batch {
 public:
  Batch(const Generator& of, const train::Engine& engine, const std::vector<Asked>& prompts)
      : of_(of), engine_(engine), prompts_(prompts) {}

  /// Answers to prompts [first, last), as lines, on the root.
  std::string lines(std::int64_t first, std::int64_t last) {
    const comm::Communicator& ranks = engine_.shards.fsdp();
    std::vector<train::TextRequest> requests;
    std::vector<std::int64_t> own;
    for (std::int64_t i = first + ranks.rank(); i < last; i += ranks.size()) {
      for (std::int64_t k = 0; k < of_.arguments.num_answers; ++k) {
        requests.push_back(prompts_[static_cast<std::size_t>(i)].request);
        requests.back().id = i * of_.arguments.num_answers + k;
      }
      own.push_back(i);
    }
    const auto texts = train::generate_texts(
        engine_, requests,
        {.batch = of_.arguments.batch, .wants_log_probs = of_.arguments.shows_log_probs});
    for (const train::GeneratedText& text : texts)
      num_tokens_ += std::ssize(text.tokens);
    core::Json mine = core::Json::array();
    for (std::size_t i = 0; i < own.size(); ++i)
      mine.push_back(
          {own[i], line_of(own[i], std::span(texts).subspan(
                                       i * static_cast<std::size_t>(of_.arguments.num_answers),
                                       static_cast<std::size_t>(of_.arguments.num_answers)))});
    return in_order(ranks.all_gather_text(mine.dump()));
  }

  /// Of this start: ": 120 tokens in 0.50 s, 240 tokens/s". Collective on fsdp.
  std::string rate(double seconds) const {
    const std::int64_t all = engine_.shards.fsdp().all_reduce(num_tokens_, comm::Reduce::sum);
    return all == 0 ? ""
                    : fmt::format(": {} tokens in {:.2f} s, {:.4g} tokens/s", all, seconds,
                                  static_cast<double>(all) / seconds);
  }

 private:
  std::string line_of(std::int64_t i, std::span<const train::GeneratedText> texts) const {
    const Asked& asked = prompts_[static_cast<std::size_t>(i)];
    data::OrderedJson line;
    if (!asked.id.is_null()) line["id"] = data::OrderedJson::parse(asked.id.dump());
    const auto text_of = [&](const train::GeneratedText& text) {
      return before_stop(of_.tokenizer.decode(text.tokens), of_.arguments.stops);
    };
    data::OrderedJson all = data::OrderedJson::array(), counts = all, complete = all, logs = all;
    for (const train::GeneratedText& text : texts) {
      all.push_back(text_of(text));
      counts.push_back(text.tokens.size());
      complete.push_back(text.is_complete);
      logs.push_back(text.log_probs);
    }
    const bool is_one = texts.size() == 1;
    line[is_one ? "text" : "texts"] = is_one ? all[0] : all;
    line["tokens"] = is_one ? counts[0] : counts;
    line["complete"] = is_one ? complete[0] : complete;
    if (of_.arguments.shows_log_probs) line["log_probs"] = is_one ? logs[0] : logs;
    line["prompt_hash"] = asked.fingerprint;
    return line.dump(-1, ' ', false, data::OrderedJson::error_handler_t::replace);
  }

  static std::string in_order(const std::vector<std::string>& of_ranks) {
    std::vector<std::pair<std::int64_t, std::string>> all;
    for (const std::string& of_rank : of_ranks)
      for (const core::Json& each : core::Json::parse(of_rank))
        all.emplace_back(each[0].get<std::int64_t>(), each[1].get<std::string>());
    std::ranges::sort(all);
    std::string lines;
    for (const auto& [i, line] : all)
      lines += line + "\n";
    return lines;
  }

  const Generator& of_;
  const train::Engine& engine_;
  const std::vector<Asked>& prompts_;
  std::int64_t num_tokens_ = 0;
};

}  // namespace

int generate_file(const Generator& of) {
  comm::agree_all(of.world, [&] {
    if (of.arguments.output.empty())
      core::fail(core::ErrorKind::command_line,
                 {"finetune generate", "--file is given, and no -o",
                  "answers to a file of prompts are a file", "Name it by -o."});
    if (of.arguments.adapters.size() > 1)
      core::fail(core::ErrorKind::command_line,
                 {"finetune generate", "several adapters are named",
                  "a file of prompts has one file of answers", "Name one."});
  });
  train::watch_signals();
  const auto loaded = of.load(of.arguments.adapters.empty() ? "" : of.arguments.adapters.front());
  const auto prompts =
      comm::agree(of.world, [&] { return read_prompts(of, loaded->architecture()); });
  Answers answers(of.world, of.arguments.output);
  const std::int64_t done = answers.open(prompts), count = std::ssize(prompts);
  if (of.world.is_root() && done > 0)
    log::info(fmt::format("goes on: {} of {} prompts are answered in {}", done, count,
                          of.arguments.output));
  const train::Engine engine = loaded->engine();
  Batch batch(of, engine, prompts);
  const std::int64_t round = 2 * of.arguments.batch * engine.shards.fsdp().size();
  const core::Stopwatch watch;
  for (std::int64_t first = done; first < count; first += round) {
    if (of.world.all_reduce(std::int64_t{train::stop_is_asked()}, comm::Reduce::max) > 0) {
      if (of.world.is_root())
        log::info(fmt::format(
            "stopped by a signal after {} of {} prompts: the same command goes on", first, count));
      return core::exit_resubmit;
    }
    answers.add(batch.lines(first, std::min(first + round, count)));
  }
  const std::string rate = batch.rate(watch.seconds());
  if (of.world.is_root())
    log::info(fmt::format("{} prompts are answered in {}{}", count, of.arguments.output, rate));
  return core::exit_done;
}

}  // namespace finetune::app
