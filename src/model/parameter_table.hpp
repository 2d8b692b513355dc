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
#include "model/outputs.hpp"

namespace finetune::model {

class AdapterCost;  // model/cost/adapter_cost.hpp
class AdapterMath;  // model/adapter_math.hpp

/// `normal`: with the model's standard deviation; `unit_normal`: with 1. `fan_in`: uniform within
/// 1 / sqrt(size of dim 1), as torch.nn.Linear. `row_norms`: the norms of the rows of the matrix
/// that the row adapts. `decays`: logarithms of numbers between 0.01 and 16, uniform.
enum class Init { normal, unit_normal, ones, zeros, fan_in, row_norms, decays };

/// What a tensor is to the model: which of them may get an adapter or may be quantised.
enum class Role {
  other,            ///< norms, biases, parts of adapters
  embedding,        ///< of tokens; the head's as well if tied
  layer_embedding,  ///< of tokens, of what layers read beside the stream
  head,
  linear,  ///< a matrix of a block that every token passes
  router,
  expert,  ///< a matrix that only some tokens pass
};

/// Whether it has a row for each token, which is looked up.
inline bool is_looked_up(Role role) {
  return role == Role::embedding || role == Role::layer_embedding;
}

/// How a frozen tensor is kept in memory, and travels.
struct Packing {
  enum class Kind {
    dense,  ///< in the computation's dtype
    nf4,    ///< 4-bit normal floats in blocks of 64 (Dettmers et al. 2023, arXiv 2305.14314)
    gptq,   ///< integers of 4 or 8 bits with a scale and a zero per group of inputs (Frantar et al.
            ///< 2022, arXiv 2210.17323; Lin et al. 2023, AWQ, arXiv 2306.00978)
    fp8,    ///< e4m3 with a scale per row or block (model/fp8.hpp)
    mxfp4,  ///< experts in 4-bit floats, 32 of which share a power of two (OCP 2023, MX formats
            ///< v1.0)
    integers,  ///< of 4 or 8 bits, row by row, with scales per group of inputs or per row
    nvfp4,     ///< 4-bit floats, 16 of which share a scale in e4m3, with one factor per matrix
  };
  /// Who wrote the files, where the kind alone does not say it.
  enum class Writer {
    any,
    awq,               ///< gptq: eight outputs a word, interleaved (base/detail/awq_files.hpp)
    compressed_words,  ///< integers: as words of compressed-tensors' "pack-quantized"
    compressed_bytes,  ///< integers: a byte each, "int-quantized"
    bitsandbytes,      ///< integers: a byte each, whose scales are 127 times as large
    modelopt,          ///< nvfp4: a factor that scales are multiplied by, not divided
  };
  Kind kind = Kind::dense;
  bool in_files = false;  ///< the model's files have it packed like this
  bool nests = true;      ///< nf4: the blocks' maxima are quantised as well
  /// gptq, integers: inputs that share scale and zero; fp8: the side of the blocks that share a
  /// scale. 0: all inputs.
  std::int64_t group_size = 0;
  int zero_offset = 1;     ///< gptq: what is to be added to a stored zero
  int bits = 4;            ///< gptq, integers: of a code
  bool has_zeros = false;  ///< integers: a zero per scale; else it is half of the codes
  Writer writer = Writer::any;

  bool is_dense() const { return kind == Kind::dense; }
  /// In 8 bits as products read it, with powers of two for scales; files have any scales.
  bool is_operand() const { return kind == Kind::fp8 && !in_files; }
};

/// What an adapter puts on top of a row: rows of its own, whose number and order are the adapter's,
/// and who computes with them.
struct Adapted {
  std::vector<int> parts = {};
  double scale = 1;
  bool of_transpose = false;  ///< of the row's transpose, as of an embedding, which is looked up
  /// Other than 0: its parts begin with what AdapterMath::begin makes of the row, in a way that the
  /// adapter knows by this number.
  int start = 0;
  /// Where a layer's experts have their parts in the same tensors.
  struct Together {
    std::int64_t num = 0;           ///< experts; 0: the row has its own parts
    std::int64_t i = 0;             ///< of a row that is of one expert, which one
    std::int64_t first_output = 0;  ///< and which outputs of the parts it has
    bool is_by_inputs = false;      ///< of a row of all experts, that it is [E, in, out]
  };
  Together together = {};
  const AdapterCost* cost = nullptr;
  const AdapterMath* math = nullptr;

