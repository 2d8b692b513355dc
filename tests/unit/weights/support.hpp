#pragma once
// SPDX-License-Identifier: Apache-2.0
// Files for the tests of weights: temporary folders, safetensors files built by hand.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"
#include "weights/export_folder.hpp"
#include "weights/model_files.hpp"

namespace finetune::weights {

/// A new folder that is removed with the object.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "finetune_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    path_ = pattern;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  /// Writes a file into the folder.
  void put(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

 private:
  std::filesystem::path path_;
};

inline std::string content(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

/// A little-endian u64.
inline std::string u64(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i)
    bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

/// A safetensors file of this header and these data.
inline std::string file_of(std::string_view header, std::string_view data) {
  return u64(header.size()) + std::string(header) + std::string(data);
}

/// What `f` throws: kind and message; fails the test if it throws nothing of ours.
struct Thrown {
  core::ErrorKind kind = core::ErrorKind::bug;
  std::string message;

  bool says(std::string_view text) const { return message.find(text) != std::string::npos; }
};

inline Thrown thrown_by(const std::function<void()>& f) {
  try {
    f();
  } catch (const core::Error& error) {
    return {error.kind(), error.what()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// All elements of a tensor, converted to T's dtype.
template <typename T>
std::vector<T> read_all(const ModelFiles& files, std::string_view name, core::DType dtype) {
  const auto& shape = files.entry(name).shape;
  const std::int64_t count = core::num_elements(shape);
  std::vector<T> values(static_cast<std::size_t>(count));
  files.read({std::string(name), shape, dtype, 0, count},
             std::as_writable_bytes(std::span(values)));
  return values;
}

/// The bytes of a tensor as they are in the file.
inline std::vector<std::byte> raw(const ModelFiles& files, std::string_view name) {
  const auto& entry = files.entry(name);
  const std::int64_t count = core::num_elements(entry.shape);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * core::size_bytes(entry.dtype)));
  files.read({std::string(name), entry.shape, entry.dtype, 0, count}, bytes);
  return bytes;
}

/// Imports the model at `folder` and exports it again, in files of at most `limit_bytes`: tensor by
/// tensor the bytes are the same.
inline void expect_round_trip(const std::filesystem::path& folder, std::int64_t limit_bytes) {
  const TestFolder out;
  const ModelFiles before = ModelFiles::open(folder);
  ExportPlan plan;
  plan.max_shard_size_bytes = limit_bytes;
  for (const std::string& name : before.names())
    plan.tensors.push_back({name, before.entry(name).dtype, before.entry(name).shape});
  const auto read = [&](std::string_view name, std::int64_t first, std::span<float> piece) {
    before.read(
        {std::string(name), before.entry(name).shape, core::DType::f32, first, std::ssize(piece)},
        std::as_writable_bytes(piece));
  };
  export_folder(out / "out", plan, read, folder);
  const ModelFiles after = ModelFiles::open(out / "out");
  EXPECT_EQ(after.names(), before.names());
  EXPECT_EQ(after.size_bytes(), before.size_bytes());
  for (const std::string& name : before.names())
    EXPECT_EQ(raw(after, name), raw(before, name)) << name;
}

/// `bytes` with one to four bytes changed, removed, doubled or inserted.
inline std::string mutated(std::string bytes, std::uint64_t number) {
  const core::RandomKey key(7, core::RandomUse::test, number);
  const std::uint64_t changes = 1 + key.below(0, 4);
  for (std::uint64_t i = 0; i < changes; ++i) {
    const std::size_t at = key.below(10 * i + 1, bytes.size());
    const char byte = static_cast<char>(key.below(10 * i + 2, 256));
    switch (key.below(10 * i + 3, 5)) {
      case 0:
        bytes[at] = byte;
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << key.below(10 * i + 4, 8)));
        break;
      case 2:
        bytes.erase(at, 1);
        break;
      case 3:
        bytes.insert(at, 1, byte);
        break;
      default:
        bytes.insert(at, bytes.substr(at, 1 + key.below(10 * i + 5, 12)));
    }
  }
  return bytes;
}

}  // namespace finetune::weights
