// SPDX-License-Identifier: Apache-2.0
#include "support/golden_models.hpp"

#include <stdlib.h>

#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

#include "core/hash.hpp"
#include "core/json.hpp"
#include "core/random.hpp"
#include "support/folders.hpp"

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

constexpr const char* recipe_file = "weights.json";
// A part of the folders' names: the next way to draw gets another number.
constexpr const char* way = "1";

fs::path source_of(const std::string& name) {
  return source_folder() / "tests/golden/models" / name;
}

core::Json read_recipe(const std::string& name) {
  return core::read_json(source_of(name) / recipe_file, 1 << 20);
}

/// The place of each tensor among those of all files by name.
std::map<std::string, std::uint64_t> streams_of(const core::Json& recipe) {
  std::map<std::string, std::uint64_t> streams;
  for (const core::Json& file : recipe.at("files"))
    for (const auto& tensor : file.items())
      streams[tensor.key()] = 0;
  std::uint64_t next = 0;
  for (auto& [tensor, stream] : streams)
    stream = next++;
  return streams;
}

/// A file of safetensors: the length of a header, the header, the tensors.
void write_weights(const fs::path& path, const core::Json& tensors, std::uint64_t key,
                   const std::map<std::string, std::uint64_t>& streams) {
  core::Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, described] : tensors.items()) {
    std::int64_t count = 1;
    for (const std::int64_t size : described.at(0))
      count *= size;
    const auto values = draw({.key = key,
                              .stream = streams.at(name),
                              .count = count,
                              .centre = described.at(1),
                              .scale = described.at(2)});
    const std::size_t first = data.size();
    data.resize(first + values.size() * sizeof(float));
    std::memcpy(data.data() + first, values.data(), data.size() - first);
    header[name] = {
        {"dtype", "F32"}, {"shape", described.at(0)}, {"data_offsets", {first, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors are aligned
  const std::uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text << data << std::flush;
  if (!file) throw std::runtime_error(path.string() + ": it could not be written");
}

/// Other sources have another folder, so that none is ever changed.
fs::path drawn_folder(const std::string& name) {
  std::set<std::string> files;
  for (const auto& file : fs::directory_iterator(source_of(name)))
    files.insert(core::file_fingerprint(file.path()));
  std::string text = way;
  for (const std::string& file : files)
    text += file;
  return build_folder() / "golden_models" / core::fingerprint(text).substr(0, 12) / name;
}

}  // namespace

std::vector<float> draw(const DrawnTensor& tensor) {
  const core::RandomKey key(tensor.key, core::RandomUse::test, tensor.stream);
  std::vector<float> values(static_cast<std::size_t>(tensor.count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = key.bits(i);
    std::int64_t sum = -2 * 65535;
    for (int part = 0; part < 4; ++part)
      sum += static_cast<std::int64_t>(bits >> (16 * part) & 0xFFFF);
    // The product is exact, so that it is the same whether or not it is fused with the addition.
    values[i] =
        static_cast<float>(tensor.centre + static_cast<double>(tensor.scale * sum) * 0x1p-36);
  }
  return values;
}

void write_golden_model(const std::string& name, const fs::path& folder) {
  for (const auto& file : fs::directory_iterator(source_of(name)))
    if (file.path().filename() != recipe_file)
      fs::copy_file(file.path(), folder / file.path().filename(),
                    fs::copy_options::overwrite_existing);
  if (!fs::exists(source_of(name) / recipe_file)) return;
  const core::Json recipe = read_recipe(name);
  const auto streams = streams_of(recipe);
  for (const auto& [file, tensors] : recipe.at("files").items())
    write_weights(folder / file, tensors, recipe.at("key"), streams);
}

fs::path golden_model(const std::string& name) {
  if (!fs::exists(source_of(name) / recipe_file)) return source_of(name);
  const fs::path folder = drawn_folder(name);
  if (fs::exists(folder)) return folder;
  fs::create_directories(folder.parent_path());
  std::string begun = (folder.parent_path() / ("." + name + ".XXXXXX")).string();
  if (mkdtemp(begun.data()) == nullptr)
    throw std::runtime_error(begun + ": it could not be created");
  write_golden_model(name, begun);
  // Several tests and ranks may come at once: one of them gives the folder its name, the others
  // find it there.
  std::error_code error;
  fs::rename(begun, folder, error);
  if (error) fs::remove_all(begun);
  if (error && !fs::exists(folder)) throw fs::filesystem_error("rename", begun, folder, error);
  return folder;
}

}  // namespace finetune::tests
