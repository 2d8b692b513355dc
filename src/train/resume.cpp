// SPDX-License-Identifier: Apache-2.0
#include "train/resume.hpp"

#include <fmt/format.h>

#include "core/build_info.hpp"
#include "core/error.hpp"

namespace finetune::train {

core::Json describe_run(const Input& input, const RunFacts& facts) {
  core::Json fixed = core::Json::object();
  for (const auto& [key, value] : input.fixed_values)
    fixed[key] = value;
  std::error_code error;
  const auto model_folder = std::filesystem::absolute(input.model_folder, error);
  return {{"step", facts.step},
          {"metrics_bytes", facts.metrics_bytes},
          {"data_fingerprint", facts.data_fingerprint},
          {"source_dtypes", facts.source_dtypes},
          {"loss_scale", facts.loss_scale},
          {"threads", facts.threads},
          {"model_folder", (error ? input.model_folder : model_folder).string()},
          {"fixed", fixed},
          {"deck", input.resolved_deck},
          {"build", core::build_stamp()}};
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
  if (found.state.at("data_fingerprint").get<std::string>() != data_fingerprint) {
    core::fail(core::ErrorKind::deck,
               {input.data.path,
                fmt::format("is not what the run in {} was trained on", found.folder.string()),
                "the data position of the checkpoint means nothing in other data",
                "Restore the data, or set another train.output to begin a new run."});
  }
}

}  // namespace finetune::train
