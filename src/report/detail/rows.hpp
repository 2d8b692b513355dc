#pragma once
// SPDX-License-Identifier: Apache-2.0
// Rows of metrics.jsonl and starts.jsonl as they are found: any field may be missing, or be
// something else.

#include <optional>
#include <string>
#include <string_view>

#include "report/run_history.hpp"

namespace finetune::report::detail {

/// Null for what is no JSON object.
core::Json parsed_row(std::string_view line);

std::optional<double> number_of(const core::Json& object, const char* name);
std::string text_of(const core::Json& object, const char* name);
std::optional<std::int64_t> whole_number(const std::string& text);
/// Of a row; nothing where it has none.
std::optional<std::int64_t> step_of(const core::Json& row);

/// "2026-11-25 10:51:56", local time; "" for 0.
std::string time_text(double unix_time_s);

StepRow step_row(std::int64_t step, const core::Json& row);
std::optional<TimesRow> times_row(std::int64_t step, const core::Json& row);
std::optional<DevicesRow> devices_row(std::int64_t step, const core::Json& row);
std::optional<LinksRow> links_row(std::int64_t step, const core::Json& row);
std::optional<MemoryRow> memory_row(std::int64_t step, const core::Json& row);
ValidationRow validation_row(std::int64_t step, const core::Json& row);
EvaluationRow evaluation_row(std::int64_t step, const core::Json& evaluation);
CheckpointRow checkpoint_row(std::int64_t step, const core::Json& saved);
AnswersRow answers_row(std::int64_t step, const core::Json& answers);
std::optional<Start> start_row(const core::Json& row);
std::optional<Start::End> end_row(const core::Json& row);

}  // namespace finetune::report::detail
