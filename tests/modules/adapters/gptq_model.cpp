// SPDX-License-Identifier: Apache-2.0
#include "modules/adapters/gptq_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "core/json.hpp"
#include "weights/model_files.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::tests {
namespace {

using core::DType;

/// Tensors of a file, by name.
class Tensors {
 public:
  template <typename T>
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    bytes_[name].assign(bytes.begin(), bytes.end());
    specs_.push_back({name, dtype, std::move(shape)});
  }
  void write(const std::filesystem::path& path) {
    std::ranges::stable_sort(specs_, std::greater<>(), [](const weights::TensorSpec& spec) {
      return core::size_bytes(spec.dtype);
    });
    weights::SafetensorsWriter writer(path, specs_);
    for (const weights::TensorSpec& spec : specs_)
      writer.write(spec.name, bytes_.at(spec.name));
    writer.finish();
  }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::vector<weights::TensorSpec> specs_;
};

/// One matrix [outputs, inputs] in groups along its inputs.
struct Layer {
  std::int64_t outputs = 0, inputs = 0, groups = 0;
  std::vector<std::int32_t> group_of = {};  ///< [inputs]
  std::vector<std::uint16_t> scales = {};   ///< [groups, outputs] f16
  std::vector<int> zeros = {};              ///< [groups, outputs]
  std::vector<int> codes = {};              ///< [inputs, outputs]

  std::size_t at(std::int64_t row, std::int64_t output) const {
    return static_cast<std::size_t>(row * outputs + output);
  }
};

Layer quantise(const std::vector<float>& weight, std::int64_t outputs, std::int64_t inputs,
               const GptqChoice& choice) {
  Layer layer{.outputs = outputs, .inputs = inputs};
  const std::int64_t size = choice.group_size > 0 ? choice.group_size : inputs;
  layer.groups = (inputs + size - 1) / size;
  for (std::int64_t i = 0; i < inputs; ++i) {
    // A fixed shuffle: 7 is prime to all sizes here.
    const std::int64_t place = choice.act_order ? i * 7 % inputs : i;
    layer.group_of.push_back(static_cast<std::int32_t>(place / size));
  }
  const auto cells = static_cast<std::size_t>(layer.groups * outputs);
  std::vector<float> low(cells, 0), high(cells, 0);
  const auto value = [&](std::int64_t i, std::int64_t o) {
    return weight[static_cast<std::size_t>(o * inputs + i)];
  };
  for (std::int64_t i = 0; i < inputs; ++i) {
    for (std::int64_t o = 0; o < outputs; ++o) {
      const std::size_t cell = layer.at(layer.group_of[static_cast<std::size_t>(i)], o);
      low[cell] = std::min(low[cell], value(i, o));
      high[cell] = std::max(high[cell], value(i, o));
    }
  }
  for (std::size_t cell = 0; cell < cells; ++cell) {
    layer.scales.push_back(core::float_to_f16(std::max(1e-4f, (high[cell] - low[cell]) / 15)));
    const float scale = core::f16_to_float(layer.scales.back());
    layer.zeros.push_back(std::clamp(static_cast<int>(std::lround(-low[cell] / scale)), 1, 15));
  }
  layer.codes.resize(static_cast<std::size_t>(inputs * outputs));
  for (std::int64_t i = 0; i < inputs; ++i) {
    for (std::int64_t o = 0; o < outputs; ++o) {
      const std::size_t cell = layer.at(layer.group_of[static_cast<std::size_t>(i)], o);
      const float scale = core::f16_to_float(layer.scales[cell]);
      layer.codes[layer.at(i, o)] =
          std::clamp(static_cast<int>(std::lround(value(i, o) / scale)) + layer.zeros[cell], 0, 15);
    }
  }
  return layer;
}

std::vector<float> unpacked(const Layer& layer) {
  std::vector<float> weight(layer.codes.size());
  for (std::int64_t i = 0; i < layer.inputs; ++i) {
    for (std::int64_t o = 0; o < layer.outputs; ++o) {
      const std::size_t cell = layer.at(layer.group_of[static_cast<std::size_t>(i)], o);
      weight[static_cast<std::size_t>(o * layer.inputs + i)] =
          core::f16_to_float(layer.scales[cell]) *
          static_cast<float>(layer.codes[layer.at(i, o)] - layer.zeros[cell]);
    }
  }
  return weight;
}

