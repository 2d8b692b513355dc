#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a model family provides; one descriptor each in modules/models. Without libtorch: who
// describes models computes none.

#include <filesystem>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "model/architecture.hpp"
#include "model/detail/decoder.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

struct ModelFamily {
  std::string name;
  std::vector<std::string> model_types;  ///< values of config.json's "model_type" it understands

  /// config.json -> numbers. Throws: ErrorKind::input naming file and key.
  Architecture (*read)(const core::Json& config, const std::string& where);
  ParameterTable (*describe)(const Architecture&);
  ModelPtr (*build)(const Architecture&);
};

/// The text of a model folder's config.json.
/// Throws: ErrorKind::input if the folder or the file is missing.
std::string read_config(const std::filesystem::path& model_folder);

/// A model folder's numbers and the family that claims its model_type.
struct Identified {
  const ModelFamily* family;
  Architecture architecture;
};

/// `config_text` is what config.json holds; `where` its path, for messages.
/// Throws: ErrorKind::input if it is broken or of no known family.
Identified identify(const std::string& config_text, const std::string& where,
                    const std::vector<ModelFamily>& families);

}  // namespace finetune::model
