// SPDX-License-Identifier: Apache-2.0
// Answers to a file of prompts, in their order, on all ranks; what was stopped goes on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer_file.hpp"
#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/records/records.hpp"
#include "data/text/conversation.hpp"
#include "formats/chat/message.hpp"
#include "generate.hpp"
#include "model_identity.hpp"
#include "train/run/stop.hpp"

namespace finetune::app {
namespace {

/// A line of the file.
struct Asked {
  core::Json id = {};                   ///< as the line says it; null: none
  std::string fingerprint;              ///< of line and settings: whose answer one is
  std::vector<std::string> stops = {};  ///< texts that end an answer
  train::TextRequest request = {};
};

/// Other columns of data mean nothing here, but one whose name is nearly that of a setting is
/// misspelt, and would be left out of account without a word.
void require_known_keys(const core::Json& record, const std::string& where) {
  static const std::vector<std::string> known = {"id",
                                                 "prompt",
                                                 "messages",
                                                 "temperature",
                                                 "top_k",
                                                 "top_p",
                                                 "min_p",
                                                 "repetition_penalty",
                                                 "max_tokens",
                                                 "seed",
                                                 "stop",
                                                 "tools",
                                                 "chat_template_kwargs"};
  for (const auto& [key, value] : record.items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    if (const auto meant = core::nearest(key, known))
      core::fail(core::ErrorKind::input, {where, fmt::format("there is no key \"{}\"", key),
                                          fmt::format("a line has {}", fmt::join(known, ", ")),
                                          fmt::format("Did you mean \"{}\"?", *meant)});
  }
}

std::optional<std::int64_t> read_whole(const core::Json& record, const char* key, double low,
                                       double high, const std::string& where) {
  const auto number = train::read_number(record, key, low, high, where);
  if (!number) return std::nullopt;
  if (*number != std::floor(*number))
    core::fail(core::ErrorKind::input, {where, fmt::format("\"{}\" is {}", key, *number),
                                        "a whole number is expected", "Correct it."});
  return static_cast<std::int64_t>(*number);
}

/// Sampling of its own, where a line has it.
void read_own(const core::Json& record, const std::string& where, train::Sampling& sampling) {
  read_whole(record, "top_k", 0, 1e9, where);
  train::apply(train::read_sampling(record, where), sampling);
  if (const auto seed = read_whole(record, "seed", 0, 1e15, where))
    sampling.seed = static_cast<std::uint64_t>(*seed);
  if (const auto most = read_whole(record, "max_tokens", 1, 1 << 24, where))
    sampling.max_tokens = *most;
}

/// The texts that end an answer: a line's own ones, in the place of --stop.
std::vector<std::string> read_stops(const core::Json& record, const std::string& where,
                                    const std::vector<std::string>& otherwise) {
  if (!record.contains("stop") || record.at("stop").is_null()) return otherwise;
  const core::Json& given = record.at("stop");
  std::vector<std::string> stops;
  for (const core::Json& stop : given.is_array() ? given : core::Json::array({given})) {
    if (!stop.is_string() || stop.get<std::string>().empty())
      core::fail(core::ErrorKind::input,
                 {where, fmt::format("\"stop\" is {}", given.dump()),
                  "a text that is not empty is expected, or a list of such", "Correct it."});
    stops.push_back(stop.get<std::string>());
  }
  return stops;
}

/// What else decides an answer.
std::string settings_of(const Generator& of, const std::string& models) {
  const Arguments& a = of.arguments;
  const train::Sampling& s = of.sampling;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}{}", a.path, models,
                     fmt::join(a.adapters, " "), core::name(of.options.numbers.compute),
                     s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty, a.seed,
                     a.max_tokens, a.num_answers, fmt::join(a.stops, "\n"), a.is_chat,
                     a.is_instruction, a.chat_template, a.system, a.shows_log_probs,
                     a.template_kwargs);
}

std::unique_ptr<data::Records> open_prompts(const std::string& file) {
  try {
    auto records = data::open_records(file);
    (void)records->size();  // looks for them
    return records;
  } catch (const core::Error& error) {
    if (std::string(error.what()).find("it holds no record") == std::string::npos) throw;
    core::fail(error.kind(), {file, "has no prompts", "there is nothing to answer",
                              "Write a JSON object a line with \"prompt\" or \"messages\"."});
  }
}

/// `models`: their identity.
std::vector<Asked> read_prompts(const Generator& of, const std::string& models) {
  const auto records = open_prompts(of.arguments.file);
  const std::string how = settings_of(of, models);
  std::vector<Asked> all;
  std::optional<data::ChatTemplate> chat;
  for (std::int64_t i = 0; i < records->size(); ++i) {
    const data::OrderedJson given = records->object(i);
    const core::Json record = core::plain_json(given);
    const std::string where = records->where(i);
    Asked asked{.id = record.value("id", core::Json()),
                .fingerprint = core::fingerprint(record.dump() + how).substr(0, 16)};
    Prompt prompt;
    if (record.contains("messages")) {
      if (!chat) chat = chat_template_of(of);
      data::Conversation asked = formats::chat::conversation_of(*records, given, where);
      settle_asked(*chat, where, "the answer would be to another conversation", asked);
      prompt = prompt_of(of, *chat, asked, where);
    } else if (record.contains("prompt")) {
      prompt = prompt_of(of, text_in(record, "prompt", where), where);
    } else {
      core::fail(core::ErrorKind::input, {where, "there is neither \"prompt\" nor \"messages\"",
                                          "one of them is what the model continues", "Add one."});
    }
    require_known_keys(record, where);
    asked.request = request_of(of, prompt, i, where);
    read_own(record, where, asked.request.sampling);
    asked.stops = read_stops(record, where, of.arguments.stops);
    end_at(of, asked.stops, asked.request);
    all.push_back(std::move(asked));
  }
  return all;
}

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
      return before_stop(of_.tokenizer.decode(text.tokens), asked.stops);
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

  const Generator& of_;
  const train::Engine& engine_;
  const std::vector<Asked>& prompts_;
  std::int64_t num_tokens_ = 0;
};

}  // namespace

int generate_file(const Generator& of) {
  comm::agree_all(of.world, [&] { require_one_answer(of.arguments); });
  train::watch_signals();
  std::vector<std::filesystem::path> folders = {of.arguments.path};
  folders.insert(folders.end(), of.arguments.adapters.begin(), of.arguments.adapters.end());
  const std::string models = identity_of_models(of.world, folders);
  // Whatever may be wrong with the files is said before a large model is loaded.
  const auto prompts = comm::agree(of.world, [&] { return read_prompts(of, models); });
  AnswerFile answers(of.world, of.arguments.output);
  std::vector<std::string> fingerprints;
  for (const Asked& asked : prompts)
    fingerprints.push_back(asked.fingerprint);
  const std::int64_t done = answers.open(fingerprints), count = std::ssize(prompts);
  const auto loaded = of.load(of.arguments.adapters.empty() ? "" : of.arguments.adapters.front());
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
