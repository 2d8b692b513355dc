#pragma once
// SPDX-License-Identifier: Apache-2.0
// GGUF, version 3: what a model is, the names of its tensors, then the tensors, one after the
// other.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace finetune::gguf {

enum class TensorType : std::uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };

/// What is said of a model: numbers, texts, and lists of one kind.
using Value = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::string>,
                           std::vector<std::int32_t>, std::vector<float>>;

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< row-major: the file names the last dimension first
  TensorType type = TensorType::f32;

  std::int64_t count() const;
  std::int64_t bytes() const;
};

/// Throws: ErrorKind::create if `file` is there already.
void require_new(const std::filesystem::path& file);

/// Writes a file beside its name, and gives it the name when all is there. Tensors come in the
/// order in which they were named.
class Writer {
 public:
  /// Throws: ErrorKind::create if the file cannot be made, or is there already.
  Writer(const std::filesystem::path& file,
         const std::vector<std::pair<std::string, Value>>& values,
         const std::vector<Tensor>& tensors);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// The next bytes of the next tensor: all of it, or a piece. Throws: ErrorKind::io.
  void add(std::span<const std::byte> bytes);
  /// After the last one. Throws: ErrorKind::io.
  void finish();

 private:
  void write(std::span<const std::byte> bytes);
  void pad();

  std::filesystem::path file_, partial_;
  struct Output;
  std::unique_ptr<Output> output_;
  std::vector<Tensor> tensors_;
  std::size_t next_ = 0;
  std::int64_t added_ = 0;  ///< bytes of the next tensor
  std::int64_t written_ = 0;
  bool is_finished_ = false;
};

}  // namespace finetune::gguf
