// SPDX-License-Identifier: Apache-2.0
#include "unit/checkpoint/support.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "core/hash.hpp"
#include "core/json.hpp"

namespace finetune::checkpoint::tests {

std::vector<TestTensor> uneven_model() {
  using core::DType;
  return {{"param", "embed.weight", {37, 3}, DType::f32},
          {"param", "norm.weight", {7}, DType::f32},
          {"param", "scale", {}, DType::f32},
          {"param", "one", {1}, DType::f32},
          {"param", "none", {0, 5}, DType::f32},
          {"exp_avg", "embed.weight", {37, 3}, DType::bf16},
          {"exp_avg", "norm.weight", {7}, DType::bf16},
          {"frozen", "w.half", {11, 13}, DType::f16},
          {"frozen", "w.codes", {129}, DType::u8},
          {"frozen", "w.double", {5, 1, 3}, DType::f64},
          {"frozen", "w.i64", {2, 3}, DType::i64},
          {"frozen", "w.i32", {3}, DType::i32},
          {"frozen", "w.i16", {3}, DType::i16},
          {"frozen", "w.i8", {3}, DType::i8},
          {"frozen", "w.mask", {3}, DType::boolean}};
}

std::byte byte_of(const TestTensor& tensor, std::int64_t index, std::int64_t version) {
  const std::string place = tensor.kind + "/" + tensor.name + "/" + std::to_string(version);
  const std::uint32_t seed = core::crc32c(std::as_bytes(std::span(place)));
  auto mixed = (seed + static_cast<std::uint64_t>(index)) * 0x9E3779B97F4A7C15u;
  mixed ^= mixed >> 29;
  // The highest bit of an exponent stays clear: no element is infinite or NaN.
  const bool is_last = index % core::size_bytes(tensor.dtype) == core::size_bytes(tensor.dtype) - 1;
  return static_cast<std::byte>(mixed >> 8) & std::byte(is_last ? 0xBF : 0xFF);
}

std::vector<StoredSlice> Shard::stored() const {
  std::vector<StoredSlice> result;
  for (std::size_t i = 0; i < slices.size(); ++i)
    result.push_back({kinds[i], slices[i], data[i].data()});
  return result;
}

std::vector<WantedSlice> Shard::wanted() {
  std::vector<WantedSlice> result;
  for (std::size_t i = 0; i < slices.size(); ++i)
    result.push_back({kinds[i], slices[i], data[i].data()});
  return result;
}

Shard cut(const std::vector<TestTensor>& model, int index, int count) {
  std::map<core::DType, std::int64_t> total;
  for (const TestTensor& tensor : model)
    total[tensor.dtype] += core::num_elements(tensor.shape);
  std::map<core::DType, std::int64_t> start;  // of the tensor in the row of its dtype
  Shard shard;
  for (const TestTensor& tensor : model) {
    const std::int64_t run = (total[tensor.dtype] + count - 1) / count;
    const std::int64_t n = core::num_elements(tensor.shape);
    const std::int64_t begin = start[tensor.dtype];
    start[tensor.dtype] += n;
    const std::int64_t first = std::clamp<std::int64_t>(index * run - begin, 0, n);
    const std::int64_t last = std::clamp<std::int64_t>((index + 1) * run - begin, 0, n);
    if (first == last && (n != 0 || index != 0)) continue;
    shard.kinds.push_back(tensor.kind);
    shard.slices.push_back({tensor.name, tensor.shape, tensor.dtype, first, last - first});
    shard.data.emplace_back(static_cast<std::size_t>(shard.slices.back().size_bytes()));
  }
  return shard;
}

namespace {

/// Element `i` of the box of `slice` as an element of its tensor.
std::int64_t element_in_tensor(const core::TensorSlice& slice, std::int64_t i) {
  const core::Box box = slice.box_or_whole();
  std::int64_t element = 0;
  std::int64_t scale = 1;
  for (std::size_t d = slice.shape.size(); d-- > 0;) {
    element += (box.begin[d] + i % box.extent[d]) * scale;
    i /= box.extent[d];
    scale *= slice.shape[d];
  }
  return element;
}

/// Calls f(tensor, byte index in the tensor, byte in the shard) for every byte of the shard.
template <typename S, typename F>
void for_each_byte(const std::vector<TestTensor>& model, S& shard, F&& f) {
  for (std::size_t i = 0; i < shard.slices.size(); ++i) {
    const core::TensorSlice& slice = shard.slices[i];
    const auto tensor = std::ranges::find_if(model, [&](const TestTensor& t) {
      return t.kind == shard.kinds[i] && t.name == slice.name;
    });
    const std::int64_t bytes = core::size_bytes(slice.dtype);
    for (std::int64_t j = 0; j < std::ssize(shard.data[i]); ++j) {
      const std::int64_t element = element_in_tensor(slice, slice.offset + j / bytes);
      f(*tensor, element * bytes + j % bytes, shard.data[i][static_cast<std::size_t>(j)]);
    }
  }
}

/// The boxes of a grid, in row-major order.
std::vector<core::Box> boxes_of(const std::vector<std::int64_t>& shape, const Grid& grid) {
  std::vector<core::Box> boxes = {core::whole_box(shape)};
  for (std::size_t d = 0; d < std::min(shape.size(), grid.boxes.size()); ++d) {
    std::vector<core::Box> finer;
    for (const core::Box& box : boxes) {
      for (std::int64_t i = 0; i < grid.boxes[d]; ++i) {
        finer.push_back(box);
        finer.back().begin[d] = shape[d] * i / grid.boxes[d];
        finer.back().extent[d] = shape[d] * (i + 1) / grid.boxes[d] - finer.back().begin[d];
      }
    }
    boxes = std::move(finer);
  }
  return boxes;
}

}  // namespace

Shard cut(const std::vector<TestTensor>& model, const Grid& grid, int index, int count) {
  Shard shard;
  int number = 0;
  for (const TestTensor& tensor : model) {
    for (const core::Box& box : boxes_of(tensor.shape, grid)) {
      const std::int64_t elements = box.num_elements();
      for (std::int64_t run = 0; run < grid.runs; ++run) {
        const std::int64_t first = elements * run / grid.runs;
        const std::int64_t last = elements * (run + 1) / grid.runs;
        if (first == last || number++ % count != index) continue;
        shard.kinds.push_back(tensor.kind);
        shard.slices.push_back({tensor.name, tensor.shape, tensor.dtype, first, last - first, box});
        shard.data.emplace_back(static_cast<std::size_t>(shard.slices.back().size_bytes()));
      }
    }
  }
  return shard;
}

void fill(const std::vector<TestTensor>& model, Shard& shard, std::int64_t version) {
  for_each_byte(model, shard, [&](const TestTensor& tensor, std::int64_t i, std::byte& byte) {
    byte = byte_of(tensor, i, version);
  });
}

Shard filled(const std::vector<TestTensor>& model, int index, int count, std::int64_t version) {
  Shard shard = cut(model, index, count);
  fill(model, shard, version);
  return shard;
}

SaveReport save_model(const comm::Communicator& world, const std::filesystem::path& root,
                      std::int64_t step, const std::vector<TestTensor>& model) {
  const Shard shard = filled(model, world.rank(), world.size(), step);
  return save(world, world, 0, root, step, {{"step", step}}, shard.stored(), {.block_bytes = 64});
}

std::int64_t wrong_bytes(const std::vector<TestTensor>& model, const Shard& shard,
                         std::int64_t version) {
  std::int64_t wrong = 0;
  for_each_byte(model, shard, [&](const TestTensor& tensor, std::int64_t i, const std::byte& byte) {
    wrong += byte != byte_of(tensor, i, version);
  });
  return wrong;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void flip_bit(const std::filesystem::path& path, std::int64_t byte, int bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(byte);
  const int value = file.get() ^ (1 << bit);
  file.seekp(byte);
  file.put(static_cast<char>(value));
}

std::string sealed(std::string text) {
  const std::size_t field = text.rfind("\"fingerprint\"");
  text.resize(field == std::string::npos ? text.size() : field);
  return text + "\"fingerprint\":\"" + core::fingerprint(text) + "\"}\n";
}

}  // namespace finetune::checkpoint::tests
