#pragma once
// SPDX-License-Identifier: Apache-2.0
// A SampleSource out of a format's reader, a chat template and the model's tokenizer.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "data/text/chat_template.hpp"
#include "data/text/format.hpp"
#include "data/text/source.hpp"
#include "data/text/tokenise.hpp"
#include "data/tokens/detail/options.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::data {

/// How labels of texts are numbers that travel where tokens do.
struct LabelCoder {
  /// Throws: ErrorKind::input beginning with `where`.
  std::function<std::int32_t(const OrderedJson& label, const std::string& where)> code = {};
  std::function<std::string(std::int32_t code)> text = {};
  std::int64_t num_codes = 0;  ///< they are 0 .. num_codes - 1
  std::string settings = {};   ///< everything that decides them, as text to compare

  bool exists() const { return num_codes > 0; }
};

/// How samples become tokens, in addition to what the format says.
struct TokenizePolicy {
  /// For conversations; also for samples that have a text of their own, if `rewrites`.
  std::optional<ChatTemplate> chat;
  bool rewrites =
      false;  ///< the deck names a template: it takes the place of the format's own text
  TrainOn train_on = TrainOn::answers;
  SpecialNameMeaning special_names = SpecialNameMeaning::text;
  LabelCoder labels = {};  ///< of formats with labels
  /// At which generation stops, see end_tokens; what ends the template's answers joins them.
  std::vector<std::int32_t> ends = {};
};

/// What a model is asked, and what it should answer.
struct Question {
  std::vector<std::int32_t> prompt;  ///< up to where the last answer begins
  std::string shown;                 ///< what was asked, for people
  std::string expected;              ///< the last answer
};

class TextSource final : public SampleSource {
 public:
  /// Throws: ErrorKind::input if a format of texts gets a tokenizer without an end token, or none
  /// at all.
  TextSource(std::unique_ptr<SampleReader> reader, const Format& format, const Columns& columns,
             const TokenizePolicy& policy, const tokenizer::Tokenizer& tokenizer);

  std::int64_t size() const override { return reader_->size(); }
  SourceSample sample(std::int64_t i) const override;
  std::string where(std::int64_t i) const override { return reader_->where(i); }
  std::string text(std::span<const std::int32_t> ids) const override;
  std::string trained_text(std::span<const std::int32_t> ids) const override;
  std::string role_problem(std::int64_t i) const override;
  std::vector<Turn> turns(std::int64_t i) const override;
  std::string written_by() const override { return policy_.chat ? in_words(*policy_.chat) : ""; }
  std::vector<std::int32_t> model_ends() const override;
  std::vector<std::filesystem::path> files() const override { return reader_->files(); }
  std::vector<Records*> record_files() const override { return reader_->record_files(); }
  std::string settings() const override { return settings_; }

  /// Sample i as a question; nothing if nothing in it is trained.
  std::optional<Question> question(std::int64_t i) const;

  Layout layout() const { return layout_; }

  /// Tokens that end an answer.
  std::vector<std::int32_t> stop_ids() const { return stop_ids_; }

 private:
  struct Written {
    std::vector<Segment> segments;
    bool ends = true;  ///< the tokenizer's own begin and end tokens belong around it
    std::uint32_t oddities = 0;
  };
  /// Sample i with the deck's names for the template, and its roles settled.
  Sample read(std::int64_t i) const;
  void settle(Sample& sample) const;
  Written write(const Sample& sample) const;
  /// Whether a chat template writes it.
  bool is_rendered(const Sample& sample) const;
  Tokens checked_tokens(const Sample& sample) const;
  SourceSample labelled(const Sample& sample) const;
  /// Tokens of a text, or of a conversation by its template, and its label behind them.
  Tokens with_label(const std::vector<Segment>& segments, const Conversation& conversation,
                    std::int32_t label, const std::string& where) const;

  std::unique_ptr<SampleReader> reader_;
  Layout layout_;
  OrderedJson template_kwargs_;
  TokenizePolicy policy_;
  tokenizer::Tokenizer tokenizer_;
  std::vector<std::int32_t> stop_ids_;
  std::string settings_;
};

}  // namespace finetune::data
