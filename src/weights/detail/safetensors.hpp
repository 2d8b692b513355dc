#pragma once
// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file, read as if an enemy had written it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "core/file.hpp"

namespace finetune::weights {

/// Limits of the format as its own library sets them, and ours where it sets none.
/// Source: github.com/huggingface/safetensors, README.md and safetensors/src/tensor.rs.
inline constexpr std::int64_t largest_header_bytes = 100'000'000;
inline constexpr std::size_t most_tensors = 1'000'000;
inline constexpr std::size_t most_dims = 8;
inline constexpr std::size_t longest_tensor_name = 1024;

/// Bytes before the header: its length, a little-endian u64.
inline constexpr std::int64_t length_bytes = 8;

/// A file that ends before what its header promises.
class TruncatedFile : public core::Error {
 public:
  using core::Error::Error;
};

struct SafetensorsTensor {
  std::string name;
  core::DType dtype = core::DType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t offset_bytes = 0;  ///< of the first element, from the start of the file
  std::int64_t size_bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// The length of the header that follows `prefix`, the first 8 bytes of a file of
/// `file_size_bytes`. Throws: ErrorKind::input unless the header fits into the file and the limit.
std::int64_t header_length(std::span<const std::byte, 8> prefix, std::int64_t file_size_bytes,
                           const std::string& where);

/// Parses the JSON `header` of a file of `file_size_bytes`. Afterwards it is certain that every
/// tensor's bytes lie in the file, belong to no other tensor, and leave no gap.
/// Throws: ErrorKind::input, beginning with `where`, for anything else.
SafetensorsHeader parse_safetensors(std::string_view header, std::int64_t file_size_bytes,
                                    const std::string& where);

/// The JSON text of the header of `file`, of checked length, not parsed.
/// Throws: ErrorKind::input, ErrorKind::io.
std::string read_header_text(const core::File& file);

}  // namespace finetune::weights
