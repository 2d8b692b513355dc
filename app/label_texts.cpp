// SPDX-License-Identifier: Apache-2.0
// What a model with a head for labels, or for a number, makes of texts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <utility>

#include "answer_file.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/python_json.hpp"
#include "data/records/records.hpp"
#include "data/text/text_source.hpp"
#include "formats/chat/message.hpp"
#include "generate.hpp"
#include "model/family.hpp"
#include "model/outputs.hpp"
#include "model/rope.hpp"
#include "model/upload.hpp"
#include "model_identity.hpp"
#include "train/run/stop.hpp"

namespace finetune::app {
namespace {

/// Tokens of a pass of a rank, unless it has only one text.
constexpr std::int64_t pass_tokens = 4096;

struct Text {
  core::Json id = {};            ///< as the line says it; null: none
  std::string fingerprint = {};  ///< of line and settings
  std::vector<std::int32_t> ids = {};
};

/// Six digits: a logit in fp32 has no more.
double rounded(double value) {
  return std::round(value * 1e6) / 1e6;
}

class Labeller {
 public:
  explicit Labeller(const Generator& of)
      : of_(of),
        loaded_(of.load(of.arguments.adapters.empty() ? "" : of.arguments.adapters.front())),
        names_(comm::agree(of.world, [&] {
          return model::label_names(core::parse_python_json(model::read_config(of.arguments.path),
                                                            of.arguments.path + "/config.json"));
        })) {}

  /// As in training: a text as the tokenizer begins and ends it, a conversation by its template.
  std::vector<std::int32_t> ids_of(const std::string& text, const std::string& where) const {
    const tokenizer::TextPart part{text, true};
    return cut(of_.tokenizer.encode(std::span(&part, 1), tokenizer::Encode::document), where);
  }
  std::vector<std::int32_t> ids_of(const data::ChatTemplate& chat, data::Conversation conversation,
                                   const std::string& where) const {
    settle_asked(chat, where, "its label is about the whole conversation", conversation);
    const auto rendered = data::render(chat, conversation, data::TrainOn::all, where);
    return cut(
        data::tokenise(rendered.segments, of_.tokenizer, data::SpecialNameMeaning::text, false).ids,
        where);
  }

  /// Of each text that is this rank's. Collective on fsdp.
  std::vector<data::OrderedJson> say(const std::vector<const Text*>& texts) const {
    const train::Engine engine = loaded_->engine();
    std::vector<std::vector<const Text*>> passes;
    std::int64_t used = 0;
    for (const Text* text : texts) {
      used += std::ssize(text->ids);
      if (passes.empty() || used > pass_tokens) {
        passes.emplace_back();
        used = std::ssize(text->ids);
      }
      passes.back().push_back(text);
    }
    const std::int64_t count =
        engine.shards.fsdp().all_reduce(std::ssize(passes), comm::Reduce::max);
    std::vector<data::OrderedJson> said;
    for (std::int64_t i = 0; i < count; ++i) {
      std::optional<train::NewTokens> tokens;
      if (i < std::ssize(passes)) tokens = tokens_of(passes[static_cast<std::size_t>(i)]);
      const at::Tensor logits = train::last_logits(engine, tokens);
      if (!tokens) continue;
      const at::Tensor on_host = logits.cpu().contiguous();
      for (std::int64_t row = 0; row < on_host.size(0); ++row)
        said.push_back(said_of({on_host.const_data_ptr<float>() + row * on_host.size(1),
                                static_cast<std::size_t>(on_host.size(1))}));
    }
    engine.shards.release_all();
    return said;
  }

 private:
  std::vector<std::int32_t> cut(std::vector<std::int32_t> ids, const std::string& where) const {
    if (ids.empty())
      core::fail(core::ErrorKind::input, {where, "has a text without tokens",
                                          "there is nothing to say of it", "Remove it."});
    ids.resize(
        std::min(ids.size(), static_cast<std::size_t>(loaded_->architecture().max_positions)));
    return ids;
  }

  train::NewTokens tokens_of(const std::vector<const Text*>& texts) const {
    std::vector<std::int64_t> ids;
    std::vector<model::Stretch> stretches;
    for (const Text* text : texts) {
      stretches.push_back({std::ssize(ids), std::ssize(text->ids)});
      ids.insert(ids.end(), text->ids.begin(), text->ids.end());
    }
    const std::int64_t length = std::ssize(ids);
    return {
        model::upload(at::tensor(at::ArrayRef<std::int64_t>(ids), at::kLong), of_.options.device),
        model::make_sequence(loaded_->architecture(), 1, length, std::move(stretches),
                             of_.options.device)};
  }

  /// {"label", "probabilities"}; of several that may be right {"labels", ...}; {"value"}.
  data::OrderedJson said_of(std::span<const float> logits) const {
    data::OrderedJson said;
    const model::HeadKind kind = loaded_->architecture().outputs.kind;
    if (kind == model::HeadKind::value || kind == model::HeadKind::reward) {
      said["value"] = rounded(logits.front());
      return said;
    }
    const double largest = *std::ranges::max_element(logits);
    const double sum =
        std::accumulate(logits.begin(), logits.end(), 0.0,
                        [&](double all, float logit) { return all + std::exp(logit - largest); });
    const bool is_one = kind == model::HeadKind::one_label;
    data::OrderedJson probabilities = data::OrderedJson::object(),
                      labels = data::OrderedJson::array();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = is_one ? std::exp(logits[i] - largest) / sum
                              : 1 / (1 + std::exp(-static_cast<double>(logits[i])));
      probabilities[names_.at(i)] = rounded(p);
      if (p > 0.5) labels.push_back(names_.at(i));
    }
    const auto best = std::ranges::max_element(logits) - logits.begin();
    if (is_one)
      said["label"] = names_.at(static_cast<std::size_t>(best));
    else
      said["labels"] = std::move(labels);
    said["probabilities"] = std::move(probabilities);
    return said;
  }

