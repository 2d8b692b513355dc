#pragma once
// SPDX-License-Identifier: Apache-2.0
// Samples as token ids, whatever format, template and tokenizer they come from: all that loading,
// caching and reporting know of them.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/records/records.hpp"
#include "data/tokens/detail/tokens.hpp"

namespace finetune::data {

/// What may be odd about a sample that can be used all the same. Bits of `SourceSample::oddities`;
/// the data report counts each, and the deck may refuse it.
enum class Oddity : std::uint32_t {
  empty_answer = 1,    ///< an answer without text
  no_end_of_turn = 2,  ///< a trained answer that no end token follows
  special_name = 4,    ///< its text holds the name of a special token, which stays ordinary text
  unknown_role = 8,    ///< a message of a role that the template does not write: see settle_roles
  held_ends = 16,    ///< it begins or ends with the tokenizer's own token, which stands there once
  not_written = 64,  ///< what a trained answer says that the template leaves out
  left_out_part = 256,  ///< a part of its table's columns has no form in JSON and was left out
};

/// Where an answer that is trained stands among a sample's tokens: it begins at `begin`, and ends
/// with tokens [ends_at, ends_behind), which are none where no end token follows it.
struct TrainedAnswer {
  std::int64_t begin = 0;
  std::int64_t ends_at = 0;
  std::int64_t ends_behind = 0;
};

struct SourceSample {
  Tokens tokens;                            ///< not yet cut to max_seq_length
  std::uint32_t oddities = 0;               ///< bits of Oddity
  std::vector<TrainedAnswer> answers = {};  ///< in order; none where all of a text is trained
  bool has_turns = false;  ///< a conversation of two questions at least, each with its answer
};

/// A turn of a conversation, from token `begin` of the sample on.
struct Turn {
  std::string role;  ///< name_of(ChatRole); "template": what the template writes in no turn
  std::int64_t begin = 0;
};

/// The samples of one data set in file order. Thread-safe: reading changes nothing.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual std::int64_t size() const = 0;

  /// 0 <= i < size(). Throws: ErrorKind::input naming file and line if the sample cannot be used.
  virtual SourceSample sample(std::int64_t i) const = 0;

  /// "file:line" or "file:line: entry 12": begins messages about sample i.
  virtual std::string where(std::int64_t i) const = 0;

  /// Text of token ids, special tokens shown.
  virtual std::string text(std::span<const std::int32_t> ids) const = 0;

  /// Text of trained ones, which may be labels.
  virtual std::string trained_text(std::span<const std::int32_t> ids) const { return text(ids); }

  /// The message of sample i whose role keeps answers from being trained, and why; nothing if none
  /// does. To be shown: it costs as much as the sample.
  virtual std::string role_problem([[maybe_unused]] std::int64_t i) const { return {}; }

  /// The turns of sample i, in order; none if it is not written by a chat template. To be shown:
  /// it costs more than the sample.
  virtual std::vector<Turn> turns([[maybe_unused]] std::int64_t i) const { return {}; }

  /// The template that writes conversations and where it comes from, in words; empty: none does.
  virtual std::string written_by() const { return {}; }

  /// Tokens at which the model stops, whatever template writes its answers.
  virtual std::vector<std::int32_t> model_ends() const { return {}; }

  /// The files that were opened, in order: their bytes, the record_ending of their names and
  /// `settings` decide all tokens.
  virtual std::vector<std::filesystem::path> files() const = 0;

  /// Those of them that are files of records, whose indices ranks may share out; before anything
  /// is asked about samples.
  virtual std::vector<Records*> record_files() const { return {}; }

  /// Everything other than the files that decides the tokens: format, columns, template, tokenizer.
  virtual std::string settings() const = 0;

 protected:
  SampleSource() = default;
  SampleSource(const SampleSource&) = delete;
  SampleSource& operator=(const SampleSource&) = delete;
};

}  // namespace finetune::data
