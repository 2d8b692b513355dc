// SPDX-License-Identifier: Apache-2.0
#include "optimizers/muon/matrices.hpp"

#include <algorithm>
#include <numeric>

namespace finetune::optimizers::muon {
namespace {

double work_of(const Matrix& matrix) {
  return static_cast<double>(matrix.height) * static_cast<double>(matrix.width) *
         static_cast<double>(std::min(matrix.height, matrix.width));
}

/// The largest first, each to whoever has least.
void choose_owners(std::vector<Matrix>& matrices, std::int64_t num_ranks) {
  std::vector<std::size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t i) { return work_of(matrices[i]); });
  std::vector<double> work(static_cast<std::size_t>(num_ranks), 0);
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(work);
    matrices[i].owner = static_cast<int>(least - work.begin());
    *least += work_of(matrices[i]);
  }
}

}  // namespace

bool is_matrix(const model::ParameterTable& table, int row) {
  const model::Parameter& parameter = table.row(row);
  int head = 0;
  for (const model::Parameter& each : table.rows)
    head = std::max(head, each.stage);
  return parameter.trainable && !parameter.trained_rows && parameter.shape.size() >= 2 &&
         parameter.stage > 0 && parameter.stage < head;
}

std::vector<Matrix> matrices_of(const shard::ModelShards& shards, int unit) {
  const plan::UnitLayout& layout = shards.map().unit(unit);
  std::vector<Matrix> matrices;
  for (std::size_t i = 0; i < layout.rows.size(); ++i) {
    if (!is_matrix(shards.table(), layout.rows[i])) continue;
    const model::Parameter& row = shards.table().row(layout.rows[i]);
    const std::int64_t width = row.shape.back(), height = row.shape[row.shape.size() - 2];
    for (std::int64_t first = 0; first < row.count(); first += height * width)
      matrices.push_back({layout.rows[i], layout.offsets[i] + first, height, width});
  }
  choose_owners(matrices, layout.num_shards);
  return matrices;
}

at::Tensor for_whole_matrices(const shard::ModelShards& shards, int unit,
                              const std::vector<Matrix>& matrices, const at::Tensor& shard,
                              const std::function<at::Tensor(const at::Tensor&)>& f) {
  const plan::UnitLayout& layout = shards.map().unit(unit);
  const shard::Groups& groups = shards.groups();
  const bool gathers = groups.gathers(layout);
  // Where ranks gather; offloaded states are elsewhere.
  const at::Tensor own = shard.to(shards.options().device);
  at::Tensor whole = own;
  if (gathers) {
    whole = at::empty({layout.padded_count()}, own.options());
    comm::Group& group = groups.of(layout);
    group.wait(
        group.all_gather(core::DType::f32, own.data_ptr(), whole.data_ptr(), layout.shard_size));
  }
  at::Tensor made = at::zeros({layout.padded_count()}, own.options());
  const int rank = gathers ? groups.of(layout).rank() : 0;
  for (const Matrix& each : matrices) {
    if (gathers && each.owner != rank) continue;
    const std::int64_t count = each.height * each.width;
    made.narrow(0, each.first, count)
        .view({each.height, each.width})
        .copy_(f(whole.narrow(0, each.first, count).view({each.height, each.width})));
  }
  if (!gathers) return made.to(shard.device());
  at::Tensor result = at::empty({layout.shard_size}, own.options());
  comm::Group& group = groups.of(layout);
  group.wait(group.reduce_scatter(core::DType::f32, made.data_ptr(), result.data_ptr(),
                                  layout.shard_size));
  return result.to(shard.device());
}

}  // namespace finetune::optimizers::muon
