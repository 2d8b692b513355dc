// SPDX-License-Identifier: Apache-2.0
#include "base/initial_weights.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/detail/agree_over_parts.hpp"
#include "base/detail/base_weights.hpp"
#include "base/detail/transposed_files.hpp"
#include "base/detail/unpacked_values.hpp"
#include "base/fp8_files.hpp"
#include "base/mxfp4_files.hpp"
#include "base/packed_files.hpp"
#include "base/starts.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "model/part.hpp"
#include "shard/started.hpp"
#include "weights/expected.hpp"
#include "weights/finite.hpp"

namespace finetune::base {
namespace {

/// Calls `fill(row, first element, values)` for every run of logical tensors that are trained among
/// this rank's shards, in fp32.
template <typename Fill>
void for_each_run(shard::ModelShards& shards, const Fill& fill) {
  for (const int unit : shards.trained_units()) {
    at::Tensor master = shards.master(unit);
    const bool is_direct = master.is_cpu() && master.scalar_type() == at::kFloat;
    const at::Tensor values = is_direct ? master : at::zeros({master.numel()}, at::kFloat);
    for (const plan::ShardSlice& slice : shards.map().slices(unit, shards.shard_of(unit))) {
      float* target = values.data_ptr<float>() + slice.shard_offset;
      model::for_each_run(shards.table().row(slice.row), slice.tensor_offset, slice.count,
                          [&](std::int64_t first, std::int64_t count) {
                            fill(slice.row, first,
                                 std::span(target, static_cast<std::size_t>(count)));
                            target += count;
                          });
    }
    if (!is_direct) master.copy_(values);
  }
}

constexpr const char* tied_head = "lm_head.weight";

std::vector<weights::ExpectedTensor> expected_tensors(const weights::ModelFiles& files,
                                                      const model::Architecture& architecture,
                                                      const model::ParameterTable& table) {
  std::vector<weights::ExpectedTensor> expected;
  for (const model::Parameter& row : table.rows) {
    if (row.adapts >= 0 || row.is_new) continue;
    if (row.packing.in_files) {
      add_expected(files, row, table, expected);
    } else if (is_fp8_in(files, row)) {
      add_expected_fp8(files, row, expected);
    } else if (is_mxfp4_in(files, row)) {
      add_expected_mxfp4(files, row, expected);
    } else if (!row.of_files.is_dense()) {
      add_expected(files, as_in_files(row), table, expected);
    } else {
      expected.push_back({.name = row.name, .shape = shape_in_files(row), .optional = false});
    }
  }
  if (architecture.tied_embeddings) {
    // Some files carry the tied head a second time.
    expected.push_back({.name = tied_head, .shape = table.rows.front().shape, .optional = true});
  }
  return expected;
}

/// A head of its own, which config.json denies, would be lost without a word.
/// Throws: ErrorKind::input.
void require_tied_head(const weights::ModelFiles& files, const model::Parameter& embedding) {
  if (!files.contains(tied_head)) return;
  constexpr std::int64_t most_compared = 1 << 20;
  const auto read = [&](const std::string& name, std::int64_t first, std::span<float> target) {
    files.read({.name = name,
                .shape = files.entry(name).shape,
                .dtype = core::DType::f32,
                .offset = first,
                .count = std::ssize(target)},
               std::as_writable_bytes(target));
  };
  const std::int64_t count = embedding.count();
  std::vector<float> of_head, of_embedding;
  for (std::int64_t first = 0; first < count; first += most_compared) {
    const auto size = static_cast<std::size_t>(std::min(most_compared, count - first));
    of_head.resize(size);
    of_embedding.resize(size);
    read(tied_head, first, of_head);
    read(embedding.name, first, of_embedding);
    const auto [in_head, in_embedding] = std::ranges::mismatch(of_head, of_embedding);
    if (in_head == of_head.end()) continue;
    const std::int64_t row = (first + (in_head - of_head.begin())) / embedding.shape.back();
    core::fail(core::ErrorKind::input,
               {files.folder().string(),
                fmt::format("{} differs from {}, first in row {}", tied_head, embedding.name, row),
                "config.json says by \"tie_word_embeddings\" that they are one tensor",
                "Set \"tie_word_embeddings\" to false there to use both, or take the head out of "
                "the files."});
  }
}

/// A float64 too large for fp32 counts as infinite: that is what would be trained.
/// Throws: ErrorKind::input naming tensor and file.
void require_finite(const weights::ModelFiles& files, const model::Parameter& row,
                    std::int64_t first, std::span<const float> values) {
  const auto found = weights::find_not_finite(values);
  if (!found) return;
  weights::refuse_not_finite(files, row.name, row.shape, first + static_cast<std::int64_t>(*found),
                             values[*found]);
}

/// What a thread gets at least: a third of a millisecond of Philox, logarithms and cosines.
constexpr std::int64_t grain_values = 8192;

float random_value(const model::Parameter& row, const core::RandomKey& key, std::uint64_t element,
                   double std) {
  if (row.init == model::Init::normal) return static_cast<float>(key.normal(element) * std);
  if (row.init == model::Init::unit_normal) return static_cast<float>(key.normal(element));
  if (row.init == model::Init::decays) {
    constexpr double least = 0.01, most = 16;
    return static_cast<float>(std::log(least + (most - least) * key.uniform(element)));
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(row.shape.back()));
  return static_cast<float>(bound * (2 * key.uniform(element) - 1));
}

}  // namespace

core::TensorSlice tensor_slice(const model::Parameter& parameter, const plan::ShardSlice& slice) {
  return {.name = parameter.name,
          .shape = parameter.shape,
          .dtype = core::DType::f32,
          .offset = slice.tensor_offset,
          .count = slice.count};
}

WeightSource files_source(const weights::ModelFiles& files, const model::ParameterTable& table) {
  const auto values = [&files, &table, read = RowReader(files)](int row, std::int64_t first,
                                                                std::span<float> target) {
    read(table.row(row), first, target);
    require_finite(files, table.row(row), first, target);
  };
  const auto plane = [&files, &table](int row, int i, std::int64_t first,
                                      std::span<std::byte> target) {
    read_plane(files, table.row(row), i, first, target);
  };
  return {values, plane};
}

WeightSource random_source(const model::Architecture& architecture,
                           const model::ParameterTable& table, std::uint64_t seed) {
  const double std = architecture.init_std;
  return {[&table, std, seed](int i, std::int64_t first, std::span<float> target) {
    const model::Parameter& row = table.row(i);
    using enum model::Init;
    if (row.init == ones || row.init == zeros || row.init == row_norms) {
      std::ranges::fill(target, row.init == ones ? 1.0f : 0.0f);
      return;
    }
    const core::RandomKey key(seed, core::RandomUse::weights, static_cast<std::uint64_t>(i));
    at::parallel_for(0, std::ssize(target), grain_values,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t k = begin; k < end; ++k)
                         target[static_cast<std::size_t>(k)] =
                             random_value(row, key, static_cast<std::uint64_t>(first + k), std);
                     });
  }};
}

