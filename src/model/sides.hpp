#pragma once
// SPDX-License-Identifier: Apache-2.0
// What blocks hand on to later ones beside the residual stream: the inputs of layers, and keys and
// values that several layers read.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/architecture.hpp"

namespace finetune::model {

enum class Side {
  layer_inputs,  ///< [N, P] of one layer; of all of them [N, L P]
  keys_values,   ///< [N, 2 Hkv K], normed, before positions
};
inline constexpr std::array all_sides{Side::layer_inputs, Side::keys_values};

/// One of each kind; undefined: there is none.
template <typename Tensor>
class SideTensors {
 public:
  Tensor& operator[](Side side) { return tensors_[static_cast<std::size_t>(side)]; }
  const Tensor& operator[](Side side) const { return tensors_[static_cast<std::size_t>(side)]; }

 private:
  std::array<Tensor, all_sides.size()> tensors_ = {};
};

/// Channels of one of the tensors that lie beside the stream. -1: of none.
struct SideSlice {
  int slot = -1;
  std::int64_t first = 0;
  std::int64_t size = 0;

  bool exists() const { return slot >= 0; }
};

/// The same of one block.
struct BlockSides {
  SideTensors<SideSlice> read = {};
  SideTensors<SideSlice> written = {};  ///< whole
};

/// What a block is called with: what it reads is there, what it writes it fills in.
template <typename Tensor>
struct Sides {
  BlockSides layout = {};
  SideTensors<Tensor> read = {};
  SideTensors<Tensor> written = {};
};

/// Which tensors lie beside the stream in a pass, by slot, and what blocks have to do with them.
struct SideLayout {
  std::vector<std::int64_t> channels;  ///< of slots
  SideSlice looked_up;                 ///< what the embedding's stage writes for the first block
  std::vector<BlockSides> blocks;

  bool exist() const { return !channels.empty(); }
  const BlockSides& block(std::int64_t i_layer) const {
    return blocks[static_cast<std::size_t>(i_layer)];
  }
};

SideLayout lay_out_sides(const Architecture& architecture);

}  // namespace finetune::model
