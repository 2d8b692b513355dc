// SPDX-License-Identifier: Apache-2.0
#include "model/part.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "kernels/nf4.hpp"
#include "model/packing.hpp"

namespace finetune::model {
namespace {

/// Part `i` of `num` indices in `n` parts.
IndexRange range_of(std::int64_t num, std::int64_t n, std::int64_t i) {
  return {num * i / n, num * (i + 1) / n};
}

/// The smallest i with num * i / n >= piece, rounded down.
std::int64_t first_of(std::int64_t piece, std::int64_t num, std::int64_t n) {
  return (piece * n + num - 1) / num;
}

core::Box narrowed(const std::vector<std::int64_t>& shape, std::size_t dim, IndexRange range) {
  core::Box box = core::whole_box(shape);
  box.begin[dim] = range.first;
  box.extent[dim] = range.count();
  return box;
}

/// One tensor of all experts of a layer.
bool is_fused(const Parameter& row) {
  return row.of_experts && row.of_experts->are_in_one_tensor();
}

Part split_by_tp(const Parameter& row, const PartPlace& place) {
  Part part{.shape = row.shape, .boxes = {}};
  if (!row.split) {
    part.boxes = {core::whole_box(row.shape)};
    part.num_holders = place.tp;
    part.holder = place.i_tp;
    return part;
  }
  const std::size_t dim = row.split->dim;
  std::int64_t before = 0;
  bool is_first = true;
  for (const Pieces& pieces : row.split->matrices) {
    const HeldPieces held = held_pieces(pieces, place.tp, place.i_tp);
    // Queries, keys and values in one tensor: what several ranks hold is not the same for each.
    core::check(is_first || held.num_holders == part.num_holders,
                "the matrices of a tensor have as many holders");
    part.num_holders = held.num_holders;
    part.holder = held.holder;
    is_first = false;
    part.boxes.push_back(
        narrowed(row.shape, dim, {before + held.indices.first, before + held.indices.last}));
    before += pieces.total();
  }
  core::check(before == row.shape.at(dim), "the matrices of a tensor fill its split dim");
  return part;
}

/// The part of a row of experts; nothing if they have no say in it.
std::optional<Part> split_by_experts(const Parameter& row, const PartPlace& place) {
  if (!row.of_experts) return std::nullopt;
  if (is_fused(row)) {
    const IndexRange own = held_fused_experts(row.of_experts->total, place);
    return Part{.shape = row.shape, .boxes = {narrowed(row.shape, 0, own)}};
  }
  const IndexRange own = held_experts(row.of_experts->total, place);
  const std::int64_t expert = row.of_experts->first;
  if (expert >= own.first && expert < own.last) return std::nullopt;
  return Part{.shape = row.shape, .boxes = {}};
}

Part held_of(const Parameter& row, const PartPlace& place) {
  if (auto part = split_by_experts(row, place)) return *std::move(part);
  return split_by_tp(row, place);
}

std::vector<std::int64_t> shape_of(const Part& part, std::size_t dim) {
  if (part.boxes.empty()) {
    std::vector<std::int64_t> shape = part.shape;
    shape.front() = 0;
    return shape;
  }
  std::vector<std::int64_t> shape = part.boxes.front().extent;
  if (part.boxes.size() == 1) return shape;
  shape[dim] = 0;
  for (const core::Box& box : part.boxes)
    shape[dim] += box.extent[dim];
  return shape;
}

/// Boxes one behind the other in memory, as long as they are cut along the first dim.
bool follow_each_other(const Part& part) {
  if (part.boxes.size() < 2) return true;
  return std::equal(part.shape.begin() + 1, part.shape.end(),
                    part.boxes.front().extent.begin() + 1);
}

/// Calls f(first logical element, count) for the runs of elements [first, first + count) of a box.
template <typename F>
void for_each_run_of(const core::Box& box, const std::vector<std::int64_t>& shape,
                     std::int64_t first, std::int64_t count, const F& f) {
  // The innermost dims that are whole join the one before them in one run.
  std::size_t dim = shape.size();
  std::int64_t run = 1;
  while (dim > 0) {
    --dim;
    run *= box.extent[dim];
    if (box.extent[dim] != shape[dim]) break;
  }
  while (count > 0) {
    std::int64_t index = first, offset = 0, scale = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      offset += (box.begin[d] + index % box.extent[d]) * scale;
      index /= box.extent[d];
      scale *= shape[d];
    }
    const std::int64_t size = std::min(count, run - first % run);
    f(offset, size);
    first += size;
    count -= size;
  }
}

/// Calls f(box, first element within it, count) for elements [first, first + count) of a part.
template <typename F>
void for_each_box(const Part& part, std::int64_t first, std::int64_t count, const F& f) {
  std::int64_t before = 0;
  for (const core::Box& box : part.boxes) {
    const std::int64_t size = box.num_elements();
    const std::int64_t begin = std::max(first, before);
    const std::int64_t end = std::min(first + count, before + size);
    if (begin < end) f(box, begin - before, end - begin);
    before += size;
  }
}

/// Elements whose blocks' maxima are quantised together.
constexpr std::int64_t together = kernels::nf4_block * kernels::nested_block;

bool cuts_nested_blocks_of_experts(const Parameter& row, PartPlace place) {
  const std::int64_t num = row.of_experts->total, an_expert = row.count() / num;
  for (place.i_ep = 0; place.i_ep < place.ep; ++place.i_ep)
    for (place.i_tp = 0; place.i_tp < place.tp; ++place.i_tp)
      if (held_fused_experts(num, place).first * an_expert % together != 0) return true;
  return false;
}

/// Whether some rank's part of a matrix in NF4 begins within a block of quantised maxima, or has
/// pieces of many: these ranks keep their maxima as they are, in fp32.
bool cuts_nested_blocks(const Parameter& row, PartPlace place) {
  if (row.packing.kind != Packing::Kind::nf4 || !row.packing.nests) return false;
  if (is_fused(row)) return cuts_nested_blocks_of_experts(row, place);
  if (!row.split) return false;
  if (row.split->dim != 0 || row.split->matrices.size() != 1) return true;
  for (std::int64_t i = 0; i < place.tp; ++i) {
    const HeldPieces held = held_pieces(row.split->matrices.front(), place.tp, i);
    if (held.indices.first * row.shape.back() % together != 0) return true;
  }
  return false;
}

/// What the split dim of a row counts.
const char* split_lines(const Parameter& row) {
  return row.split->dim == 0 ? "rows" : "columns";
}

std::string why_not_pieces(const Parameter& row, const Pieces& pieces, std::int64_t tp) {
  const std::int64_t a_piece = (tp + pieces.num - 1) / pieces.num;
  if (a_piece > 1 && row.split->matrices.size() > 1)
    return fmt::format("{} holds several matrices, each of {} parts at most", row.name, pieces.num);
  if (a_piece <= 1 || pieces.parts == 1) {
    // Heads of keys and values may be held by several ranks, whose queries differ.
    if (a_piece <= 1 || pieces.size > 1) return "";
    return fmt::format("{} has only {} {}", row.name, pieces.total(), split_lines(row));
  }
  if (a_piece <= pieces.parts) return "";
  return fmt::format("{} can be cut into {} parts at most, of {} {} each", row.name,
                     pieces.num * pieces.parts, pieces.size / pieces.parts, split_lines(row));
}

/// Of attention with latents: no two ranks may have the same head, whose output would count twice.
std::string why_not_latents(const ParameterTable& table, const BlockRows& block, std::int64_t tp) {
  if (block.key_value_up < 0) return "";
  if (block.query_up < 0)
    return fmt::format("{} is read with what gives the latent", table.row(block.qkv.first).name);
  const Parameter& row = table.row(block.key_value_up);
  const std::int64_t num_heads = row.split->matrices.front().num;
  return num_heads < tp ? fmt::format("{} has only {} heads", row.name, num_heads) : "";
}

/// Whether a box begins or ends within what is packed together along a dim; the last of these may
/// be shorter.
bool cuts(const core::Box& box, const std::vector<std::int64_t>& shape, std::size_t dim,
          std::int64_t together) {
  const std::int64_t end = box.begin[dim] + box.extent[dim];
  return box.begin[dim] % together != 0 || (end % together != 0 && end != shape[dim]);
}

/// Blocks of codes are not cut.
std::string why_not_packed(const Parameter& row, std::int64_t tp) {
  if (row.packing.is_dense()) return "";
  const bool is_nf4 = row.packing.kind == Packing::Kind::nf4;
  const std::int64_t whole = elements_together(row.packing);
  for (std::int64_t i = 0; i < tp; ++i) {
    const Part part = split_by_tp(row, {.tp = tp, .i_tp = i});
    for (const core::Box& box : part.boxes) {
      const std::int64_t in = row.shape.back();
      const bool is_cut =
          is_nf4
              ? (box.extent[1] == in
                     ? box.begin[0] * in % whole != 0 || box.extent[0] * in % whole != 0
                     : in % whole != 0 || box.begin[1] % whole != 0 || box.extent[1] % whole != 0)
              : cuts(box, row.shape, 0, rows_together(row.packing)) ||
                    cuts(box, row.shape, 1, whole);
      if (is_cut)
        return fmt::format("{} is packed in {} of {} numbers, some of which would be cut", row.name,
                           row.packing.kind == Packing::Kind::gptq ? "words" : "blocks", whole);
    }
  }
  return "";
}

}  // namespace

