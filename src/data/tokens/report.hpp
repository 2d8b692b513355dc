#pragma once
// SPDX-License-Identifier: Apache-2.0
// The data report: what was read, what became of it, and what is odd about it.

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/json.hpp"

namespace finetune::data {

/// Samples that have something in common. "Documents" in Layout::continuous are what is called
/// samples here.
enum class SampleKind {
  overlong,             ///< longer than max_seq_length
  truncated,            ///< of those, cut and kept
  masked,               ///< without a trained token, and dropped
  empty_answer,         ///< an answer without text
  missing_end_of_turn,  ///< a trained answer that no end token follows
  special_name,         ///< the name of a special token in the text, which stays text
  unknown_role,         ///< a message of a role the template does not know was left out
  held_ends,            ///< the tokenizer's begin or end token in the data, which stands there once
  left_out_part,        ///< from a table of whose columns parts (times, maps, bytes) were left out
  not_written,          ///< what a trained answer says that the template leaves out
  duplicate,            ///< the same tokens and labels as an earlier sample of the data set
};
inline constexpr std::array<const char*, 11> kind_names = {
    "overlong",      "truncated",     "masked",    "empty_answers",  "missing_end_of_turn",
    "special_names", "unknown_roles", "held_ends", "left_out_parts", "not_written",
    "duplicates"};
inline constexpr std::size_t num_kinds = kind_names.size();

struct Count {
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();

  std::int64_t number = 0;
  std::int64_t first = none;  ///< the lowest index of such a sample

  void add(std::int64_t i) {
    ++number;
    if (i < first) first = i;
  }
};

/// How often a token ends an answer that is trained.
struct EndCount {
  std::string name;         ///< the token as text
  std::int64_t number = 0;  ///< answers; 0: of a token at which the model stops, and no answer ends

  bool operator==(const EndCount&) const = default;
};

/// Printed before training: nothing is cut or dropped silently. Does not depend on the number of
/// ranks.
struct [[nodiscard]] DataReport {
  /// Samples of 2^k to 2^(k+1) - 1 tokens, as read; those without a token are among the first.
  static constexpr std::size_t num_lengths = 40;

  std::int64_t num_read = 0;            ///< samples in the files
  std::int64_t num_samples = 0;         ///< in the dataset; blocks of Layout::continuous
  std::int64_t num_tokens = 0;          ///< in the dataset
  std::int64_t num_trained_tokens = 0;  ///< targets in the dataset
  std::int64_t num_dropped = 0;         ///< overlong or masked
  std::int64_t tokens_lost = 0;         ///< of the samples that were cut
  std::int64_t longest = 0;             ///< tokens of the longest sample as read
  std::int64_t eos_trained = 0;    ///< samples kept whole whose answers end in a trained token that
                                   ///< ends them
  std::int64_t num_answers = 0;    ///< trained, in the dataset; 0 where all of a text is trained
  std::int64_t num_open = 0;       ///< of those: no end token follows, or it was cut off
  std::int64_t num_unstopped = 0;  ///< samples whose last answer, if it is whole, ends with no
                                   ///< token at which the model stops
  std::vector<EndCount> ends;      ///< the most frequent first
  std::array<Count, num_kinds> counts;
  std::array<std::int64_t, num_lengths> lengths = {};
  /// Index of the sample that is shown: the first that is kept whole and has several turns, else
  /// the first that is kept.
  std::int64_t example = -1;
  std::string example_text;           ///< see show, show_turns
  bool example_has_turns = false;     ///< it is shown by turns
  std::int64_t example_file = -1;     ///< its file, of SampleSource::files(); -1: not known
  std::string example_place;          ///< where it is in that: ":12"
  std::string example_where = {};     ///< both of them; not kept in the cache, as files move
  std::string example_template = {};  ///< SampleSource::written_by(); likewise

  Count& of(SampleKind kind) { return counts[static_cast<std::size_t>(kind)]; }
  const Count& of(SampleKind kind) const { return counts[static_cast<std::size_t>(kind)]; }
  double trained_share() const {
    return num_tokens == 0
               ? 0
               : static_cast<double>(num_trained_tokens) / static_cast<double>(num_tokens);
  }
};

/// The sample that is shown, with the line that says what it is, each line behind `indent`. Empty
/// if there is none.
std::string example_of(const DataReport& report, const std::string& indent);

/// Everything, for the token cache. A kind that is not there was not known when the cache was
/// written, and counts none. Throws: nlohmann's exceptions for what `to_json` did not make.
core::Json to_json(const DataReport& report);
DataReport report_from_json(const core::Json& json);

/// One line of metrics.jsonl: {"data": {...}}, with `more` among its fields.
std::string to_record(const DataReport& report, const std::string& name, const core::Json& more);

/// A few lines for people: counts, share of trained tokens, what is odd, a histogram of lengths,
/// and a sample with its trained part marked, a conversation by turns. `name` begins it: "training
/// data". `labels`: what texts with labels have, which end in no token that is trained.
std::string to_string(const DataReport& report, const std::string& name,
                      std::int64_t max_seq_length, const std::string& labels = {});

}  // namespace finetune::data
