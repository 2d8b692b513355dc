#pragma once
// SPDX-License-Identifier: Apache-2.0
// A folder that PEFT wrote: adapter_config.json and adapter_model.safetensors.

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "model/parameter_table.hpp"
#include "weights/model_files.hpp"
#include "weights/peft_config.hpp"

namespace finetune::weights {

inline constexpr const char* peft_file_name = "adapter_model.safetensors";

/// Opening reads options and header; tensors are read by byte range. Movable; one thread at a time.
class PeftAdapter {
 public:
  /// Only the root touches the file system; the others get the texts from it.
  /// Collective on `world`. Throws, on every rank: ErrorKind::input for what is missing, broken,
  /// none of `kinds`, or has tensors without elements; see read_peft_config.
  static PeftAdapter open(const comm::Communicator& world, const std::filesystem::path& folder,
                          std::span<const model::Adapter> kinds);
  /// The same for this process alone.
  static PeftAdapter open(const std::filesystem::path& folder,
                          std::span<const model::Adapter> kinds) {
    return open({}, folder, kinds);
  }

  /// Name and path are empty. target_modules are whole names where only the tensors give them.
  const model::AdapterSettings& settings() const { return config_.settings; }
  const model::Adapter& kind() const { return *config_.kind; }
  const std::filesystem::path& folder() const { return folder_; }

  /// Checks that the tensors are those of the rows of `table` that are trained.
  /// Throws: ErrorKind::input with all that are missing, unexpected or have another shape; and
  /// where a head that is the embedding as well would become another tensor.
  void require_fits(const model::ParameterTable& table) const;

  /// Ids of the tokens whose rows alone the adapter has of `row`; empty: it has all or none.
  const std::vector<std::int64_t>& token_rows(const model::Parameter& row) const;

  /// Elements [first, first + values.size()) of a trained row, as fp32. What the adapter does not
  /// have of it (token_rows) is left as it is in `values`.
  /// Throws: ErrorKind::input, also for numbers that are not finite; ErrorKind::io.
  void read(const model::Parameter& row, std::int64_t first, std::span<float> values) const;

 private:
  PeftAdapter(std::filesystem::path folder, PeftConfig config, ModelFiles files);
  void require_ties(const model::ParameterTable& table) const;
  void require_tokens(const model::ParameterTable& table) const;
  std::string name_in_file(const model::Parameter& row) const;
  std::vector<std::int64_t> shape_in_file(const model::Parameter& row) const;
  void read_all(const model::Parameter& row, std::int64_t first, std::span<float> values) const;

  std::filesystem::path folder_;
  PeftConfig config_;
  ModelFiles files_;
  std::map<std::string, std::string> names_;  ///< as PEFT spells them today -> as in the file
};

/// What PEFT calls a trained row: as transformers calls it, a model's behind "base_model.model.".
std::string peft_name(const model::Parameter& row);

/// What it calls the rows of some tokens of a model's tensor.
std::string token_rows_name(const std::string& tensor);

}  // namespace finetune::weights