HeldPieces held_pieces(const Pieces& pieces, std::int64_t n, std::int64_t i) {
  core::check(i >= 0 && i < n, "a rank is one of those that share");
  if (n <= pieces.num) {
    const IndexRange own = range_of(pieces.num, n, i);
    return {{own.first * pieces.size, own.last * pieces.size}};
  }
  const std::int64_t piece = pieces.num * i / n;
  const std::int64_t first = first_of(piece, pieces.num, n);
  const std::int64_t ranks = first_of(piece + 1, pieces.num, n) - first;
  const std::int64_t begin = piece * pieces.size;
  if (pieces.parts == 1) return {{begin, begin + pieces.size}, ranks, i - first};
  const IndexRange part = range_of(pieces.parts, ranks, i - first);
  const std::int64_t size = pieces.size / pieces.parts;
  return {{begin + part.first * size, begin + part.last * size}};
}

IndexRange held_experts(std::int64_t num, const PartPlace& place) {
  return range_of(num, place.ep, place.i_ep);
}

IndexRange held_fused_experts(std::int64_t num, const PartPlace& place) {
  return range_of(num, place.ep * place.tp, place.i_ep * place.tp + place.i_tp);
}

Parameter part_of(const Parameter& row, const PartPlace& place) {
  Parameter own = row;
  if (place.is_whole()) return own;
  Part part = held_of(row, place);
  part.nests = row.packing.nests;
  const std::size_t dim = is_fused(row) || !row.split ? 0 : row.split->dim;
  own.shape = shape_of(part, dim);
  core::check(follow_each_other(part), "boxes of a part follow each other in memory");
  std::erase_if(part.boxes, [](const core::Box& box) { return box.num_elements() == 0; });
  own.held = std::move(part);
  if (cuts_nested_blocks(row, place)) own.packing.nests = false;
  return own;
}

