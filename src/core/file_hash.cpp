// SPDX-License-Identifier: Apache-2.0
#include "core/file_hash.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <memory>
#include <string_view>

#include "core/detail/file_pieces.hpp"
#include "core/error.hpp"

namespace finetune::core {
namespace {

/// Of `before` and the file's bytes.
std::string hash_of(const EVP_MD* kind, std::string_view before, const File& file) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> state(EVP_MD_CTX_new(),
                                                                      EVP_MD_CTX_free);
  check(state != nullptr && EVP_DigestInit_ex(state.get(), kind, nullptr) == 1, "a hash begins");
  const auto add = [&](const void* data, std::size_t size) {
    check(EVP_DigestUpdate(state.get(), data, size) == 1, "a hash goes on");
  };
  add(before.data(), before.size());
  for_each_piece(file, [&](std::span<const std::byte> piece) { add(piece.data(), piece.size()); });
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  check(EVP_DigestFinal_ex(state.get(), digest, &length) == 1, "a hash ends");
  std::string digits;
  for (unsigned int i = 0; i < length; ++i)
    digits += fmt::format("{:02x}", digest[i]);
  return digits;
}

}  // namespace

std::string sha256_of(const File& file) {
  return hash_of(EVP_sha256(), "", file);
}

std::string git_name_of(const File& file) {
  std::string before = fmt::format("blob {}", file.size_bytes());
  before.push_back('\0');
  return hash_of(EVP_sha1(), before, file);
}

}  // namespace finetune::core