  const Generator& of_;
  std::unique_ptr<train::LoadedModel> loaded_;
  std::vector<std::string> names_;
};

/// `identity`: of the model's and the adapter's files.
std::vector<Text> read_texts(const Generator& of, const Labeller& labeller,
                             const std::string& identity) {
  const auto records = data::open_records(of.arguments.file);
  const std::string how =
      fmt::format("{} {} {} {} {}{}", of.arguments.path, fmt::join(of.arguments.adapters, " "),
                  core::name(of.options.numbers.compute), of.arguments.chat_template, identity,
                  of.arguments.template_kwargs);
  std::vector<Text> texts;
  std::optional<data::ChatTemplate> chat;
  for (std::int64_t i = 0; i < records->size(); ++i) {
    const data::OrderedJson given = records->object(i);
    const core::Json record = core::plain_json(given);
    const std::string where = records->where(i);
    Text text{.id = record.value("id", core::Json()),
              .fingerprint = core::fingerprint(record.dump() + how).substr(0, 16),
              .ids = {}};
    if (record.contains("messages")) {
      if (!chat) chat = chat_template_of(of);
      text.ids =
          labeller.ids_of(*chat, formats::chat::conversation_of(*records, given, where), where);
    } else if (record.contains("text")) {
      text.ids = labeller.ids_of(text_in(record, "text", where), where);
    } else {
      core::fail(core::ErrorKind::input, {where, "there is neither \"text\" nor \"messages\"",
                                          "one of them is what gets a label", "Add one."});
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

/// What this rank says of its texts among [first, last), as numbers with lines.
std::string own_lines(const comm::Communicator& ranks, const Labeller& labeller,
                      const std::vector<Text>& texts, std::int64_t first, std::int64_t last) {
  std::vector<const Text*> own;
  std::vector<std::int64_t> places;
  for (std::int64_t i = first + ranks.rank(); i < last; i += ranks.size()) {
    own.push_back(&texts[static_cast<std::size_t>(i)]);
    places.push_back(i);
  }
  const auto said = labeller.say(own);
  core::Json lines = core::Json::array();
  for (std::size_t i = 0; i < own.size(); ++i) {
    data::OrderedJson line;
    if (!own[i]->id.is_null()) line["id"] = data::OrderedJson::parse(own[i]->id.dump());
    line.update(said[i]);
    line["prompt_hash"] = own[i]->fingerprint;
    lines.push_back({places[i], line.dump()});
  }
  return lines.dump();
}

int label_file(const Generator& of, const Labeller& labeller) {
  train::watch_signals();
  std::vector<std::filesystem::path> folders(of.arguments.adapters.begin(),
                                             of.arguments.adapters.end());
  folders.emplace_back(of.arguments.path);
  const std::string identity = identity_of_models(of.world, folders);
  const auto texts = comm::agree(of.world, [&] { return read_texts(of, labeller, identity); });
  AnswerFile answers(of.world, of.arguments.output);
  std::vector<std::string> fingerprints;
  for (const Text& text : texts)
    fingerprints.push_back(text.fingerprint);
  const std::int64_t count = std::ssize(texts);
  const std::int64_t round = 2 * of.arguments.batch * of.world.size();
  for (std::int64_t first = answers.open(fingerprints); first < count; first += round) {
    if (of.world.all_reduce(std::int64_t{train::stop_is_asked()}, comm::Reduce::max) > 0) {
      if (of.world.is_root())
        log::info(fmt::format("stopped by a signal after {} of {} texts: the same command goes on",
                              first, count));
      return core::exit_resubmit;
    }
    answers.add(in_order(of.world.all_gather_text(
        own_lines(of.world, labeller, texts, first, std::min(first + round, count)))));
  }
  if (of.world.is_root())
    log::info(fmt::format("{} texts have their labels in {}", count, of.arguments.output));
  return core::exit_done;
}

int label_one(const Generator& of, const Labeller& labeller) {
  const Text text = comm::agree(of.world, [&] {
    constexpr const char* where = "finetune generate";
    if (!of.arguments.is_chat) return Text{.ids = labeller.ids_of(of.arguments.second, where)};
    const data::Conversation asked{{{data::ChatRole::user, of.arguments.second, {}, {}}}, {}};
    return Text{.ids = labeller.ids_of(chat_template_of(of), asked, where)};
  });
  // Every rank of a shared model takes part.
  const data::OrderedJson said = labeller.say({&text}).front();
  if (of.world.is_root()) std::puts(said.dump().c_str());
  return core::exit_done;
}

}  // namespace

int label_texts(const Generator& of) {
  comm::agree_all(of.world, [&] {
    const Arguments& arguments = of.arguments;
    if (!arguments.file.empty()) return require_one_answer(arguments);
    if (arguments.second.empty())
      core::fail(core::ErrorKind::command_line,
                 {"finetune generate", "there is no text",
                  "the model says which label is right, and does not talk",
                  "Give a text, or --file with lines of {\"text\"} and -o."});
  });
  const Labeller labeller(of);
  return of.arguments.file.empty() ? label_one(of, labeller) : label_file(of, labeller);
}

}  // namespace finetune::app