void add_packed(const std::string& module, const Layer& layer, const GptqChoice& choice,
                Tensors& tensors) {
  std::vector<std::int32_t> words(static_cast<std::size_t>(layer.inputs / 8 * layer.outputs), 0);
  for (std::int64_t i = 0; i < layer.inputs; ++i)
    for (std::int64_t o = 0; o < layer.outputs; ++o)
      words[layer.at(i / 8, o)] |= static_cast<std::int32_t>(
          static_cast<std::uint32_t>(layer.codes[layer.at(i, o)]) << (4 * (i % 8)));
  std::vector<std::int32_t> zeros(static_cast<std::size_t>(layer.groups * layer.outputs / 8), 0);
  for (std::int64_t g = 0; g < layer.groups; ++g)
    for (std::int64_t o = 0; o < layer.outputs; ++o)
      zeros[static_cast<std::size_t>((g * layer.outputs + o) / 8)] |= static_cast<std::int32_t>(
          static_cast<std::uint32_t>(layer.zeros[layer.at(g, o)] - (choice.is_v2 ? 0 : 1))
          << (4 * (o % 8)));
  tensors.add(module + ".qweight", DType::i32, {layer.inputs / 8, layer.outputs}, words);
  tensors.add(module + ".qzeros", DType::i32, {layer.groups, layer.outputs / 8}, zeros);
  tensors.add(module + ".scales", DType::f16, {layer.groups, layer.outputs}, layer.scales);
  tensors.add(module + ".g_idx", DType::i32, {layer.inputs}, layer.group_of);
  if (choice.has_biases)
    tensors.add(module + ".bias", DType::f16, {layer.outputs},
                std::vector<std::uint16_t>(static_cast<std::size_t>(layer.outputs), 0));
}

void write_configs(const std::filesystem::path& source, const std::filesystem::path& packed,
                   const std::filesystem::path& dense, const GptqChoice& choice) {
  core::Json config = core::read_json(source / "config.json", 1 << 20);
  core::write_text_atomically(dense / "config.json", config.dump());
  core::Json quantization = {{"bits", 4},
                             {"group_size", choice.group_size},
                             {"desc_act", choice.act_order},
                             {"sym", false}};
  if (choice.has_config_beside) {
    core::write_text_atomically(packed / "quantize_config.json", quantization.dump());
  } else {
    quantization["quant_method"] = "gptq";
    if (choice.is_v2) quantization["checkpoint_format"] = "gptq_v2";
    config["quantization_config"] = quantization;
  }
  core::write_text_atomically(packed / "config.json", config.dump());
}

}  // namespace

void make_gptq_models(const std::filesystem::path& source, const std::filesystem::path& packed,
                      const std::filesystem::path& dense, const GptqChoice& choice) {
  std::filesystem::create_directories(packed);
  std::filesystem::create_directories(dense);
  const auto files = weights::ModelFiles::open(source);
  Tensors of_packed, of_dense;
  for (const std::string& name : files.names()) {
    const auto shape = files.entry(name).shape;
    std::vector<float> values(static_cast<std::size_t>(core::num_elements(shape)));
    files.read({.name = name,
                .shape = shape,
                .dtype = DType::f32,
                .offset = 0,
                .count = std::ssize(values)},
               std::as_writable_bytes(std::span(values)));
    if (!name.ends_with("_proj.weight")) {
      of_packed.add(name, DType::f32, shape, values);
      of_dense.add(name, DType::f32, shape, values);
      continue;
    }
    const Layer layer = quantise(values, shape[0], shape[1], choice);
    add_packed(name.substr(0, name.size() - 7), layer, choice, of_packed);
    of_dense.add(name, DType::f32, shape, unpacked(layer));
  }
  of_packed.write(packed / "model.safetensors");
  of_dense.write(dense / "model.safetensors");
  write_configs(source, packed, dense, choice);
}

}  // namespace finetune::tests
