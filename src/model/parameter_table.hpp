#pragma once
// SPDX-License-Identifier: Apache-2.0
// Every parameter of a model, one row each. Shards, checkpoint layout, memory plan and weight files
// all follow from this table alone.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor_slice.hpp"
#include "model/detail/decoder_rows.hpp"

namespace finetune::model {

class AdapterCost;  // model/cost/adapter_cost.hpp
class AdapterMath;  // model/adapter_math.hpp

/// `fan_in`: uniform within 1 / sqrt(size of dim 1), as torch.nn.Linear. `row_norms`: the norms of
/// the rows of the matrix that the row adapts.
enum class Init { normal, ones, zeros, fan_in, row_norms };

/// What a tensor is to the model: which of them may get an adapter or may be quantised.
enum class Role {
  other,      ///< norms, biases, parts of adapters
  embedding,  ///< of tokens; the head's as well if tied
  head,
  linear,  ///< a matrix of a block that every token passes
  router,
  expert,  ///< a matrix that only some tokens pass
};

/// How a frozen tensor is kept in memory, and travels.
struct Packing {
  enum class Kind {
    dense,  ///< in the computation's dtype
    nf4,    ///< 4-bit normal floats in blocks of 64 (Dettmers et al. 2023, arXiv 2305.14314)
    gptq,   ///< 4-bit integers with a scale and a zero a group (Frantar et al. 2022, 2210.17323)
  };
  Kind kind = Kind::dense;
  bool in_files = false;        ///< the model's files have it packed like this
  bool nests = true;            ///< nf4: the blocks' maxima are quantised as well
  std::int64_t group_size = 0;  ///< gptq: inputs that share scale and zero; 0: all
  int zero_offset = 1;          ///< gptq: what is to be added to a stored zero

  bool is_dense() const { return kind == Kind::dense; }
};

/// What an adapter puts on top of a row: rows of its own, whose number and order are the adapter's,
/// and who computes with them.
struct Adapted {
  std::vector<int> parts = {};
  double scale = 1;
  const AdapterCost* cost = nullptr;
  const AdapterMath* math = nullptr;

  bool exists() const { return !parts.empty(); }
};

/// How an axis of the mesh splits a tensor: into one piece per rank of the axis along `dim`, of
/// sizes as equal as whole indices allow.
struct AxisSplit {
  std::string axis;
  std::size_t dim = 0;
  /// Sizes of the matrices that lie next to each other along `dim`, where the file has several in
  /// one tensor: each of them is split by itself. Empty: there is one.
  std::vector<std::int64_t> matrices = {};
};

/// The axis of tensor parallelism, which splits matrices by their outputs and those after them by
/// their inputs. Source: Shoeybi et al. 2019 (Megatron-LM, arXiv 1909.08053).
inline constexpr const char* tensor_axis = "tp";

struct Parameter {
  std::string name;                 ///< as in the Hugging Face file
  std::vector<std::int64_t> shape;  ///< of the logical tensor
  int unit = 0;                     ///< index into ParameterTable::units
  int part = 0;  ///< of the unit, where parallel.bucket = "LAYER" may split it: rows that are read
                 ///< as one matrix have the same
  bool trainable = true;
  bool decayed = true;  ///< weight decay applies (tensors of two and more dims)
  Init init = Init::normal;
  Role role = Role::other;
  int stage = 0;  ///< of the forward pass: the embedding 0, block i 1 + i, the head last
  std::optional<AxisSplit> split = {};  ///< nothing: every rank of every such axis holds all of it
  Packing packing = {};
  Adapted adapted = {};  ///< what lies on top of it
  int adapts = -1;       ///< in a part of an adapter: the row that it adapts

  std::int64_t count() const { return core::num_elements(shape); }
};

struct ParameterTable {
  std::vector<Parameter> rows;
  std::vector<std::string> units;  ///< what is gathered together, in the order of the forward pass
  /// Beginnings of names of tensors in the files that are of other parts of the model: not read.
  std::vector<std::string> foreign = {};
  DecoderRows decoder = {};  ///< which row is what to the model

  std::int64_t num_parameters() const {
    std::int64_t sum = 0;
    for (const Parameter& row : rows)
      sum += row.count();
    return sum;
  }
  std::int64_t num_trainable() const {
    std::int64_t sum = 0;
    for (const Parameter& row : rows)
      sum += row.trainable ? row.count() : 0;
    return sum;
  }
  const Parameter& row(int i) const { return rows[static_cast<std::size_t>(i)]; }
};

}  // namespace finetune::model
