// SPDX-License-Identifier: Apache-2.0
#include "base/nf4_files.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "core/dtype.hpp"
#include "core/error.hpp"
#include "kernels/nf4.hpp"
#include "model/packing.hpp"

namespace finetune::base {
namespace {

using core::DType;

/// As torch calls it.
std::string torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

/// The offset is not known before the tensor is quantised, but the length of its text is fixed: the
/// number is written with so many digits, and blanks behind it.
constexpr std::size_t number_bytes = 24;

template <typename T>
std::span<const std::byte> bytes(const T& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

Nf4Files::Nf4Files(const weights::ModelFiles& files, const model::ParameterTable& table)
    : files_(files), table_(table) {
  std::set<std::string_view> known;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const model::Parameter& row = table.rows[i];
    known.insert(row.name);
    if (row.packing.is_dense()) {
      const auto& entry = files.entry(row.name);
      add(row.name, entry.dtype, entry.shape, {-1, Part::whole});
    } else {
      add_packed(static_cast<int>(i));
    }
  }
  for (const std::string& name : files.names()) {
    const auto& entry = files.entry(name);
    if (!known.contains(name)) add(name, entry.dtype, entry.shape, {-1, Part::whole});
  }
}

void Nf4Files::add(std::string name, DType dtype, std::vector<std::int64_t> shape, Source source) {
  sources_[name] = source;
  tensors_.push_back({std::move(name), dtype, std::move(shape)});
}

void Nf4Files::add_packed(int index) {
  const model::Parameter& row = table_.row(index);
  const auto planes = model::planes(row, DType::f32);
  namespace plane = model::nf4_plane;
  const auto add_plane = [&](int i, Part part) {
    const model::Plane& one = planes[static_cast<std::size_t>(i)];
    add(row.name + one.suffix, one.dtype, one.shape, {index, part});
  };
  add_plane(plane::codes, Part::codes);
  add_plane(plane::maxima, Part::maxima);
  add(row.name + ".quant_map", DType::f32, {std::ssize(kernels::nf4_levels())},
      {index, Part::levels});
  if (row.packing.nests) {
    add_plane(plane::nested_maxima, Part::nested_maxima);
    add(row.name + ".nested_quant_map", DType::f32, {std::ssize(kernels::nested_levels())},
        {index, Part::nested_levels});
  }
  add(row.name + ".quant_state.bitsandbytes__nf4", DType::u8, {std::ssize(state_text(index, 0))},
      {index, Part::state});
}

std::string Nf4Files::state_text(int index, float offset) const {
  const model::Parameter& row = table_.row(index);
  nlohmann::ordered_json state = {{"quant_type", "nf4"},
                                  {"blocksize", kernels::nf4_block},
                                  {"dtype", torch_name(files_.entry(row.name).dtype)},
                                  {"shape", row.shape}};
  if (!row.packing.nests) return state.dump();
  state["nested_blocksize"] = kernels::nested_block;
  state["nested_dtype"] = "float32";
  state["nested_offset"] = double{offset};
  std::string text = state.dump();
  const std::size_t number = text.rfind(':') + 1;
  const std::size_t digits = text.size() - 1 - number;
  core::check(digits <= number_bytes, "a number is short");
  text.insert(text.size() - 1, number_bytes - digits, ' ');
  return text;
}

const Nf4Tensor& Nf4Files::quantised(int index) {
  if (made_ != index) {
    const model::Parameter& row = table_.row(index);
    tensor_ = quantise(row, values_in(files_, row));
    made_ = index;
  }
  return tensor_;
}

std::span<const std::byte> Nf4Files::bytes_of(const Source& source) {
  if (source.part == Part::levels) return std::as_bytes(kernels::nf4_levels());
  if (source.part == Part::nested_levels) return std::as_bytes(kernels::nested_levels());
  const Nf4Tensor& tensor = quantised(source.row);
  switch (source.part) {
    case Part::codes:
      return bytes(tensor.codes);
    case Part::nested_maxima:
      return bytes(tensor.nested_maxima);
    case Part::maxima:
      return table_.row(source.row).packing.nests ? bytes(tensor.maxima_codes)
                                                  : bytes(tensor.maxima);
    default:
      state_ = state_text(source.row, tensor.offset);
      return bytes(state_);
  }
}

void Nf4Files::read(std::string_view name, std::int64_t first, std::span<std::byte> target) {
  const auto found = sources_.find(name);
  core::check(found != sources_.end(), "only known tensors are read");
  if (found->second.row < 0) return files_.read_stored(name, first, target);
  const auto all = bytes_of(found->second);
  const auto dtype =
      found->second.part == Part::codes || found->second.part == Part::state ||
              (found->second.part == Part::maxima && table_.row(found->second.row).packing.nests)
          ? DType::u8
          : DType::f32;
  const auto begin = static_cast<std::size_t>(first * core::size_bytes(dtype));
  core::check(begin + target.size() <= all.size(), "a piece lies inside its tensor");
  std::memcpy(target.data(), all.data() + begin, target.size());
}

core::Json nf4_config(bool nests, const std::string& dtype) {
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"bnb_4bit_quant_type", "nf4"},
          {"bnb_4bit_use_double_quant", nests},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_compute_dtype", dtype},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_skip_modules", {"lm_head"}},
          {"llm_int8_threshold", 6.0}};
}

}  // namespace finetune::base
