// SPDX-License-Identifier: Apache-2.0
#include "base/starts.hpp"

#include <map>
#include <vector>

#include "comm/agree.hpp"
#include "model/adapter_math.hpp"
#include "shard/started.hpp"

namespace finetune::base {
namespace {

using model::Parameter;

class Starts {
 public:
  Starts(std::uint64_t seed, shard::ModelShards& shards) : seed_(seed), shards_(shards) {}

  /// Of rows of one unit, which is open.
  void set(const std::vector<int>& rows) {
    // Everybody waits for the gathered weights here, and not within what one rank computes.
    shards_.weight({rows.front(), 1});
    std::map<int, std::vector<at::Tensor>> made;
    comm::agree_all(shards_.fsdp(), [&] {
      for (const int row : rows) {
        if (next_owner_ == shards_.fsdp().rank()) made[row] = begin(row);
        next_owner_ = (next_owner_ + 1) % shards_.fsdp().size();
      }
    });
    for (const int row : rows)
      spread(row, made[row]);
  }

 private:
  const Parameter& parameter(int row) const { return shards_.table().row(row); }

  std::vector<at::Tensor> begin(int row) const {
    const model::Adapted& adapted = parameter(row).adapted;
    std::vector<std::vector<std::int64_t>> shapes;
    for (const int part : adapted.parts)
      shapes.push_back(part < 0 ? std::vector<std::int64_t>() : parameter(part).shape);
    constexpr std::uint64_t spacing = 0x9E3779B97F4A7C15;  // seeds of rows lie far apart
    return adapted.math->begin(adapted, shards_.weight({row, 1}).to(at::kFloat).cpu(), shapes,
                               seed_ + spacing * static_cast<std::uint64_t>(row + 1));
  }

  /// From the rank that computed them: the sum with the others' zeros. `made` is empty elsewhere.
  void spread(int row, const std::vector<at::Tensor>& made) {
    const std::vector<int>& parts = parameter(row).adapted.parts;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] < 0) continue;
      const at::Device device = shards_.options().device;
      const at::Tensor values =
          at::zeros(parameter(parts[i]).shape, at::TensorOptions(at::kFloat).device(device));
      if (!made.empty()) values.add_(made[i].to(device));  // -0 becomes 0, as in a sum
      comm::Group& group = *shards_.groups().fsdp;
      shard::Started(group, {values}, [&] {
        return group.all_reduce(core::DType::f32, values.data_ptr(), values.numel());
      }).wait();
      take(parts[i], values.view({-1}));
    }
  }

  /// This rank's shard of it.
  void take(int part, const at::Tensor& values) {
    const int unit = shards_.unit_of(part);
    for (const plan::ShardSlice& slice : shards_.map().slices(unit, shards_.shard_of(unit)))
      if (slice.row == part)
        shards_.master(unit)
            .narrow(0, slice.shard_offset, slice.count)
            .copy_(values.narrow(0, slice.tensor_offset, slice.count));
  }

  std::uint64_t seed_;
  shard::ModelShards& shards_;
  int next_owner_ = 0;
};

}  // namespace

void set_starts(std::uint64_t seed, shard::ModelShards& shards) {
  std::map<int, std::vector<int>> rows_of_units;
  const auto& rows = shards.table().rows;
  for (int row = 0; row < static_cast<int>(rows.size()); ++row)
    if (rows[static_cast<std::size_t>(row)].adapted.start != 0)
      rows_of_units[shards.unit_of(row)].push_back(row);
  if (rows_of_units.empty()) return;
  Starts starts(seed, shards);
  for (const auto& [unit, of_unit] : rows_of_units) {
    shards.open(unit);
    starts.set(of_unit);
    shards.close(unit);
    shards.release(unit);
  }
  shards.publish_all();
}

}  // namespace finetune::base
