// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/fp8_unit.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/memory_use.hpp"
#include "model/fp8.hpp"
#include "model/fp8_runs.hpp"
#include "shard/options.hpp"
#include "shard/started.hpp"

namespace finetune::shard {
namespace {

at::Tensor to_index(const std::vector<std::int32_t>& places, at::Device device) {
  return at::tensor(places, at::kInt).to(device);
}

}  // namespace

std::shared_ptr<const Fp8Index> make_fp8_index(const plan::Fp8Layout& layout, at::Device device) {
  const auto sharers = static_cast<std::size_t>(layout.most_sharers());
  const auto num_scales = static_cast<std::size_t>(layout.num_scales());
  std::vector<std::int32_t> scales(sharers * num_scales, -1);
  std::vector<std::int32_t> others(static_cast<std::size_t>(layout.num_others()), 0);
  std::vector<std::size_t> found(num_scales, 0);
  for (std::size_t i = 0; i < layout.scales().size(); ++i) {
    const plan::Stretch& of_scales = layout.scales()[i];
    const auto first = static_cast<std::int64_t>(i) * layout.most_scales();
    for (std::int64_t k = 0; k < of_scales.count; ++k) {
      const auto scale = static_cast<std::size_t>(of_scales.first + k);
      scales[found[scale]++ * num_scales + scale] = static_cast<std::int32_t>(first + k);
    }
    const plan::Stretch& of_others = layout.others()[i];
    for (std::int64_t k = 0; k < of_others.count; ++k)
      others[static_cast<std::size_t>(of_others.first + k)] =
          static_cast<std::int32_t>(static_cast<std::int64_t>(i) * layout.most_others() + k);
  }
  // Where there are fewer, one of them again: the largest is the same.
  for (std::size_t i = num_scales; i < scales.size(); ++i)
    if (scales[i] < 0) scales[i] = scales[i - num_scales];
  return std::make_shared<const Fp8Index>(
      Fp8Index{to_index(scales, device), to_index(others, device)});
}

Fp8Unit::Fp8Unit(const model::ParameterTable& table, const plan::ShardMap& shards, int unit,
                 std::shared_ptr<const plan::Fp8Layout> layout,
                 std::shared_ptr<const Fp8Index> index, core::DType compute, at::Device device)
    : table_(table),
      shards_(shards),
      unit_(unit),
      layout_(std::move(layout)),
      index_(std::move(index)),
      compute_(compute),
      scales_(at::zeros({layout_->num_scales()}, at::TensorOptions(at::kFloat).device(device))),
      others_(
          at::zeros({layout_->num_others()}, at::TensorOptions(to_aten(compute)).device(device))) {}

std::int64_t Fp8Unit::place_of(int row) const {
  const std::vector<int>& rows = shards_.unit(unit_).rows;
  const auto found = std::find(rows.begin(), rows.end(), row);
  core::check(found != rows.end(), "the row is of the unit");
  return layout_->places()[static_cast<std::size_t>(found - rows.begin())];
}

std::int64_t Fp8Unit::outputs_of(model::RowRange rows) const {
  std::int64_t outputs = 0;
  for (int i = rows.first; i < rows.first + rows.num; ++i)
    outputs += table_.row(i).shape[0];
  return outputs;
}

at::Tensor Fp8Unit::scales_of(model::RowRange rows) const {
  const std::int64_t outputs = outputs_of(rows);
  const std::int64_t inputs = table_.row(rows.first).shape[1];
  const model::Tile tile = model::tile_of_matrix(scaling_of(table_.row(rows.first).published));
  const std::int64_t columns = tile.columns == 0 ? 1 : inputs / tile.columns;
  return scales_.narrow(0, place_of(rows.first), outputs / tile.rows * columns)
      .view({outputs / tile.rows, columns});
}

void Fp8Unit::publish(const at::Tensor& master, at::Tensor published, comm::Group* group) {
  const core::MemoryScope scope(core::MemoryUse::communication);
  // As units in the computation's dtype are published: numbers do not depend on how they travel.
  const at::Tensor shard = master.to(others_.device(), others_.scalar_type());
  const int i_shard = group == nullptr ? 0 : group->rank();
  const std::vector<plan::ShardSlice> slices = shards_.slices(unit_, i_shard);
  scales_.zero_();
  for (const plan::ShardSlice& slice : slices) {
    const model::Parameter& row = table_.row(slice.row);
    const at::Tensor own = shard.narrow(0, slice.shard_offset, slice.count);
    if (row.published.is_dense())
      others_.narrow(0, place_of(slice.row) + slice.tensor_offset, slice.count).copy_(own);
    else
      model::raise_largest({own, slice.tensor_offset, row.shape[1]},
                           model::tile_of_matrix(scaling_of(row.published)),
                           scales_of({slice.row, 1}));
  }
  if (group != nullptr) exchange(*group);
  scales_.copy_(model::fp8_scales(scales_, at::kFloat8_e4m3fn));
  // Padding, and rows that are not in 8 bits, travel for nothing.
  std::int64_t done = 0;
  for (const plan::ShardSlice& slice : slices) {
    const model::Parameter& row = table_.row(slice.row);
    if (row.published.is_dense()) continue;
    published.narrow(0, done, slice.shard_offset - done).zero_();
    done = slice.shard_offset + slice.count;
    model::quantise_run(
        {shard.narrow(0, slice.shard_offset, slice.count), slice.tensor_offset, row.shape[1]},
        model::tile_of_matrix(scaling_of(row.published)), scales_of({slice.row, 1}),
        published.narrow(0, slice.shard_offset, slice.count).view(at::kFloat8_e4m3fn));
  }
  published.narrow(0, done, published.numel() - done).zero_();
}

void Fp8Unit::exchange(comm::Group& group) {
  const std::int64_t bytes = layout_->message_bytes(compute_);
  const std::int64_t bytes_of_scales = layout_->most_scales() * std::int64_t{sizeof(float)};
  const std::int64_t bytes_of_others = layout_->most_others() * core::size_bytes(compute_);
  const auto in_bytes = scales_.options().dtype(at::kByte);
  const at::Tensor own = at::zeros({bytes}, in_bytes);
  const at::Tensor all = at::empty({group.size(), bytes}, in_bytes);
  const auto i = static_cast<std::size_t>(group.rank());
  const plan::Stretch &scales = layout_->scales()[i], &others = layout_->others()[i];
  own.narrow(0, 0, bytes_of_scales)
      .view(at::kFloat)
      .narrow(0, 0, scales.count)
      .copy_(scales_.narrow(0, scales.first, scales.count));
  own.narrow(0, bytes_of_scales, bytes_of_others)
      .view(others_.scalar_type())
      .narrow(0, 0, others.count)
      .copy_(others_.narrow(0, others.first, others.count));
  Started(group, {own, all}, [&] {
    return group.all_gather(core::DType::u8, own.data_ptr(), all.data_ptr(), bytes);
  }).wait();
  const at::Tensor largest = all.narrow(1, 0, bytes_of_scales).contiguous().view(at::kFloat);
  at::amax_out(scales_,
               largest.view({-1}).index_select(0, index_->scales).view({-1, scales_.numel()}), 0);
  if (others_.numel() == 0) return;
  const at::Tensor elements =
      all.narrow(1, bytes_of_scales, bytes_of_others).contiguous().view(others_.scalar_type());
  at::index_select_out(others_, elements.view({-1}), 0, index_->others);
}

model::Quantised Fp8Unit::matrix(const at::Tensor& full, model::RowRange rows) const {
  const std::int64_t outputs = outputs_of(rows);
  const std::int64_t inputs = table_.row(rows.first).shape[1];
  return {full.narrow(0, shards_.offset_of(rows.first), outputs * inputs)
              .view(at::kFloat8_e4m3fn)
              .view({outputs, inputs}),
          scales_of(rows)};
}

at::Tensor Fp8Unit::others(model::RowRange rows) const {
  std::int64_t count = 0;
  for (int i = rows.first; i < rows.first + rows.num; ++i)
    count += table_.row(i).count();
  return others_.narrow(0, place_of(rows.first), count);
}

}  // namespace finetune::shard
