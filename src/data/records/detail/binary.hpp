#pragma once
// SPDX-License-Identifier: Apache-2.0
// Numbers in files of bytes, little-endian as all formats here have them, and what is said of
// broken ones.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "core/error.hpp"
#include "core/file.hpp"

namespace finetune::data {

static_assert(std::endian::native == std::endian::little, "files are read as they lie");

using Bytes = std::span<const std::byte>;

/// Throws: ErrorKind::input about a file of bytes that is not as its format wants it.
[[noreturn]] inline void fail_binary(const std::string& where, const std::string& problem,
                                     const std::string& why = "the file is damaged",
                                     const std::string& remedy = "Copy or write it again.") {
  core::fail(core::ErrorKind::input, {where, problem, why, remedy});
}

/// The number at the beginning of `bytes`, which holds it.
template <typename T>
requires std::is_arithmetic_v<T> T number_in(Bytes bytes) {
  T value;
  std::memcpy(&value, bytes.first(sizeof(T)).data(), sizeof(T));
  return value;
}

/// The number at a byte of a file. Throws: as File::read_at.
template <typename T>
T number_at(const core::File& file, std::int64_t offset) {
  T value;
  file.read_at(offset, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace finetune::data
