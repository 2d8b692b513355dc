#pragma once
// SPDX-License-Identifier: Apache-2.0
// Decoders of published sizes as tables of parameters, without a family: for plans of their time.

#include <string>

#include "adapters/lora/cost.hpp"
#include "model/architecture.hpp"
#include "model/layout.hpp"
#include "model/parameter_table.hpp"
#include "plan/machine/machine.hpp"

namespace finetune::tests {

struct Size {
  std::int64_t layers, width, heads, kv_heads, head_size, d_ff, vocabulary;
};

inline model::Architecture decoder(const Size& size) {
  model::Architecture a;
  a.num_layers = size.layers;
  a.d_model = size.width;
  a.num_heads = size.heads;
  a.num_kv_heads = size.kv_heads;
  a.head_size = size.head_size;
  a.d_ff = size.d_ff;
  a.vocab_size = size.vocabulary;
  a.max_positions = 1 << 20;
  return a;
}

/// What is trained: everything, or adapters of rank `rank` beside all matrices of the blocks, or
/// beside those of attention only.
struct Training {
  std::int64_t rank = 0;
  bool only_attention = false;
  model::Packing::Kind packing = model::Packing::Kind::dense;
};

/// Embedding, blocks and head with the shapes of Llama.
class DecoderTable {
 public:
  DecoderTable(const model::Architecture& a, const Training& training = {})
      : training_(training), table_(model::lay_out(a)) {
    for (const model::BlockRows& block : table_.decoder.blocks) {
      adapt(block.qkv);
      adapt({block.attention_out, 1});
      if (training_.only_attention) continue;
      adapt(block.feed_forward.gate_up);
      adapt({block.feed_forward.down, 1});
    }
    for (model::Parameter& row : table_.rows) {
      row.trainable = training.rank == 0;
      if (row.role == model::Role::linear) row.packing.kind = training.packing;
    }
    if (training.rank > 0) add_adapters();
  }

  const model::ParameterTable& table() const { return table_; }

 private:
  void adapt(model::RowRange rows) {
    for (int row = rows.first; row < rows.first + rows.num; ++row)
      adapted_.push_back(row);
  }
  /// All in one unit, as modules/adapters/lora puts them.
  void add_adapters() {
    table_.units.push_back("adapter");
    for (const int i : adapted_) {
      const model::Parameter base = table_.row(i);
      const auto first = static_cast<int>(table_.rows.size());
      table_.rows[static_cast<std::size_t>(i)].adapted = {.parts = {first, first + 1},
                                                          .cost = &adapters::lora::cost()};
      for (const auto& shape : {std::vector<std::int64_t>{training_.rank, base.shape[1]},
                                std::vector<std::int64_t>{base.shape[0], training_.rank}}) {
        // Split with the side that it shares with the matrix.
        const bool is_first = shape[0] == training_.rank;
        table_.rows.push_back(
            {.name = "adapter",
             .shape = shape,
             .unit = static_cast<int>(table_.units.size()) - 1,
             .stage = base.stage,
             .split = base.split && (base.split->dim == 1) == is_first ? base.split : std::nullopt,
             .adapts = i});
      }
    }
  }

  Training training_;
  model::ParameterTable table_;
  std::vector<int> adapted_;
};

/// A machine whose numbers are easy to compute with: 2 nodes of 2 GPUs.
inline plan::Machine round_machine() {
  plan::Machine machine;
  machine.gpus_per_node = 2;
  machine.gpu_memory_gib = 80;
  machine.peak_tflops = 2;
  machine.bf16_tflops = 1;
  machine.fp32_tflops = 0.5;
  machine.memory_gb_per_s = 1000;
  machine.intra_gb_per_s = 100;
  machine.inter_gb_per_s = 10;
  return machine;
}

}  // namespace finetune::tests