ParameterTable part_of(const ParameterTable& table, const PartPlace& place) {
  ParameterTable own = table;
  if (place.is_whole()) return own;
  for (Parameter& row : own.rows)
    row = part_of(row, place);
  return own;
}

bool is_shared(const Parameter& row, std::int64_t tp) {
  if (tp == 1 || is_fused(row)) return false;
  if (!row.split) return true;
  return std::ranges::any_of(row.split->matrices, [&](const Pieces& pieces) {
    return tp > pieces.num && pieces.parts == 1;
  });
}

Parameter whole_of(const Parameter& row) {
  Parameter whole = row;
  if (!row.held) return whole;
  whole.shape = row.held->shape;
  whole.packing.nests = row.held->nests;
  whole.held.reset();
  return whole;
}

std::string why_not(const ParameterTable& table, std::int64_t tp) {
  if (tp == 1) return "";
  if (table.outputs.are_of_texts()) return "the few rows of its head are not shared out";
  if (table.decoder.hands_on) return "what its blocks hand on to later ones is not shared out";
  for (const BlockRows& block : table.decoder.blocks)
    if (std::string why = why_not_latents(table, block, tp); !why.empty()) return why;
  for (const Parameter& row : table.rows) {
    if (row.reads_all_heads) return fmt::format("{} norms all heads as one", row.name);
    if (row.adapted.start != 0)
      return fmt::format("low-rank parts begin with the factors of {}, of the whole matrix",
                         row.name);
    if (row.adapted.together.num > 0)
      return fmt::format("the parts of {} are those of all experts together", row.name);
    if (!row.split || is_fused(row)) continue;
    for (const Pieces& pieces : row.split->matrices)
      if (std::string why = why_not_pieces(row, pieces, tp); !why.empty()) return why;
    if (std::string why = why_not_packed(row, tp); !why.empty()) return why;
  }
  return "";
}

bool remembers(const ParameterTable& table) {
  return std::ranges::any_of(table.decoder.blocks, [](const BlockRows& rows) {
    return rows.delta.exists() || rows.state.exists();
  });
}

HeldHeads held_heads(std::int64_t num_heads, std::int64_t num_kv_heads, const PartPlace& place) {
  const std::int64_t a_group = num_heads / num_kv_heads;
  return {held_pieces({num_kv_heads, a_group, a_group}, place.tp, place.i_tp).indices.count(),
          held_pieces({num_kv_heads, 1, 1}, place.tp, place.i_tp).indices.count()};
}

void for_each_run(const Parameter& row, std::int64_t first, std::int64_t count,
                  const std::function<void(std::int64_t logical, std::int64_t count)>& f) {
  if (count == 0) return;
  if (!row.held) return f(first, count);
  for_each_box(*row.held, first, count,
               [&](const core::Box& box, std::int64_t begin, std::int64_t size) {
                 for_each_run_of(box, row.held->shape, begin, size, f);
               });
}

std::vector<core::TensorSlice> logical_slices(const Parameter& row, core::DType dtype,
                                              std::int64_t first, std::int64_t count) {
  core::TensorSlice slice{
      .name = row.name, .shape = row.shape, .dtype = dtype, .offset = first, .count = count};
  if (!row.held) return {slice};
  slice.shape = row.held->shape;
  std::vector<core::TensorSlice> slices;
  for_each_box(*row.held, first, count,
               [&](const core::Box& box, std::int64_t begin, std::int64_t size) {
                 slice.box = box;
                 if (box == core::whole_box(slice.shape)) slice.box.reset();
                 slice.offset = begin;
                 slice.count = size;
                 slices.push_back(slice);
               });
  return slices;
}

}  // namespace finetune::model
