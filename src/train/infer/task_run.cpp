// SPDX-License-Identifier: Apache-2.0
#include "train/infer/task_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/json.hpp"
#include "data/text/prompt.hpp"
#include "data/text/text_source.hpp"
#include "tasks/metrics.hpp"
#include "tasks/requests.hpp"
#include "train/infer/detail/copies.hpp"
#include "train/infer/detail/scores.hpp"
#include "train/infer/generate.hpp"

namespace finetune::train {
namespace {

using tasks::Question;
using tasks::Task;

std::int32_t begin_of(const tokenizer::Tokenizer& tokenizer) {
  return tokenizer.bos_id().value_or(tokenizer.eos_id());
}

std::vector<std::int32_t> chat_prompt(const Asked& asked, const std::string& text,
                                      const Task& task) {
  const data::Conversation conversation{{{data::ChatRole::user, text, {}, {}}}, {}};
  const auto segments = data::render_prompt(*asked.chat, conversation, task.file);
  return data::tokenise(segments, asked.tokenizer, data::SpecialNameMeaning::text, false).ids;
}

Continuation continuation_of(const Asked& asked, const Task& task, const std::string& prompt,
                             const std::string& text) {
  if (asked.chat && task.uses_chat) {
    constexpr auto how = tokenizer::Encode::continuation | tokenizer::Encode::plain;
    return {chat_prompt(asked, prompt, task), asked.tokenizer.encode(text, how)};
  }
  tasks::Pair pair = tasks::encode_pair(asked.tokenizer, prompt, text, begin_of(asked.tokenizer));
  return {std::move(pair.prompt), std::move(pair.continuation)};
}

/// A text in windows: each token is found likely or not once, after as many as a window holds, or
/// after fewer at the beginning.
std::vector<Continuation> windows_of(const std::vector<std::int32_t>& tokens, std::int32_t begin,
                                     std::int64_t window, std::int64_t stride) {
  std::vector<Continuation> windows;
  const std::int64_t count = std::ssize(tokens);
  const auto part = [&](std::int64_t from, std::int64_t to) {
    return std::vector<std::int32_t>(tokens.begin() + from, tokens.begin() + to);
  };
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t end = std::min(count, done == 0 ? window : done + stride);
    std::vector<std::int32_t> before = part(std::max<std::int64_t>(0, end - window - 1), done);
    if (done == 0) before = {begin};
    windows.push_back({std::move(before), part(done, end)});
    done = end;
  }
  return windows;
}

/// Scores, of which those that are known are not computed again; nothing if it was stopped.
std::optional<std::vector<ContinuationScore>> scored(const Asked& asked, const Task& task,
                                                     const std::vector<Continuation>& all,
                                                     tasks::Progress& progress,
                                                     const AskOptions& options) {
  const auto key = [&](std::size_t i) { return fmt::format("{}/{}/{}", asked.name, task.name, i); };
  std::vector<std::optional<ContinuationScore>> known(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (const core::Json* found = progress.find(key(i)))
      known[i] = {found->at(0).get<double>(), found->at(1).get<bool>()};
  std::size_t num_known = static_cast<std::size_t>(
      std::ranges::count_if(known, [](const auto& one) { return one.has_value(); }));
  const ScoreOptions how{
      .batch_tokens = options.batch_tokens,
      .known = [&](std::size_t i) { return known[i] ? &*known[i] : nullptr; },
      .on_scores =
          [&](std::span<const std::size_t> places, std::span<const ContinuationScore> scores) {
            for (std::size_t i = 0; i < places.size(); ++i)
              progress.add(key(places[i]), {scores[i].log_likelihood, scores[i].is_greedy});
            num_known += places.size();
          },
      .should_stop = options.should_stop};
  auto scores = score(asked.engine, all, how);
  // Passes hold known ones, too.
  if (num_known < all.size()) return std::nullopt;
  return scores;
}

void require_tokens(const std::vector<std::int32_t>& tokens, const std::string& what,
                    const char* key, const Task& task, const Question& question) {
  if (!tokens.empty()) return;
  core::fail(
      core::ErrorKind::input,
      {task.data.string(), fmt::format("{} of question {} has no tokens", what, question.index + 1),
       "its likelihood is that of its tokens", fmt::format("Correct the question, or {}.", key)});
}

std::optional<tasks::Outcome> ask_choices(const Asked& asked, const Task& task,
                                          const std::vector<Question>& questions,
                                          tasks::Progress& progress, const AskOptions& options) {
  std::vector<Continuation> all;
  for (const Question& question : questions) {
    for (std::size_t c = 0; c < question.continuations.size(); ++c) {
      all.push_back(continuation_of(asked, task, question.prompts[c], question.continuations[c]));
      require_tokens(all.back().tokens, fmt::format("choice {}", c + 1), "task.choices", task,
                     question);
    }
  }
  const auto scores = scored(asked, task, all, progress, options);
  if (!scores) return std::nullopt;
  tasks::Outcome outcome{.model = asked.name, .task = task.name, .judged = {}, .units = {}};
  auto score = scores->begin();
  for (const Question& question : questions) {
    std::vector<tasks::ScoredChoice> choices;
    core::Json log_likelihoods = core::Json::array();
    for (std::size_t c = 0; c < question.continuations.size(); ++c, ++score) {
      choices.push_back({score->log_likelihood});
      log_likelihoods.push_back(score->log_likelihood);
    }
    tasks::Judged judged{.index = question.index,
                         .values = tasks::judge_choices(task, question, choices)};
    judged.record = {{"prompt", question.prompts.front()},
                     {"choices", question.choices},
                     {"log_likelihoods", std::move(log_likelihoods)},
                     {"chosen", tasks::likeliest(choices)},
                     {"right", question.right}};
    outcome.judged.push_back(std::move(judged));
  }
  return outcome;
}

std::optional<tasks::Outcome> ask_texts(const Asked& asked, const Task& task,
                                        const std::vector<Question>& questions,
                                        tasks::Progress& progress, const AskOptions& options) {
  const std::int64_t positions = asked.engine.architecture.max_positions;
  const std::int64_t window =
      task.perplexity.window > 0 ? std::min(task.perplexity.window, positions) : positions;
  const std::int64_t stride =
      task.perplexity.stride > 0 ? std::min(task.perplexity.stride, window) : window;
  std::vector<Continuation> all;
  std::vector<std::size_t> ends;
  tasks::Outcome outcome{.model = asked.name, .task = task.name, .judged = {}, .units = {}};
  for (const Question& question : questions) {
    const auto tokens = asked.tokenizer.encode(question.prompt, tokenizer::Encode::no_ends);
    require_tokens(tokens, "the text", "task.prompt", task, question);
    for (Continuation& one : windows_of(tokens, begin_of(asked.tokenizer), window, stride))
      all.push_back(std::move(one));
    ends.push_back(all.size());
    outcome.units.push_back({static_cast<double>(tokens.size()), tasks::num_words(question.prompt),
                             static_cast<double>(question.prompt.size())});
  }
  const auto scores = scored(asked, task, all, progress, options);
  if (!scores) return std::nullopt;
  std::size_t at = 0;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    tasks::Judged judged{.index = questions[i].index};
    for (; at < ends[i]; ++at)
      judged.log_likelihood += (*scores)[at].log_likelihood;
    judged.record = {{"log_likelihood", judged.log_likelihood},
                     {"tokens", outcome.units[i].tokens},
                     {"words", outcome.units[i].words},
                     {"bytes", outcome.units[i].bytes}};
    outcome.judged.push_back(std::move(judged));
  }
  return outcome;
}

/// Answers in text, of tries that some rank writes.
class Answers {
 public:
  Answers(const Asked& asked, const Task& task, const std::vector<Question>& questions,
          tasks::Progress& progress, const AskOptions& options)
      : asked_(asked),
        task_(task),
        questions_(questions),
        progress_(progress),
        options_(options),
        copies_(asked.engine) {}

