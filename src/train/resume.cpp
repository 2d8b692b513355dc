// SPDX-License-Identifier: Apache-2.0
#include "train/resume.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/build_info.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace finetune::train {

core::Json describe_run(const Input& input, const RunFacts& facts) {
  core::Json fixed = core::Json::object();
  for (const auto& [key, value] : input.fixed_values)
    fixed[key] = value;
  std::error_code error;
  const auto model_folder = std::filesystem::absolute(input.model_folder, error);
  core::Json state = {{"step", facts.step},
                      {"metrics_bytes", facts.metrics_bytes},
                      {"data_fingerprint", facts.data_fingerprint},
                      {"source_dtypes", facts.source_dtypes},
                      {"loss_scale", facts.loss_scale},
                      {"threads", facts.threads},
                      {"model_folder", (error ? input.model_folder : model_folder).string()},
                      {"fixed", fixed},
                      {"deck", input.resolved_deck},
                      {"precision", input.precision.mode},
                      {"run_id", facts.run_id},
                      {"build", core::build_stamp()}};
  if (facts.validation_loss) state["validation_loss"] = *facts.validation_loss;
  return state;
}

void require_state(const checkpoint::Found& found) {
  const auto refuse = [&](const char* field) {
    core::fail(core::ErrorKind::input,
               {(found.folder / "state.json").string(),
                fmt::format("its field \"{}\" is missing or is something else", field),
                "a restart needs it", "Restore it from a copy."});
  };
  const auto require = [&](const char* field, bool (*is_fit)(const core::Json&)) {
    const auto entry = found.state.find(field);
    if (entry == found.state.end() || !is_fit(*entry)) refuse(field);
  };
  const auto is_count = [](const core::Json& value) {
    return value.is_number_unsigned() || (value.is_number_integer() && value >= 0);
  };
  const auto is_text = [](const core::Json& value) { return value.is_string(); };
  const auto holds_texts = [](const core::Json& value) {
    return value.is_object() &&
           std::ranges::all_of(value, [](const core::Json& entry) { return entry.is_string(); });
  };
  require("metrics_bytes", is_count);
  require("data_fingerprint", is_text);
  require("fixed", holds_texts);
  require("source_dtypes", holds_texts);
  require("loss_scale",
          [](const core::Json& value) { return value.is_null() || value.is_object(); });
  // Later versions added these.
  if (found.state.contains("threads")) require("threads", is_count);
  if (found.state.contains("precision")) require("precision", is_text);
  if (found.state.contains("run_id")) require("run_id", is_text);
}

void require_same_run(const Input& input, const std::string& data_fingerprint,
                      const checkpoint::Found& found) {
  std::string differences;
  int count = 0;
  const core::Json& fixed = found.state.at("fixed");
  for (const auto& [key, value] : input.fixed_values) {
    const std::string saved = fixed.value(key, value);
    if (saved == value) continue;
    differences += fmt::format("\n    {} = {}, the checkpoint has {}", key, value, saved);
    ++count;
  }
  if (!differences.empty()) {
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(),
                fmt::format("{} {} not what the run in {} has", count,
                            count == 1 ? "key is" : "keys are", found.folder.string()),
                "what it trained so far rests on them",
                "Restore them, or set another train.output to begin a new run." + differences});
  }
  const std::string precision = found.state.value("precision", input.precision.mode);
  if (precision != input.precision.mode) {
    log::warn(
        fmt::format("{} was trained with precision.mode = \"{}\", this start has \"{}\": "
                    "weights and moments are converted, and the numbers will differ",
                    found.folder.string(), precision, input.precision.mode));
  }
  if (found.state.at("data_fingerprint").get<std::string>() != data_fingerprint) {
    if (input.data.allow_changed) {
      log::warn(
          fmt::format("{} is not what the run in {} was trained on; it goes on with the "
                      "samples that the changed data have in its place (data.allow_changed)",
                      fmt::format("{}", fmt::join(input.data.paths, ", ")), found.folder.string()));
      return;
    }
    core::fail(core::ErrorKind::deck,
               {fmt::format("{}", fmt::join(input.data.paths, ", ")),
                fmt::format("is not what the run in {} was trained on", found.folder.string()),
                "the data position of the checkpoint means nothing in other data",
                "Restore the data, set data.allow_changed = true to go on with them as they are, "
                "or set another train.output to begin a new run."});
  }
}

}  // namespace finetune::train
