#pragma once
// SPDX-License-Identifier: Apache-2.0
// What data tests share: a tokenizer of one token a byte, samples in memory, files that go away.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "data/format.hpp"
#include "data/tokens.hpp"

namespace finetune::tests {

inline constexpr std::int32_t fake_bos = 256;
inline constexpr std::int32_t fake_eos = 257;
inline constexpr std::int64_t fake_vocab_size = 258;

inline std::vector<std::int32_t> bytes_of(std::string_view text) {
  std::vector<std::int32_t> ids;
  for (const char c : text)
    ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

/// One token a byte; a document begins with BOS.
inline data::Encoder byte_encoder() {
  const auto document = [](std::string_view text) {
    std::vector<std::int32_t> ids = bytes_of(text);
    ids.insert(ids.begin(), fake_bos);
    return ids;
  };
  return {document, bytes_of, fake_eos, fake_vocab_size};
}

/// Samples in memory, at "memory:1", "memory:2", ...
class MemoryReader final : public data::Reader {
 public:
  explicit MemoryReader(std::vector<std::vector<data::Segment>> samples)
      : samples_(std::move(samples)) {}

  std::int64_t size() const override { return std::ssize(samples_); }

  data::Sample sample(std::int64_t i) const override {
    return {samples_.at(static_cast<std::size_t>(i)), "memory:" + std::to_string(i + 1)};
  }

 private:
  std::vector<std::vector<data::Segment>> samples_;
};

/// A folder of this test and rank, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() /
            ("finetune-data-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// "65: message" of the core::Error that `f` throws, with `folder` cut out; "nothing thrown"
/// otherwise.
inline std::string refusal(const std::function<void()>& f,
                           const std::filesystem::path& folder = {}) {
  try {
    f();
  } catch (const core::Error& error) {
    std::string text = error.what();
    const std::string prefix = folder.string() + "/";
    for (auto at = text.find(prefix); !folder.empty() && at != std::string::npos;
         at = text.find(prefix)) {
      text.erase(at, prefix.size());
    }
    return std::to_string(error.exit_code()) + ": " + text;
  }
  return "nothing thrown";
}

}  // namespace finetune::tests