  /// False if it was stopped.
  bool write() {
    std::vector<std::int64_t> missing;
    const std::int64_t count = std::ssize(questions_) * task_.generation.samples;
    for (std::int64_t i = 0; i < count; ++i)
      if (progress_.find(key(i)) == nullptr) missing.push_back(i);
    const comm::Communicator& ranks = asked_.engine.shards.fsdp();
    const std::int64_t writers = ranks.size() * static_cast<std::int64_t>(copies_.size());
    const std::int64_t number =
        static_cast<std::int64_t>(copies_.rank()) * ranks.size() + ranks.rank();
    // Often enough that a stop loses little, seldom enough that ranks wait little for each other.
    const std::int64_t round = 2 * options_.batch * writers;
    for (std::int64_t first = 0; first < std::ssize(missing); first += round) {
      const bool stops = options_.should_stop && options_.should_stop();
      if (ranks.all_reduce(std::int64_t{stops}, comm::Reduce::max) > 0) return false;
      std::vector<std::int64_t> own;
      for (std::int64_t i = first + number; i < std::min(first + round, std::ssize(missing));
           i += writers)
        own.push_back(missing[static_cast<std::size_t>(i)]);
      share(own, texts_of(own));
    }
    return true;
  }

  std::vector<std::string> of(std::int64_t question) const {
    std::vector<std::string> answers;
    for (std::int64_t i = 0; i < task_.generation.samples; ++i)
      answers.push_back(
          progress_.find(key(question * task_.generation.samples + i))->get<std::string>());
    return answers;
  }

 private:
  std::string key(std::int64_t i) const {
    return fmt::format("{}/{}/{}", asked_.name, task_.name, i);
  }

