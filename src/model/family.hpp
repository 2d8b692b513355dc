#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a model family provides; one descriptor each in modules/models.

#include <ATen/ATen.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "model/architecture.hpp"
#include "model/ops.hpp"
#include "model/parameter_table.hpp"
#include "model/sequence.hpp"

namespace finetune::model {

/// A model as written for one device: pure functions of activations; weights come through `Ops`.
class Model {
 public:
  virtual ~Model() = default;

  /// Rows of the token embedding, of the final norm, and of the head (the embedding's if tied).
  virtual int embedding_row() const = 0;
  virtual int final_norm_row() const = 0;
  virtual int head_row() const = 0;
  /// The rows of block `i_layer`.
  virtual RowRange block_rows(std::int64_t i_layer) const = 0;

  /// x_ND -> y_ND of transformer block `i_layer`.
  virtual at::Tensor block(Ops& ops, std::int64_t i_layer, const at::Tensor& x_ND,
                           const Sequence& sequence) const = 0;

  /// The last block's output to the head's input.
  virtual at::Tensor final_norm(Ops& ops, const at::Tensor& x_ND) const = 0;
};

struct ModelFamily {
  std::string name;
  std::vector<std::string> model_types;  ///< values of config.json's "model_type" it understands

  /// config.json -> numbers. Throws: ErrorKind::input naming file and key.
  Architecture (*read)(const core::Json& config, const std::string& where);
  ParameterTable (*describe)(const Architecture&);
  std::unique_ptr<Model> (*build)(const Architecture&);
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
