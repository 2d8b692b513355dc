// SPDX-License-Identifier: Apache-2.0
#include "data/text/text_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/text/columns.hpp"
#include "data/text/detail/roles.hpp"

namespace finetune::data {
namespace {

std::uint32_t bit(Oddity oddity) {
  return static_cast<std::uint32_t>(oddity);
}

/// Tokens at which generation stops, and what the template ends answers with.
std::vector<std::int32_t> policy_ends(const TokenizePolicy& policy) {
  std::vector<std::int32_t> ends = policy.ends;
  for (const std::int32_t id : policy.chat ? policy.chat->ends : std::vector<std::int32_t>())
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  return ends;
}

/// Everything of a format, its columns and a policy that decides tokens, as text to compare.
std::string describe(const Format& format, const Columns& columns, const TokenizePolicy& policy,
                     const tokenizer::Tokenizer& tokenizer) {
  // Raised when the same settings begin to give other tokens.
  // What is no conversation and has no tokens by name is as it was before the last one.
  const bool is_as_before = !policy.chat && policy.special_names == SpecialNameMeaning::text;
  const int version = is_as_before ? 3 : 4;
  std::string text = fmt::format("samples {}\nformat {}\n", version, format.name);
  text += describe(columns);
  text += fmt::format("train_on {}\nspecial_names {}\ntokenizer {}\n",
                      policy.train_on == TrainOn::all ? "all" : "answers",
                      policy.special_names == SpecialNameMeaning::text ? "text" : "tokens",
                      tokenizer.fingerprint());
  if (policy.labels.exists()) text += fmt::format("labels {}\n", policy.labels.settings);
  // Raised when messages begin to be read in another way. Those beside prompts have tools since.
  const int messages = format.needs_template ? 2 : 3;
  if (policy.chat && format.reads_messages) text += fmt::format("messages {}\n", messages);
  if (policy.chat) {
    // Raised when the data report begins to say more of conversations.
    constexpr int report = 2;
    text += fmt::format("report {}\n", report);
    text += fmt::format("{} {}\n{}{}", policy.rewrites ? "rewrites" : "template", policy.chat->name,
                        policy.chat->text, policy.chat->for_tools);
    text += fmt::format("\nends {}\n", fmt::join(policy_ends(policy), " "));
  }
  return text;
}

/// An error of the tokenizer, which knows no place, at its sample.
template <typename F>
auto at_sample(const std::string& where, const F& f) {
  try {
    return f();
  } catch (const core::Error& error) {
    throw core::Error(error.kind(), where + ": " + error.what());
  }
}

/// What people want to see of a prompt: the last thing that was asked.
std::string shown(const Sample& sample) {
  const auto& messages = sample.conversation.messages;
  const auto asked =
      std::find_if(messages.rbegin(), messages.rend(),
                   [](const ChatMessage& message) { return message.role == ChatRole::user; });
  if (asked != messages.rend()) return asked->text;
  std::string text;
  for (const Segment& segment : sample.segments) {
    if (!segment.trained) text += segment.text;
  }
  return text;
}

/// Whether it is two questions at least, each with an answer.
bool has_turns(const Conversation& conversation) {
  int answers = 0;
  bool is_asked = false;
  for (const ChatMessage& message : conversation.messages) {
    if (is_asked && message.role == ChatRole::assistant) ++answers;
    if (message.role == ChatRole::user) is_asked = true;
    if (message.role == ChatRole::assistant) is_asked = false;
  }
  return answers > 1;
}

}  // namespace

TextSource::TextSource(std::unique_ptr<SampleReader> reader, const Format& format,
                       const Columns& columns, const TokenizePolicy& policy,
                       const tokenizer::Tokenizer& tokenizer)
    : reader_(std::move(reader)),
      layout_(format.layout),
      template_kwargs_(columns.template_kwargs),
      policy_(policy),
      tokenizer_(tokenizer),
      settings_(describe(format, columns, policy, tokenizer)) {
  if (!format.has_tokens) tokenizer_.eos_id();  // throws if there is none
  stop_ids_ = policy_ends(policy_);
  const auto end = tokenizer_.find_eos_id();
  if (end && std::ranges::find(stop_ids_, *end) == stop_ids_.end()) stop_ids_.push_back(*end);
}

Sample TextSource::read(std::int64_t i) const {
  Sample sample = reader_->sample(i);
  add_template_kwargs(template_kwargs_, sample.conversation);
  if (sample.rejected) add_template_kwargs(template_kwargs_, sample.rejected->conversation);
  if (policy_.labels.exists() || is_rendered(sample)) settle(sample);
  return sample;
}

void TextSource::settle(Sample& sample) const {
  if (!policy_.chat) return;
  const auto settle_one = [&](Conversation& conversation) {
    if (policy_.labels.exists())
      return settle_whole(*policy_.chat, sample.where, "its label is about the whole conversation",
                          "Correct it, or name the role in data.roles.", conversation);
    auto left_out = settle_roles(*policy_.chat, policy_.train_on, sample.where, conversation);
    if (!left_out) return;
    sample.oddities |= bit(Oddity::unknown_role);
    if (sample.left_out.empty()) sample.left_out = *std::move(left_out);
  };
  settle_one(sample.conversation);
  if (sample.rejected) settle_one(sample.rejected->conversation);
}

std::string TextSource::role_problem(std::int64_t i) const {
  const Sample sample = read(i);
  if (!sample.left_out.empty())
    return sample.left_out +
           (policy_.train_on == TrainOn::all ? "" : ", so no answer behind it is trained");
  const auto& messages = sample.conversation.messages;
  const auto is_of = [](ChatRole role) {
    return [role](const ChatMessage& message) { return message.role == role; };
  };
  const auto other = std::ranges::find_if(messages, is_of(ChatRole::other));
  const auto answer = std::ranges::find_if(messages, is_of(ChatRole::assistant));
  if (answer != messages.end() && answer->trained && is_rendered(sample) && !is_empty(*answer)) {
    const Rendered written =
        render(*policy_.chat, sample.conversation, policy_.train_on, sample.where);
    if (std::ranges::none_of(written.segments, &Segment::trained))
      return fmt::format("the chat template writes nothing of message {} (assistant) as an answer",
                         answer - messages.begin() + 1);
  }
  if (other == messages.end() || answer != messages.end()) return {};
  return fmt::format("message {} has the role \"{}\", and none has that of the assistant",
                     other - messages.begin() + 1,
                     core::one_line(core::first_bytes(shown_role(*other), 100)));
}

bool TextSource::is_rendered(const Sample& sample) const {
  return policy_.chat && !sample.conversation.messages.empty() &&
         (policy_.rewrites || sample.segments.empty());
}

std::vector<Turn> TextSource::turns(std::int64_t i) const {
  const Sample sample = read(i);
  if (policy_.labels.exists() || !sample.tokens.ids.empty() || !is_rendered(sample)) return {};
  const auto written =
      render_turns(*policy_.chat, sample.conversation, policy_.train_on, sample.where);
  const Rendered rendered =
      render(*policy_.chat, sample.conversation, policy_.train_on, sample.where);
  std::vector<std::size_t> begins = {0};
  for (const WrittenTurn& turn : written)
    begins.push_back(turn.end);
  begins.pop_back();
  const auto places = at_sample(sample.where, [&] {
    return tokens_before(rendered.segments, begins, tokenizer_, policy_.special_names);
  });
  std::vector<Turn> turns;
  for (std::size_t t = 0; t < written.size(); ++t)
    turns.push_back({written[t].role, static_cast<std::int64_t>(places[t])});
  return turns;
}

std::vector<std::int32_t> TextSource::model_ends() const {
  // Exports name the end token of a template of this program among those of the model.
  const bool is_exported = policy_.chat && policy_.chat->file.empty();
  return is_exported ? stop_ids_ : policy_.ends;
}

TextSource::Written TextSource::write(const Sample& sample) const {
  const bool is_chat = !sample.conversation.messages.empty();
  if (is_rendered(sample)) {
    Rendered rendered = render(*policy_.chat, sample.conversation, policy_.train_on, sample.where);
    return {std::move(rendered.segments), false, rendered.oddities | sample.oddities};
  }
  if (sample.segments.empty()) {
    core::fail(core::ErrorKind::input,
               {sample.where, is_chat ? "a conversation needs a chat template" : "is empty",
                is_chat ? "data.template names none" : "there is nothing to learn from it",
                is_chat ? "Set data.template." : "Remove this sample."});
  }
  Written written{sample.segments, true, sample.oddities};
  for (Segment& segment : written.segments) {
    const bool is_empty = layout_ == Layout::separate && segment.trained &&
                          segment.text.find_first_not_of(" \t\r\n") == std::string::npos;
    if (is_empty) written.oddities |= bit(Oddity::empty_answer);
    if (policy_.train_on == TrainOn::all) segment.trained = true;
  }
  return written;
}

/// Tokens that came as tokens: whether they can be, and the end of a document that lacks it.
Tokens TextSource::checked_tokens(const Sample& sample) const {
  for (const std::int32_t id : sample.tokens.ids) {
    if (id < tokenizer_.vocab_size()) continue;
    core::fail(core::ErrorKind::input,
               {sample.where, fmt::format("token id {} is not in the vocabulary", id),
                fmt::format("{} has ids 0 to {}",
                            tokenizer_.has_ids_only() ? "config.json" : "the model's tokenizer",
                            tokenizer_.vocab_size() - 1),
                "Make these data with the tokenizer of this model."});
  }
  Tokens tokens = sample.tokens;
  if (layout_ == Layout::separate) return tokens;
  const std::int32_t end = tokenizer_.eos_id();
  if (tokens.ids.back() != end) {
    const bool any_trained = std::any_of(tokens.labels.begin(), tokens.labels.end(),
                                         [](std::int32_t label) { return label != not_trained; });
    tokens.ids.push_back(end);
    tokens.labels.push_back(any_trained ? end : not_trained);
  }
  return tokens;
}

Tokens TextSource::with_label(const std::vector<Segment>& segments,
                              const Conversation& conversation, std::int32_t label,
                              const std::string& where) const {
  Tokens tokens;
  if (!conversation.messages.empty()) {
    if (!policy_.chat)
      core::fail(core::ErrorKind::input, {where, "a conversation needs a chat template",
                                          "the model has none", "Set data.template."});
    const Rendered rendered = render(*policy_.chat, conversation, TrainOn::all, where);
    tokens = at_sample(where, [&] {
      return tokenise(rendered.segments, tokenizer_, policy_.special_names, false);
    });
  } else {
    // As the tokenizer begins and ends a text.
    tokens.ids = at_sample(where, [&] {
      std::vector<tokenizer::TextPart> parts;
      for (const Segment& segment : segments)
        parts.push_back({segment.text, policy_.special_names == SpecialNameMeaning::text});
      return encode_document(parts, tokenizer_);
    });
  }
  if (tokens.ids.empty())
    core::fail(core::ErrorKind::input, {where, "has a text without tokens",
                                        "its label has no place", "Remove this sample."});
  tokens.labels.assign(tokens.ids.size(), not_trained);
  // Of the label no token is read.
  tokens.ids.push_back(label);
  tokens.labels.push_back(label);
  return tokens;
}

SourceSample TextSource::labelled(const Sample& sample) const {
  SourceSample made;
  made.oddities = sample.oddities;
  for (const Segment& segment : sample.segments)
    if (policy_.special_names == SpecialNameMeaning::text && tokenizer_.names_special(segment.text))
      made.oddities |= bit(Oddity::special_name);
  if (!sample.rejected) {
    made.tokens = with_label(sample.segments, sample.conversation,
                             policy_.labels.code(sample.label, sample.where), sample.where);
    return made;
  }
  constexpr std::int32_t preferred = 1, other = 0;
  made.tokens = with_label(sample.segments, sample.conversation, preferred, sample.where);
  const Tokens rejected =
      with_label(sample.rejected->segments, sample.rejected->conversation, other, sample.where);
  made.tokens.ids.insert(made.tokens.ids.end(), rejected.ids.begin(), rejected.ids.end());
  made.tokens.labels.insert(made.tokens.labels.end(), rejected.labels.begin(),
                            rejected.labels.end());
  return made;
}

SourceSample TextSource::sample(std::int64_t i) const {
  const Sample sample = read(i);
  if (policy_.labels.exists()) return labelled(sample);
  SourceSample made;
  made.oddities = sample.oddities;
  std::vector<TrainedRun> runs;
  if (!sample.tokens.ids.empty()) {
    made.tokens = checked_tokens(sample);
    runs = runs_of(made.tokens);
  } else {
    const Written written = write(sample);
    made.oddities |= written.oddities;
    made.has_turns = is_rendered(sample) && has_turns(sample.conversation);
    TokenisedText text = at_sample(sample.where, [&] {
      const auto names_special = [&](const Segment& segment) {
        return !segment.markup && tokenizer_.names_special(segment.text);
      };
      if (policy_.special_names == SpecialNameMeaning::text &&
          std::any_of(written.segments.begin(), written.segments.end(), names_special)) {
        made.oddities |= bit(Oddity::special_name);
      }
      return tokenise_text(written.segments, tokenizer_, policy_.special_names, written.ends);
    });
    if (text.held_ends) made.oddities |= bit(Oddity::held_ends);
    made.tokens = std::move(text.tokens);
    runs = std::move(text.runs);
  }
  if (layout_ != Layout::separate || policy_.train_on == TrainOn::all) return made;
  made.answers = answers_in(made.tokens, runs, stop_ids_, tokenizer_);
  const auto is_open = [](const TrainedAnswer& answer) {
    return answer.ends_at == answer.ends_behind;
  };
  if (!stop_ids_.empty() && std::ranges::any_of(made.answers, is_open))
    made.oddities |= bit(Oddity::no_end_of_turn);
  return made;
}

std::string TextSource::text(std::span<const std::int32_t> ids) const {
  return tokenizer_.decode(ids, false);
}

std::string TextSource::trained_text(std::span<const std::int32_t> ids) const {
  if (!policy_.labels.exists() || ids.size() != 1) return text(ids);
  return policy_.labels.text(ids.front());
}

std::optional<Question> TextSource::question(std::int64_t i) const {
  const Sample sample = read(i);
  const Tokens tokens = this->sample(i).tokens;
  std::size_t end = tokens.ids.size();
  while (end > 0 && tokens.labels[end - 1] == not_trained)
    --end;
  std::size_t begin = end;
  while (begin > 0 && tokens.labels[begin - 1] != not_trained)
    --begin;
  if (begin == end || begin == 0) return std::nullopt;
  const auto at = [&](std::size_t l) {
    return tokens.ids.begin() + static_cast<std::ptrdiff_t>(l);
  };
  Question question{{at(0), at(begin)}, shown(sample), {}};
  const std::span<const std::int32_t> answer(at(begin), at(end));
  question.expected = tokenizer_.decode(without_end(answer, stop_ids_, tokenizer_));
  return question;
}

}  // namespace finetune::data
