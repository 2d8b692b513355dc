#pragma once
// SPDX-License-Identifier: Apache-2.0
// The models of tests/golden/packed: one layer of a llama in few bits, as others write them.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "core/json.hpp"
#include "core/python_json.hpp"
#include "model/family.hpp"
#include "model/quantization.hpp"
#include "models/llama/llama.hpp"
#include "support/golden.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::tests {

inline const std::vector<std::string>& packed_names() {
  static const std::vector<std::string> names = {
      "awq",     "gptq_8",        "words_4",        "words_4_zeros", "words_8",
      "bytes_8", "bytes_8_zeros", "bitsandbytes_8", "nvfp4",         "modelopt"};
  return names;
}

inline std::filesystem::path packed_folder(const std::string& name) {
  return golden("packed") / name;
}

/// What the packed matrices stand for, by their names, in fp32.
inline weights::ModelFiles packed_numbers(const std::string& name) {
  return weights::ModelFiles::open(packed_folder(name) / "numbers.safetensors");
}

/// Writes the same model with the numbers themselves, in fp32, into a new folder.
inline void write_unpacked(const std::string& name, const std::filesystem::path& folder) {
  const auto files = weights::ModelFiles::open(packed_folder(name)), numbers = packed_numbers(name);
  std::vector<weights::TensorSpec> specs;
  const auto is_packed = [&](const std::string& tensor) {
    const std::string module = tensor.substr(0, tensor.rfind('.'));
    return numbers.contains(module + ".weight");
  };
  const auto add = [&](const weights::ModelFiles& from, const std::string& tensor) {
    specs.push_back({tensor, core::DType::f32, from.entry(tensor).shape});
  };
  for (const std::string& tensor : files.names())
    if (!is_packed(tensor)) add(files, tensor);
  for (const std::string& tensor : numbers.names())
    add(numbers, tensor);
  std::filesystem::create_directories(folder);
  weights::SafetensorsWriter writer(folder / "model.safetensors", specs);
  for (const weights::TensorSpec& spec : specs) {
    const auto values =
        read_golden<float>(numbers.contains(spec.name) ? numbers : files, spec.name);
    writer.write(spec.name, std::as_bytes(std::span(values)));
  }
  writer.finish();
  core::Json config = core::read_json(packed_folder(name) / "config.json", 1 << 20);
  config.erase("quantization_config");
  core::write_text_atomically(folder / "config.json", config.dump());
}

/// One that is frozen, with its packed rows.
struct PackedModel {
  explicit PackedModel(const std::string& name)
      : folder(packed_folder(name)), files(weights::ModelFiles::open(folder)) {
    const std::string text = model::read_config(folder), where = (folder / "config.json").string();
    const std::vector<model::ModelFamily> families = {models::llama::family()};
    const model::Identified identified = model::identify(text, where, families);
    architecture = identified.architecture;
    quantization = model::read_quantization(core::parse_python_json(text, where), where, {}, "");
    table = identified.family->describe(architecture);
    model::mark_packed(quantization, where, table);
    for (model::Parameter& row : table.rows)
      row.trainable = false;
  }

  std::filesystem::path folder;
  weights::ModelFiles files;
  model::Architecture architecture;
  model::Quantization quantization;
  model::ParameterTable table;
};

}  // namespace finetune::tests