WeightSource with_adapter(WeightSource base, WeightSource adapter,
                          const model::ParameterTable& table) {
  WeightSource both;
  both.plane = base.plane;
  both.values = [base = std::move(base.values), adapter = std::move(adapter.values), &table](
                    int row, std::int64_t first, std::span<float> target) {
    const bool is_drawn = table.row(row).adapts >= 0 || table.row(row).is_new;
    (is_drawn ? adapter : base)(row, first, target);
  };
  return both;
}

void load_trained(const WeightSource& source, shard::ModelShards& shards) {
  const auto load = [&] { for_each_run(shards, source.values); };
  // What follows may communicate: a rank that threw must not leave the others waiting in it.
  agree_over_parts(shards, shards.fsdp(), load);
  shards.publish_all();
}

void load_weights(const WeightSource& source, shard::ModelShards& shards) {
  load_trained(source, shards);
  load_frozen(source, shards);
}

namespace {

/// Norms of the rows of what is a matrix [out, in] of the model, [out] fp32. Collective on tp where
/// its ranks share the inputs.
at::Tensor row_norms(const shard::ModelShards& shards, int row) {
  const at::Tensor norms = at::linalg_vector_norm(shards.weight({row, 1}), 2, 1,
                                                  /*keepdim=*/false, at::kFloat);
  const auto& tp = shards.groups().tp;
  const auto& split = shards.table().row(row).split;
  if (!tp || !split || split->dim != 1) return norms;
  at::Tensor squares = norms.square();
  shard::Started(*tp, {squares}, [&] {
    return tp->all_reduce(core::DType::f32, squares.data_ptr(), squares.numel());
  }).wait();
  return squares.sqrt_();
}

}  // namespace

void set_magnitudes(shard::ModelShards& shards) {
  const model::ParameterTable& table = shards.table();
  bool are_there = false;
  int last_unit = 0;
  for (int magnitude = 0; magnitude < static_cast<int>(table.rows.size()); ++magnitude) {
    if (table.row(magnitude).init != model::Init::row_norms) continue;
    const int row = table.row(magnitude).adapts;
    are_there = true;
    const int unit = shards.unit_of(row);
    // Matrices of a unit follow each other: it is gathered once.
    if (unit != last_unit) shards.release(last_unit);
    last_unit = unit;
    shards.open(unit);
    const at::Tensor norms = row_norms(shards, row);
    shards.close(unit);
    const int of_adapters = shards.unit_of(magnitude);
    for (const plan::ShardSlice& slice :
         shards.map().slices(of_adapters, shards.shard_of(of_adapters)))
      if (slice.row == magnitude)
        shards.master(of_adapters)
            .narrow(0, slice.shard_offset, slice.count)
            .copy_(norms.narrow(0, slice.tensor_offset, slice.count));
  }
  if (are_there) shards.publish_all();
}

void require_same_tensors(const weights::ModelFiles& files, const model::Architecture& architecture,
                          const model::ParameterTable& table) {
  require_whole(files, table);
  std::vector<std::string> others = table.foreign;
  others.insert(others.end(), table.replaced.begin(), table.replaced.end());
  weights::check(files, expected_tensors(files, architecture, table),
                 (files.folder() / "config.json").string(), others);
}

void require_same_model(const weights::ModelFiles& files, const model::Architecture& architecture,
                        const model::ParameterTable& table) {
  require_same_tensors(files, architecture, table);
  if (architecture.tied_embeddings) require_tied_head(files, table.rows.front());
  require_known_levels(files, table);
}

void import_weights(const weights::ModelFiles& files, const model::Architecture& architecture,
                    const model::ParameterTable& table, shard::ModelShards& shards) {
  require_same_model(files, architecture, table);
  load_weights(files_source(files, table), shards);
}

void randomize(const model::Architecture& architecture, const model::ParameterTable& table,
               std::uint64_t seed, shard::ModelShards& shards) {
  load_weights(random_source(architecture, table, seed), shards);
  set_magnitudes(shards);
  set_starts(seed, shards);
}

}  // namespace finetune::base
