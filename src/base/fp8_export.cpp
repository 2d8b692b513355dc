// SPDX-License-Identifier: Apache-2.0
#include "base/fp8_export.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/detail/fp8_tiles.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"
#include "model/fp8.hpp"

namespace finetune::base {
namespace {

using core::DType;

constexpr std::string_view weight_suffix = ".weight";

/// Elements that are in memory as fp32 at once.
constexpr std::int64_t values_at_once = std::int64_t{4} << 20;

/// As programs write them: in the dtype of what they scale.
DType dtype_of_scales(DType of_weight) {
  return of_weight == DType::bf16 || of_weight == DType::f16 ? of_weight : DType::f32;
}

float rounded(float value, DType dtype) {
  if (dtype == DType::bf16) return core::bf16_to_float(core::float_to_bf16(value));
  return dtype == DType::f16 ? core::f16_to_float(core::float_to_f16(value)) : value;
}

Fp8Tiles tiles_of(const model::Parameter& row, Fp8Scales of) {
  core::check(row.shape.size() == 2 && row.count() > 0, "a matrix is quantised");
  const std::int64_t inputs = row.shape[1];
  return of == Fp8Scales::tensor ? Fp8Tiles{inputs, row.shape[0], inputs}
                                 : Fp8Tiles{inputs, model::fp8_block, model::fp8_block};
}

core::Json scheme(const char* strategy, bool is_dynamic) {
  return {{"actorder", nullptr},
          {"block_structure", nullptr},
          {"dynamic", is_dynamic},
          {"group_size", nullptr},
          {"num_bits", 8},
          {"observer", is_dynamic ? core::Json() : core::Json("minmax")},
          {"observer_kwargs", core::Json::object()},
          {"strategy", strategy},
          {"symmetric", true},
          {"type", "float"}};
}

}  // namespace

std::vector<float> fp8_scales(const model::Parameter& row, Fp8Scales of, DType dtype,
                              const ReadValues& read) {
  const Fp8Tiles tiles = tiles_of(row, of);
  std::vector<float> scales(static_cast<std::size_t>(tiles.down(row.shape[0]) * tiles.across()));
  std::vector<float> values;
  for (std::int64_t first = 0; first < row.count(); first += values_at_once) {
    values.resize(static_cast<std::size_t>(std::min(values_at_once, row.count() - first)));
    read(first, values);
    require_finite(row.name, "element", row.shape, first, values);
    tiles.for_each_run(first, std::ssize(values),
                       [&](std::size_t tile, std::size_t from, std::size_t count) {
                         for (std::size_t i = from; i < from + count; ++i)
                           scales[tile] = std::max(scales[tile], std::abs(values[i]));
                       });
  }
  for (float& scale : scales) {
    scale = rounded(scale / core::largest_f8_e4m3, dtype);
    if (scale == 0) scale = 1;
  }
  return scales;
}

void fp8_codes(const model::Parameter& row, Fp8Scales of, std::span<const float> scales,
               std::int64_t first, std::span<const float> values, std::span<std::byte> codes) {
  tiles_of(row, of).for_each_run(
      first, std::ssize(values), [&](std::size_t tile, std::size_t from, std::size_t count) {
        for (std::size_t i = from; i < from + count; ++i)
          codes[i] = std::byte{core::float_to_f8_e4m3(values[i] / scales[tile])};
      });
}

Fp8Export::Fp8Export(const weights::ModelFiles& files, const model::ParameterTable& table,
                     Fp8Scales scales)
    : files_(files), table_(table), scales_(scales) {
  std::set<std::string_view> embeddings;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const model::Parameter& row = table.rows[i];
    if (model::is_looked_up(row.role)) embeddings.insert(row.name);
    if (!row.packing.is_dense()) add_packed(static_cast<int>(i));
  }
  not_packed_.emplace_back("lm_head");  // a tied one is not in the files
  for (const std::string& name : files.names()) {
    if (packed_.contains(name)) continue;
    const auto& entry = files.entry(name);
    tensors_.push_back({name, entry.dtype, entry.shape});
    // Linear layers are known by their matrices; of other parts of the model as well.
    if (!name.ends_with(weight_suffix) || entry.shape.size() != 2 || embeddings.contains(name))
      continue;
    std::string module = name.substr(0, name.size() - weight_suffix.size());
    if (module != not_packed_.front()) not_packed_.push_back(std::move(module));
  }
}

void Fp8Export::add_packed(int index) {
  const model::Parameter& row = table_.row(index);
  const Fp8Tiles tiles = tiles_of(row, scales_);
  const std::string scales = row.name + "_scale";
  tensors_.push_back({row.name, DType::f8_e4m3, row.shape});
  tensors_.push_back({scales, dtype_of_scales(files_.entry(row.name).dtype),
                      scales_ == Fp8Scales::tensor
                          ? std::vector<std::int64_t>{1}
                          : std::vector{tiles.down(row.shape[0]), tiles.across()}});
  packed_[row.name] = {index, false};
  packed_[scales] = {index, true};
}

const std::vector<float>& Fp8Export::scales_of(int index) {
  const auto [at, is_new] = made_.try_emplace(index);
  const model::Parameter& row = table_.row(index);
  if (is_new)
    at->second = fp8_scales(
        row, scales_, dtype_of_scales(files_.entry(row.name).dtype),
        [&](std::int64_t first, std::span<float> target) { read_values(index, first, target); });
  return at->second;
}

void Fp8Export::read_values(int index, std::int64_t first, std::span<float> target) const {
  const model::Parameter& row = table_.row(index);
  files_.read({.name = row.name,
               .shape = row.shape,
               .dtype = DType::f32,
               .offset = first,
               .count = std::ssize(target)},
              std::as_writable_bytes(target));
}

void Fp8Export::read(std::string_view name, std::int64_t first, std::span<std::byte> target) {
  const auto found = packed_.find(name);
  if (found == packed_.end()) return files_.read_stored(name, first, target);
  const int index = found->second.row;
  const model::Parameter& row = table_.row(index);
  const std::vector<float>& scales = scales_of(index);
  if (found->second.is_scales) {
    const DType dtype = dtype_of_scales(files_.entry(row.name).dtype);
    const std::size_t count = target.size() / static_cast<std::size_t>(core::size_bytes(dtype));
    return core::convert(
        DType::f32,
        std::as_bytes(std::span(scales).subspan(static_cast<std::size_t>(first), count)), dtype,
        target);
  }
  std::vector<float> values;
  for (std::size_t done = 0; done < target.size(); done += values.size()) {
    values.resize(std::min(static_cast<std::size_t>(values_at_once), target.size() - done));
    const std::int64_t from = first + static_cast<std::int64_t>(done);
    read_values(index, from, values);
    fp8_codes(row, scales_, scales, from, values, target.subspan(done, values.size()));
  }
}

core::Json Fp8Export::config() const {
  const bool has_blocks = scales_ == Fp8Scales::block;
  core::Json weights = scheme(has_blocks ? "block" : "tensor", false);
  core::Json activations = scheme(has_blocks ? "group" : "token", true);
  if (has_blocks) {
    weights["block_structure"] = {model::fp8_block, model::fp8_block};
    activations["group_size"] = model::fp8_block;
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"kv_cache_scheme", nullptr},
          {"ignore", not_packed_},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights},
              {"input_activations", activations},
              {"output_activations", nullptr}}}}}};
}

}  // namespace finetune::base
