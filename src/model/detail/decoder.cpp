// SPDX-License-Identifier: Apache-2.0
#include "model/detail/decoder.hpp"
#include "model/block.hpp"
#include "model/model.hpp"

#include <utility>

namespace finetune::model {
namespace {

class Decoder : public Model {
 public:
  Decoder(Architecture architecture, DecoderRows rows)
      : architecture_(std::move(architecture)), rows_(std::move(rows)) {}

  int embedding_row() const override { return rows_.embedding; }
  int head_row() const override { return rows_.head; }
  RowRange block_rows(std::int64_t i_layer) const override { return at(i_layer).all; }

  int layer_embedding_row() const override { return rows_.layer_embedding; }

  at::Tensor block(Ops& ops, std::int64_t i_layer, const at::Tensor& x_ND, const Sequence& sequence,
                   Sides<at::Tensor>& sides) const override {
    return decoder_block(ops, architecture_, at(i_layer), x_ND, sequence, i_layer, sides);
  }

  at::Tensor final_norm(Ops& ops, const at::Tensor& x_ND) const override {
    return model::final_norm(ops, architecture_, rows_.final_norm, x_ND);
  }

 private:
  const BlockRows& at(std::int64_t i_layer) const {
    return rows_.blocks[static_cast<std::size_t>(i_layer)];
  }

  Architecture architecture_;
  DecoderRows rows_;
};

}  // namespace

ModelPtr make_decoder(const Architecture& architecture, const DecoderRows& rows) {
  return ModelPtr(new Decoder(architecture, rows));
}

void DeleteModel::operator()(const Model* model) const {
  delete model;
}

}  // namespace finetune::model
