// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>

#include "core/text.hpp"
#include "data/load.hpp"

namespace finetune::data {
namespace {

std::string share(std::int64_t part, std::int64_t whole) {
  const double percent =
      whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
  return fmt::format("{:.1f} %", percent);
}

std::string counted(std::int64_t count, const std::string& noun) {
  return core::with_commas(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

std::string to_string(const DataReport& report, const DatasetOptions& options) {
  const std::string indent(options.name.size() + 2, ' ');
  std::string text =
      fmt::format("{}: {} read, {} to train on, {} (longest sample {}), {} of them trained ({})\n",
                  options.name, counted(report.num_read, "sample"),
                  counted(report.num_samples, "sequence"), counted(report.num_tokens, "token"),
                  core::with_commas(report.longest), core::with_commas(report.num_trained_tokens),
                  share(report.num_trained_tokens, report.num_tokens));
  text += fmt::format("{}end of text trained in {} of {} kept", indent,
                      core::with_commas(report.eos_trained),
                      counted(report.num_read - report.num_dropped, "sample"));
  if (report.num_overlong > 0) {
    text += fmt::format("\n{}{} longer than max_seq_length = {}: {} cut, {} dropped", indent,
                        counted(report.num_overlong, "sample"), options.max_seq_length,
                        core::with_commas(report.num_truncated),
                        core::with_commas(report.num_overlong - report.num_truncated));
  }
  if (report.num_masked > 0) {
    text += fmt::format("\n{}{} without a trained token dropped", indent,
                        counted(report.num_masked, "sample"));
  }
  return text;
}

}  // namespace finetune::data