  std::size_t first_stop(const std::string& text) const {
    std::size_t first = std::string::npos;
    for (const std::string& stop : task_.generation.stops)
      if (!stop.empty()) first = std::min(first, text.find(stop));
    return first;
  }

  TextRequest request_of(std::int64_t i) const {
    const Question& question = questions_[static_cast<std::size_t>(i / task_.generation.samples)];
    const tokenizer::Tokenizer& tokenizer = asked_.tokenizer;
    TextRequest request{.id = i, .prompt = {}, .sampling = {}};
    request.sampling = {.temperature = task_.generation.temperature,
                        .top_p = task_.generation.top_p,
                        .seed = options_.seed,
                        .max_tokens = task_.generation.max_tokens,
                        .stop = {tokenizer.eos_id()},
                        .vocab_size = tokenizer.vocab_size()};
    if (asked_.chat && task_.uses_chat) {
      request.prompt = chat_prompt(asked_, question.prompt, task_);
      request.sampling.stop = asked_.chat->ends;
    } else {
      request.prompt = data::encode_prompt(tokenizer, question.prompt);
    }
    if (request.prompt.empty()) request.prompt = {begin_of(tokenizer)};
    // Of a prompt that is too long the end counts: there the question is.
    const std::int64_t room = asked_.engine.architecture.max_positions -
                              std::min<std::int64_t>(task_.generation.max_tokens,
                                                     asked_.engine.architecture.max_positions / 2);
    if (std::ssize(request.prompt) > room)
      request.prompt.erase(request.prompt.begin(), request.prompt.end() - room);
    if (!task_.generation.stops.empty())
      request.is_complete = [this](std::span<const std::int32_t> tokens) {
        return first_stop(asked_.tokenizer.decode(tokens)) != std::string::npos;
      };
    return request;
  }

  std::vector<std::string> texts_of(const std::vector<std::int64_t>& own) const {
    std::vector<TextRequest> requests;
    for (const std::int64_t i : own)
      requests.push_back(request_of(i));
    std::vector<std::string> texts;
    for (const GeneratedText& text :
         generate_texts(asked_.engine, requests, {.batch = options_.batch})) {
      std::string answer = asked_.tokenizer.decode(text.tokens);
      answer.resize(std::min(answer.size(), first_stop(answer)));
      texts.push_back(std::move(answer));
    }
    return texts;
  }

  void share(const std::vector<std::int64_t>& own, const std::vector<std::string>& texts) {
    core::Json mine = core::Json::array();
    for (std::size_t i = 0; i < own.size(); ++i)
      mine.push_back({own[i], texts[i]});
    // A text may end inside of a character.
    const std::string written = mine.dump(-1, ' ', false, core::Json::error_handler_t::replace);
    core::Json of_copy = core::Json::array();
    for (const std::string& of_rank : asked_.engine.shards.fsdp().all_gather_text(written)) {
      const core::Json some = core::Json::parse(of_rank);
      of_copy.insert(of_copy.end(), some.begin(), some.end());
    }
    for (const std::string& all : copies_.all_gather_text(of_copy.dump()))
      for (const core::Json& one : core::Json::parse(all))
        progress_.add(key(one.at(0).get<std::int64_t>()), one.at(1));
  }

  const Asked& asked_;
  const Task& task_;
  const std::vector<Question>& questions_;
  tasks::Progress& progress_;
  const AskOptions& options_;
  Copies copies_;
};

std::optional<tasks::Outcome> ask_for_answers(const Asked& asked, const Task& task,
                                              const std::vector<Question>& questions,
                                              tasks::Progress& progress,
                                              const AskOptions& options) {
  Answers answers(asked, task, questions, progress, options);
  if (!answers.write()) return std::nullopt;
  tasks::Outcome outcome{.model = asked.name, .task = task.name, .judged = {}, .units = {}};
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::vector<std::string> texts = answers.of(static_cast<std::int64_t>(i));
    core::Json counted = core::Json::array();
    for (const std::string& text : texts)
      counted.push_back(tasks::counted(task, text));
    tasks::Judged judged{.index = questions[i].index,
                         .values = tasks::judge_answers(task, questions[i], texts),
                         .parts = tasks::judge_parts(task, questions[i], texts)};
    judged.record = {{"prompt", questions[i].prompt},
                     {"answers", texts},
                     {"counted", std::move(counted)},
                     {"right", questions[i].answer}};
    outcome.judged.push_back(std::move(judged));
  }
  return outcome;
}

}  // namespace

std::optional<tasks::Outcome> run_task(const Asked& asked, const Task& task,
                                       const std::vector<Question>& questions,
                                       tasks::Progress& progress, const AskOptions& options) {
  const auto ask = task.kind == tasks::Kind::choices    ? ask_choices
                   : task.kind == tasks::Kind::generate ? ask_for_answers
                                                        : ask_texts;
  return ask(asked, task, questions, progress, options);
}

}  // namespace finetune::train
