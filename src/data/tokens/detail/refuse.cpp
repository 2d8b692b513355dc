// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/refuse.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace finetune::data {
namespace {

[[noreturn]] void fail_overlong(const SampleSource& source, const DataReport& report,
                                const DatasetOptions& options) {
  const Count& overlong = report.of(SampleKind::overlong);
  core::fail(
      core::ErrorKind::input,
      {source.where(overlong.first),
       fmt::format("the sample is longer than data.max_seq_length = {}", options.max_seq_length),
       fmt::format("{} {}, the longest has {} tokens", overlong.number,
                   overlong.number == 1 ? "sample is" : "samples are", report.longest),
       "Raise data.max_seq_length, or set data.on_overlong = \"truncate\" or \"drop\"."});
}

[[noreturn]] void fail_masked(const SampleSource& source, Layout layout, const DataReport& report,
                              const DatasetOptions& options) {
  const Count& masked = report.of(SampleKind::masked);
  const bool cut = layout == Layout::separate &&
                   std::ssize(source.sample(masked.first).tokens.ids) > options.max_seq_length;
  // An answer may be missing, empty, or of weight 0: what they share is all that is known here.
  std::string problem = layout == Layout::separate
                            ? "no token of the sample is marked for training"
                            : "the document is empty, or no token of it is marked for training";
  if (cut) {
    problem = fmt::format(
        "no token of the sample is trained, its answer lies beyond data.max_seq_length = {}",
        options.max_seq_length);
  }
  const std::string of_role = cut ? "" : source.role_problem(masked.first);
  if (!of_role.empty()) problem += ": " + of_role;
  const char* remedy =
      cut ? "Raise data.max_seq_length"
      : of_role.empty()
          ? "Correct or remove it"
          : "Correct or remove it, name roles in data.roles, choose another data.template";
  core::fail(core::ErrorKind::input,
             {source.where(masked.first), problem,
              fmt::format("{} such {} would add nothing to the loss", masked.number,
                          masked.number == 1 ? "sample" : "samples"),
              fmt::format("{}, or set data.on_masked = \"drop\".", remedy)});
}

/// A limit of the deck and what it is about.
struct Limit {
  SampleKind kind;
  double largest;
  const char* key;
  const char* what;
  const char* remedy;
};

void check(const SampleSource& source, const DataReport& report, const Limit& limit) {
  const Count& count = report.of(limit.kind);
  const double share = static_cast<double>(count.number) /
                       static_cast<double>(std::max<std::int64_t>(1, report.num_read));
  if (count.number == 0 || share <= limit.largest) return;
  const std::string of_role =
      limit.kind == SampleKind::unknown_role ? source.role_problem(count.first) : "";
  core::fail(core::ErrorKind::input,
             {source.where(count.first), of_role.empty() ? limit.what : of_role,
              fmt::format("{} of {} samples are so, a share of {:.3g}; data.{} = {} allows no more",
                          count.number, report.num_read, share, limit.key, limit.largest),
              fmt::format("{}, or raise data.{}.", limit.remedy, limit.key)});
}

}  // namespace

void fail_nothing_left(const DataReport& report, const DatasetOptions& options) {
  core::fail(core::ErrorKind::input,
             {options.name, fmt::format("none of {} samples is left", report.num_read),
              fmt::format("{} are longer than data.max_seq_length = {}, {} have no trained token",
                          report.of(SampleKind::overlong).number, options.max_seq_length,
                          report.of(SampleKind::masked).number),
              "Check data.format, data.max_seq_length and data.on_overlong."});
}

void require_usable(const SampleSource& source, Layout layout, const DataReport& report,
                    const DatasetOptions& options) {
  if (report.of(SampleKind::overlong).number > 0 && options.on_overlong == OnOverlong::error)
    fail_overlong(source, report, options);
  if (report.of(SampleKind::masked).number > 0 && options.on_masked == OnMasked::error)
    fail_masked(source, layout, report, options);
  if (report.num_dropped == report.num_read) fail_nothing_left(report, options);
}

void require_limits(const SampleSource& source, const DataReport& report,
                    const DatasetOptions& options) {
  const Limits& limits = options.limits;
  const Limit all[] = {{SampleKind::truncated, limits.truncated, "max_truncated",
                        "the sample is cut at data.max_seq_length", "Raise data.max_seq_length"},
                       {SampleKind::masked, limits.masked, "max_masked",
                        "no token of the sample is trained", "Correct or remove these samples"},
                       {SampleKind::duplicate, limits.duplicates, "max_duplicates",
                        "the sample equals an earlier one", "Remove the repeated samples"},
                       {SampleKind::empty_answer, limits.empty_answers, "max_empty_answers",
                        "an answer of the sample is empty", "Correct or remove these samples"},
                       {SampleKind::unknown_role, limits.unknown_roles, "max_unknown_roles",
                        "a message of the sample has a role that the template does not know",
                        "Rename the roles or choose another template"},
                       {SampleKind::missing_end_of_turn, limits.missing_end_of_turn,
                        "max_missing_end_of_turn", "no end token follows an answer of the sample",
                        "Choose the template that belongs to the model"},
                       {SampleKind::not_written, limits.not_written, "max_not_written",
                        "the chat template leaves text, reasoning or calls of an answer out",
                        "Choose a template that writes them, or remove them from the data"}};
  for (const Limit& limit : all)
    check(source, report, limit);
}

}  // namespace finetune::data
