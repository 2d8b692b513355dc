#pragma once
// SPDX-License-Identifier: Apache-2.0
// A decoder of transformer blocks, for families to use. Without libtorch, as model/family.hpp.

#include <memory>

#include "model/architecture.hpp"
#include "model/detail/decoder_rows.hpp"

namespace finetune::model {

class Model;
struct DeleteModel {
  void operator()(const Model* model) const;
};
using ModelPtr = std::unique_ptr<Model, DeleteModel>;

/// Such blocks between an embedding and a normed head.
ModelPtr make_decoder(const Architecture& architecture, const DecoderRows& rows);

}  // namespace finetune::model