  bool exists() const { return !parts.empty(); }
};

/// One of the matrices that lie next to each other along the split dim of a tensor: `num` pieces of
/// `size` indices, such as the queries of the heads that share keys and values.
struct Pieces {
  std::int64_t num = 1;
  std::int64_t size = 1;
  /// Where there are more ranks than pieces, so many parts at most of a piece, one per rank; 1: the
  /// ranks of a piece all hold it.
  std::int64_t parts = 1;

  std::int64_t total() const { return num * size; }
};

/// How tensor parallelism splits a tensor: along `dim`, into as many parts as there are ranks, of
/// as equal numbers of pieces as can be, each of the matrices by itself. Matrices are split by
/// their outputs and those after them by their inputs. Source: Shoeybi et al. 2019 (Megatron-LM,
/// arXiv 1909.08053).
struct TensorSplit {
  std::size_t dim = 0;
  std::vector<Pieces> matrices = {};
};

/// Which experts a row is of, where ranks may share the experts out.
struct OfExperts {
  std::int64_t first = 0;
  std::int64_t num = 0;    ///< 1; or all of a layer, one after the other along dim 0
  std::int64_t total = 0;  ///< of the layer

  bool are_in_one_tensor() const { return num > 1; }
};

/// What a rank holds of a logical tensor, where that is not the whole.
struct Part {
  std::vector<std::int64_t> shape;  ///< of the logical tensor
  std::vector<core::Box> boxes;     ///< of it, in the order of memory; none: the rank has nothing
  std::int64_t num_holders = 1;     ///< ranks of tensor parallelism that hold the same elements
  std::int64_t holder = 0;          ///< this rank's number among them
  bool nests = true;                ///< Packing::nests of the logical tensor
};

/// Consecutive indices of dim 0.
struct RowSpan {
  std::int64_t first = 0;
  std::int64_t num = 0;
};

struct Parameter {
  std::string name;                 ///< as in the Hugging Face file
  std::vector<std::int64_t> shape;  ///< of the logical tensor, or of a rank's part of it
  int unit = 0;                     ///< index into ParameterTable::units
  int part = 0;  ///< of the unit, where parallel.bucket = "LAYER" may split it: rows that are read
                 ///< as one matrix have the same
  bool trainable = true;
  /// Never trained, and in fp32 whatever is computed in.
  bool is_constant = false;
  bool is_by_inputs = false;  ///< a matrix [out, in] that files have as [in, out]
  bool is_new = false;        ///< the model's files do not have it: a run begins with a random one
  bool decayed = true;        ///< weight decay applies (tensors of two and more dims)
  double lr_ratio = 1;        ///< its learning rate as a multiple of the step's
  Init init = Init::normal;
  Role role = Role::other;
  int stage = 0;  ///< of the forward pass: the embedding 0, block i 1 + i, the head last
  std::optional<TensorSplit> split = {};  ///< nothing: every rank of tensor parallelism holds it
  bool reads_all_heads = false;           ///< a norm over them, which ranks of tp cannot share out
  std::optional<OfExperts> of_experts = {};
  /// In a rank's own table (model/part.hpp), whose shapes are those of the parts.
  std::optional<Part> held = {};
  /// Trained: of its rows only these, such as those of new tokens; the others stay as they are.
  std::optional<RowSpan> trained_rows = {};
  Packing packing = {};
  Packing of_files = {};  ///< dense here, but packed like this in the files: unpacked as it is read
  Packing published =
      {};                ///< trained: how it is gathered, dense or fp8; the master weights are not
  Adapted adapted = {};  ///< what lies on top of it
  int adapts = -1;       ///< in a part of an adapter: the row that it adapts

  std::int64_t count() const { return core::num_elements(shape); }
};

struct ParameterTable {
  std::vector<Parameter> rows;
  std::vector<std::string> units;  ///< what is gathered together, in the order of the forward pass
  /// Beginnings of names of tensors in the files that are of other parts of the model: not read.
  std::vector<std::string> foreign = {};
  /// The same of what new rows take the place of: neither read nor written.
  std::vector<std::string> replaced = {};
  DecoderRows decoder = {};  ///< which row is what to the model
  Outputs outputs = {};      ///< of the head

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
