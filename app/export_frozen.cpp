// SPDX-License-Identifier: Apache-2.0
#include "export_frozen.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/adapter_base.hpp"
#include "base/base_hash.hpp"
#include "base/fp8_files.hpp"
#include "base/initial_weights.hpp"
#include "core/error.hpp"
#include "model/fp8.hpp"
#include "train/input/described_model.hpp"
#include "train/run/stored_parts.hpp"

namespace finetune::app {

void require_base(const ExportJob& job, const weights::ModelFiles& files,
                  const model::ParameterTable& table) {
  const auto& base = job.found.state.base;
  if (!base) return;
  const auto dtype = core::parse_dtype(base->dtype);
  if (!dtype || base::frozen_hash(files, table, *dtype) == base->hash) return;
  core::fail(core::ErrorKind::input,
             {job.model_folder.string(),
              fmt::format("is not the model that {} was trained on", job.found.folder.string()),
              "its weights have another hash", "Name the right one by --model."});
}

FrozenTensors::FrozenTensors(const ExportJob& job,
                             const std::optional<weights::ModelFiles>& files) {
  const auto& base = job.found.state.base;
  if (!base) return;
  if (!files)
    core::fail(core::ErrorKind::input,
               {job.model_folder.string(), "has no weights",
                fmt::format("{} holds those that were trained, and the others are there",
                            job.found.folder.string()),
                "Name the model that the run began with by --model."});
  files_ = &*files;
  train::DescribedModel model =
      train::describe_model({}, job.model_folder, job.registry,
                            train::outputs_of(job.found.state.config.value_or(core::Json())));
  train::unpack_trained(model.quantization, "", job.model_folder, model.parameters);
  for (model::Parameter& row : model.parameters.rows) {
    row.trainable = job.found.manifest.find(train::kind_master, row.name) >= 0;
    if (row.trainable) continue;
    const bool is_packed = base::is_fp8_in(*files, row) || !row.of_files.is_dense();
    const core::DType dtype =
        is_packed ? model.architecture.file_dtype : files->entry(row.name).dtype;
    specs_.push_back({row.name, dtype, row.shape});
  }
  if (const auto recipe = base::kept_in_fp8(*base)) model::keep_in_fp8(*recipe, model.parameters);
  table_ = std::move(model.parameters);
  require_base(job, *files, table_);
}

int FrozenTensors::row_of(std::string_view name) const {
  const auto found = std::ranges::find_if(
      table_.rows, [&](const model::Parameter& row) { return !row.trainable && row.name == name; });
  return found == table_.rows.end() ? -1 : static_cast<int>(found - table_.rows.begin());
}

void FrozenTensors::read(std::string_view name, std::int64_t first, std::span<float> piece) const {
  base::files_source(*files_, table_).values(row_of(name), first, piece);
}

}  // namespace finetune::app
