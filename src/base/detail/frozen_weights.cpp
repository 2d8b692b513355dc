// SPDX-License-Identifier: Apache-2.0
#include "base/detail/frozen_weights.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/base_hash.hpp"
#include "base/detail/agree_over_parts.hpp"
#include "base/detail/plane_parts.hpp"
#include "base/detail/quantise.hpp"
#include "core/dtype.hpp"
#include "kernels/nf4.hpp"
#include "model/packing.hpp"
#include "model/part.hpp"
#include "shard/host_copy.hpp"

namespace finetune::base {
namespace {

using model::Packing;
using plan::FrozenSlice;

/// Elements that are in memory as fp32 at once.
constexpr std::int64_t piece_elements = std::int64_t{4} << 20;

template <typename T>
std::span<T> as(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

/// Blocks of NF4 that hold `count` elements.
std::size_t num_blocks(std::int64_t count) {
  return static_cast<std::size_t>((count + kernels::nf4_block - 1) / kernels::nf4_block);
}

/// One frozen unit's shard of this rank, in host memory while it is filled.
class UnitFiller {
 public:
  UnitFiller(const WeightSource& source, shard::ModelShards& shards, int unit)
      : source_(source),
        shards_(shards),
        table_(shards.table()),
        ranks_(shards.ranks_of(unit)),
        copy_(shards.published(unit)),
        slices_(shards.map().frozen_slices(unit, shards.shard_of(unit))),
        rows_(shards.map().unit(unit).rows) {}

  void fill() {
    agree_over_parts(shards_, ranks_, [&] {
      for (const FrozenSlice& slice : slices_)
        fill_directly(slice);
      note_maxima_of_files();
    });
    const auto is_own = [&](int row) { return is_quantised_here(row) && !is_elsewhere(row); };
    const std::int64_t num_own = std::count_if(rows_.begin(), rows_.end(), is_own);
    const std::int64_t most = most_of_ep(num_own);
    for (const int row : rows_) {
      if (!is_own(row)) continue;
      if (is_fp8(row)) {
        quantise_to_fp8(row);
      } else {
        quantise(row);
      }
    }
    // Where experts do not divide, others have one more, and agree with all ranks on each matrix.
    for (std::int64_t i = num_own; i < most; ++i)
      agree_over_parts(shards_, ranks_, [] {});
    copy_.write_back();
  }

 private:
  /// The most that any of the ranks that share experts has.
  std::int64_t most_of_ep(std::int64_t own) const {
    const auto& ep = shards_.groups().ep;
    if (ep) ep->communicator().all_reduce(std::span(&own, 1), comm::Reduce::max);
    return own;
  }

  /// Of an expert that other ranks hold.
  bool is_elsewhere(int row) const {
    const model::Parameter& own = table_.row(row);
    return own.count() == 0 && !is_shared_by_ep(row);
  }
  /// Experts in one tensor, of which each rank of ep has a part.
  bool is_shared_by_ep(int row) const {
    const auto& of = table_.row(row).of_experts;
    return shards_.groups().ep && of && of->are_in_one_tensor();
  }

  bool is_quantised_here(int row) const {
    const Packing& packing = table_.row(row).packing;
    return !packing.is_dense() && !packing.in_files;
  }
  bool is_fp8(int row) const { return table_.row(row).packing.kind == Packing::Kind::fp8; }

  std::span<std::byte> bytes_of(const FrozenSlice& slice) {
    return copy_.bytes().subspan(
        static_cast<std::size_t>(slice.shard_offset_bytes),
        static_cast<std::size_t>(slice.count * core::size_bytes(slice.plane.dtype)));
  }

  void fill_directly(const FrozenSlice& slice) {
    const Packing& packing = table_.row(slice.plane.row).packing;
    if (is_quantised_here(slice.plane.row)) return;
    if (!packing.is_dense())
      return read_own_plane(table_.row(slice.plane.row), slice.plane.plane, slice.first,
                            bytes_of(slice),
                            [&](int plane, std::int64_t first, std::span<std::byte> target) {
                              source_.plane(slice.plane.row, plane, first, target);
                            });
    in_pieces(
        slice.first, slice.count,
        [&](std::int64_t first, std::span<const float> values) {
          const std::int64_t size = core::size_bytes(slice.plane.dtype);
          core::convert(
              core::DType::f32, std::as_bytes(values), slice.plane.dtype,
              bytes_of(slice).subspan(static_cast<std::size_t>((first - slice.first) * size),
                                      values.size() * static_cast<std::size_t>(size)));
        },
        slice.plane.row);
  }

  /// Calls f(first element, values) for pieces of [first, first + count) of a tensor.
  template <typename F>
  void in_pieces(std::int64_t first, std::int64_t count, const F& f, int row) {
    for (std::int64_t begin = 0; begin < count; begin += piece_elements) {
      values_.resize(static_cast<std::size_t>(std::min(piece_elements, count - begin)));
      read(row, first + begin, values_);
      f(first + begin, values_);
    }
  }

  /// Elements of what the ranks of the unit share of a tensor.
  void read(int row, std::int64_t first, std::span<float> target) {
    model::for_each_run(table_.row(row), first, std::ssize(target),
                        [&](std::int64_t logical, std::int64_t count) {
                          const auto size = static_cast<std::size_t>(count);
                          source_.values(row, logical, target.first(size));
                          target = target.subspan(size);
                        });
  }

  /// Codes of what this rank keeps of a tensor, and their blocks' maxima; then all ranks' maxima.
  void quantise(int row) {
    std::vector<float> own;
    agree_over_parts(shards_, ranks_, [&] {
      for (const FrozenSlice& slice : slices_)
        if (slice.plane.row == row && slice.plane.plane == model::nf4_plane::codes)
          quantise_codes(slice, own);
    });
    // A slice of codes begins and ends with whole blocks: planes and shards are aligned.
    fill_maxima(row, of_all_parts(row, of_all_ranks(own)));
  }

  /// What the ranks that share the unit have, in their order.
  std::vector<float> of_all_ranks(std::span<const float> own) {
    std::vector<float> all;
    for (const auto& part : ranks_.all_gather_bytes(std::as_bytes(own))) {
      const std::size_t before = all.size();
      all.resize(before + part.size() / sizeof(float));
      if (!part.empty()) std::memcpy(all.data() + before, part.data(), part.size());
    }
    return all;
  }

  /// Values of what this rank keeps of a matrix. Rows, or blocks of them, may go on in another
  /// rank's shard or part: who has some of one reads all of it. Its scale is that of the rank with
  /// the first element.
  void quantise_to_fp8(int row) {
    namespace at_plane = model::fp8_plane;
    std::vector<float> own;
    agree_over_parts(shards_, ranks_, [&] {
      for (const FrozenSlice& slice : slices_)
        if (slice.plane.row == row && slice.plane.plane == at_plane::values)
          quantise_values(slice, own);
    });
    const std::vector<float> scales = of_all_ranks(own);
    for (const FrozenSlice& slice : slices_)
      if (slice.plane.row == row && slice.plane.plane == at_plane::scales)
        std::copy_n(scales.begin() + slice.first, slice.count, as<float>(bytes_of(slice)).begin());
  }

  void quantise_values(const FrozenSlice& slice, std::vector<float>& scales) {
    const model::Parameter& own = table_.row(slice.plane.row);
    const std::int64_t columns = own.shape[1], together = rows_of_a_scale(own.packing);
    const std::int64_t all_columns = model::whole_of(own).shape[1];
    const std::int64_t band = columns * together;
    const std::int64_t step =
        std::max<std::int64_t>(1, piece_elements / (all_columns * together)) * band;
    const std::int64_t end = slice.first + slice.count;
    const std::span<std::byte> target = bytes_of(slice);
    for (std::int64_t at = slice.first / band * band; at < end; at += step) {
      const std::int64_t last = std::min(at + step, (end + band - 1) / band * band);
      const model::Quantised rows = quantised_rows(slice.plane.row, at / columns, last / columns);
      const at::Tensor values = rows.values.view(at::kByte).contiguous();
      const std::int64_t from = std::max(at, slice.first), to = std::min(last, end);
      std::memcpy(target.data() + (from - slice.first),
                  static_cast<const std::byte*>(values.const_data_ptr()) + (from - at),
                  static_cast<std::size_t>(to - from));
      const at::Tensor first_bands =
          rows.scales.narrow(0, at < slice.first ? 1 : 0, rows.scales.size(0) - (at < slice.first));
      const at::Tensor flat = first_bands.contiguous();
      scales.insert(scales.end(), flat.const_data_ptr<float>(),
                    flat.const_data_ptr<float>() + flat.numel());
    }
  }

  /// Rows [first, last) of what this rank has of a matrix.
  model::Quantised quantised_rows(int row, std::int64_t first, std::int64_t last) {
    const model::Parameter& own = table_.row(row);
    const model::Parameter whole = model::whole_of(own);
    const std::int64_t columns = own.shape[1], all_columns = whole.shape[1];
    if (columns == all_columns || own.packing.group_size > 0) {
      values_.resize(static_cast<std::size_t>((last - first) * columns));
      read(row, first * columns, values_);
      return quantise_rows(own, first, values_);
    }
    // Ranks of tp share the inputs of each row, and its scale.
    values_.resize(static_cast<std::size_t>((last - first) * all_columns));
    source_.values(row, first * all_columns, values_);
    model::Quantised rows = quantise_rows(whole, first, values_);
    rows.values = rows.values.narrow(1, own.held->boxes.front().begin[1], columns);
    return rows;
  }

  void quantise_codes(const FrozenSlice& slice, std::vector<float>& maxima) {
    const int row = slice.plane.row;
    const std::int64_t first = 2 * slice.first;
    const std::int64_t count = std::min(2 * slice.count, table_.row(row).count() - first);
    const std::size_t before = maxima.size();
    maxima.resize(before + num_blocks(count));
    quantise_run(
        table_.row(row), first, count,
        [&](std::int64_t begin, std::span<float> values) { read(row, begin, values); },
        as<std::uint8_t>(bytes_of(slice)), std::span(maxima).subspan(before));
  }

  /// The logical tensor's maxima, of those that each rank has of its part: those of tp, and of ep
  /// where experts are one tensor.
  std::vector<float> of_all_parts(int row, std::vector<float> own) {
    const model::Parameter& part = table_.row(row);
    const auto& groups = shards_.groups();
    model::PartPlace place = groups.part_place();
    if (!is_shared_by_ep(row)) place.ep = 1, place.i_ep = 0;
    if (!part.held || place.is_whole()) return own;
    const model::Parameter whole = model::whole_of(part);
    std::vector<float> all(num_blocks(whole.count()));
    set_parts_of_tp(whole, place, own, all);
    if (place.ep == 1) return all;
    // What the others have is 0 here.
    for (const auto& bytes :
         groups.ep->communicator().all_gather_bytes(std::as_bytes(std::span(all)))) {
      std::vector<float> of_rank(all.size());
      std::memcpy(of_rank.data(), bytes.data(), bytes.size());
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = std::max(all[i], of_rank[i]);
    }
    return all;
  }

  void set_parts_of_tp(const model::Parameter& whole, model::PartPlace place,
                       const std::vector<float>& own, std::vector<float>& all) {
    std::vector<std::vector<std::byte>> parts;
    const auto own_bytes = std::as_bytes(std::span(own));
    if (place.tp > 1)
      parts = shards_.groups().tp->communicator().all_gather_bytes(own_bytes);
    else
      parts.emplace_back(own_bytes.begin(), own_bytes.end());
    for (place.i_tp = 0; place.i_tp < place.tp; ++place.i_tp) {
      const model::Parameter of = model::part_of(whole, place);
      const std::byte* from = parts[static_cast<std::size_t>(place.i_tp)].data();
      model::for_each_run(of, 0, of.count(), [&](std::int64_t logical, std::int64_t count) {
        const std::size_t bytes = num_blocks(count) * sizeof(float);
        std::memcpy(all.data() + logical / kernels::nf4_block, from, bytes);
        from += bytes;
      });
    }
  }

  /// The first of all ranks that share the tensor.
  bool is_first(int row) const {
    const model::PartPlace place = shards_.groups().part_place();
    return ranks_.is_root() && place.i_tp == 0 && (place.i_ep == 0 || !is_shared_by_ep(row));
  }

  /// Planes of the maxima of a logical tensor, which no rank keeps, for the hash of the base.
  void note(int row, std::span<const std::vector<std::byte>> planes) {
    namespace at_plane = model::nf4_plane;
    const auto all = model::planes(model::whole_of(table_.row(row)), core::DType::f32);
    for (int i = at_plane::maxima; i < static_cast<int>(all.size()); ++i) {
      const auto at = static_cast<std::size_t>(i);
      shards_.note_of_frozen() += sum_of_plane(row, i, all[at].dtype, planes[at]);
    }
  }

  void note_maxima_of_files() {
    for (const int row : rows_) {
      const model::Parameter& own = table_.row(row);
      if (!own.packing.in_files || keeps_maxima(own) || is_elsewhere(row) || !is_first(row))
        continue;
      std::vector<std::vector<std::byte>> planes;
      for (const model::Plane& plane : model::planes(model::whole_of(own), core::DType::f32)) {
        const auto i = static_cast<int>(planes.size());
        planes.emplace_back();
        if (i == model::nf4_plane::codes) continue;
        planes.back().resize(static_cast<std::size_t>(plane.size_bytes()));
        source_.plane(row, i, 0, planes.back());
      }
      note(row, planes);
    }
  }

  void fill_maxima(int row, std::span<const float> maxima) {
    namespace at_plane = model::nf4_plane;
    std::array<std::vector<std::byte>, 4> planes;
    const auto set = [&](int plane, auto values) {
      const auto bytes = std::as_bytes(values);
      planes[static_cast<std::size_t>(plane)].assign(bytes.begin(), bytes.end());
    };
    const model::Parameter whole = model::whole_of(table_.row(row));
    if (whole.packing.nests) {
      const float offset = kernels::nested_offset(maxima);
      std::vector<std::uint8_t> codes(maxima.size());
      std::vector<float> nested((maxima.size() + kernels::nested_block - 1) /
                                kernels::nested_block);
      kernels::nested_quantize(maxima, offset, codes, nested);
      set(at_plane::maxima, std::span<const std::uint8_t>(codes));
      set(at_plane::nested_maxima, std::span<const float>(nested));
      set(at_plane::offset, std::span<const float>(&offset, 1));
    } else {
      set(at_plane::maxima, maxima);
    }
    const auto kinds = model::planes(whole, core::DType::f32);
    const auto logical = [&](int i, std::int64_t first, std::span<std::byte> target) {
      const auto at = static_cast<std::size_t>(i);
      std::memcpy(target.data(), planes[at].data() + first * core::size_bytes(kinds[at].dtype),
                  target.size());
    };
    for (const FrozenSlice& slice : slices_) {
      if (slice.plane.row != row || slice.plane.plane == at_plane::codes) continue;
      read_own_plane(table_.row(row), slice.plane.plane, slice.first, bytes_of(slice), logical);
    }
    if (!keeps_maxima(table_.row(row)) && is_first(row)) note(row, planes);
  }

  const WeightSource& source_;
  shard::ModelShards& shards_;
  const model::ParameterTable& table_;
  const comm::Communicator& ranks_;
  shard::HostCopy copy_;
  std::vector<FrozenSlice> slices_;
  const std::vector<int>& rows_;
  std::vector<float> values_;
};

}  // namespace

void load_frozen(const WeightSource& source, shard::ModelShards& shards) {
  shards.note_of_frozen() = 0;
  for (int unit = 0; unit < shards.num_units(); ++unit)
    if (!shards.is_trained(unit)) UnitFiller(source, shards, unit).fill();
}

}  // namespace finetune::base
