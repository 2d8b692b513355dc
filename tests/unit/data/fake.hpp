#pragma once
// SPDX-License-Identifier: Apache-2.0
// What data tests share: a tokenizer of one token a byte, samples in memory, files that go away.

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "data/records/records.hpp"
#include "data/text/format.hpp"
#include "data/text/source.hpp"
#include "data/tokens/detail/dataset.hpp"
#include "support/files.hpp"

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

/// One token a byte between a begin and an end token, which is trained if any text is.
inline data::Tokens byte_tokens(const data::Sample& sample) {
  data::Tokens tokens;
  const auto append = [&](const std::vector<std::int32_t>& ids, bool trained) {
    tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
    for (const std::int32_t id : ids)
      tokens.labels.push_back(trained ? id : data::not_trained);
  };
  append({fake_bos}, !sample.segments.empty() && sample.segments[0].trained &&
                         !sample.segments[0].text.empty());
  bool is_any_trained = false;
  for (const data::Segment& segment : sample.segments) {
    append(bytes_of(segment.text), segment.trained);
    is_any_trained |= segment.trained && !segment.text.empty();
  }
  append({fake_eos}, is_any_trained);
  return tokens;
}

/// Samples in memory, at "memory:1", "memory:2", ...
class MemoryReader final : public data::SampleReader {
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

/// Ids as text: bytes as they are, <s> and </s>.
inline std::string text_of(std::span<const std::int32_t> ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    if (id < 256) text += static_cast<char>(id);
    if (id == fake_bos) text += "<s>";
    if (id == fake_eos) text += "</s>";
  }
  return text;
}

/// The samples of a reader as bytes.
class ReaderSource final : public data::SampleSource {
 public:
  /// `reader` outlives it.
  explicit ReaderSource(const data::SampleReader& reader) : reader_(reader) {}

  std::int64_t size() const override { return reader_.size(); }
  data::SourceSample sample(std::int64_t i) const override {
    const data::Sample sample = reader_.sample(i);
    data::SourceSample result{byte_tokens(sample)};
    for (const data::Segment& segment : sample.segments) {
      if (segment.trained && segment.text.empty())
        result.oddities |= static_cast<std::uint32_t>(data::Oddity::empty_answer);
    }
    return result;
  }
  std::string where(std::int64_t i) const override { return reader_.sample(i).where; }
  std::string text(std::span<const std::int32_t> ids) const override { return text_of(ids); }
  std::vector<std::filesystem::path> files() const override { return {}; }
  std::string settings() const override { return "bytes"; }

 private:
  const data::SampleReader& reader_;
};

/// Samples of segments in memory, as bytes.
class MemorySource {
 public:
  explicit MemorySource(std::vector<std::vector<data::Segment>> samples)
      : reader_(std::move(samples)), source_(reader_) {}

  operator const data::SampleSource&() const { return source_; }  // NOLINT: it is one

 private:
  MemoryReader reader_;
  ReaderSource source_;
};

/// Tokens and oddities as they are given, at "fake:1", "fake:2", ...
class FakeSource final : public data::SampleSource {
 public:
  std::vector<data::SourceSample> samples;
  std::vector<std::filesystem::path> from;
  std::string name = "fake";
  std::string role_problem_of_all;
  mutable std::atomic<std::int64_t> num_read{0};

  std::int64_t size() const override { return std::ssize(samples); }
  data::SourceSample sample(std::int64_t i) const override {
    ++num_read;
    return samples.at(static_cast<std::size_t>(i));
  }
  std::string where(std::int64_t i) const override { return "fake:" + std::to_string(i + 1); }
  std::string role_problem(std::int64_t) const override { return role_problem_of_all; }
  std::string text(std::span<const std::int32_t> ids) const override { return text_of(ids); }
  std::vector<std::filesystem::path> files() const override { return from; }
  std::string settings() const override { return name; }

  /// A sample of `prompt` and `answer`, with begin and end tokens.
  void add(std::string_view prompt, std::string_view answer, std::uint32_t oddities = 0) {
    data::SourceSample made;
    made.oddities = oddities;
    const auto append = [&](const std::vector<std::int32_t>& ids, bool trained) {
      for (const std::int32_t id : ids) {
        made.tokens.ids.push_back(id);
        made.tokens.labels.push_back(trained ? id : data::not_trained);
      }
    };
    append({fake_bos}, false);
    append(bytes_of(prompt), false);
    append(bytes_of(answer), true);
    append({fake_eos}, !answer.empty());
    samples.push_back(std::move(made));
  }
};

/// Digits of the samples' tokens and bounds, wherever they lie.
inline std::string fingerprint_of(const data::Dataset& dataset) {
  std::string digests;
  for (std::int64_t i = 0; i < dataset.num_samples(); ++i)
    digests += core::fingerprint(std::as_bytes(dataset.sample(i)));
  return core::fingerprint(digests);
}

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

/// Of each `step`th byte of `file` from `first` on, changed: what is said of it is a refusal of
/// `name`, or nothing. Returns how many were refused.
template <typename RefusalOf>
std::size_t expect_damage_refused_or_read(const std::string& file, std::size_t first,
                                          std::size_t last, std::size_t step,
                                          const std::string& name, const RefusalOf& refusal_of) {
  std::size_t refused = 0;
  for (std::size_t at = first; at < last; at += step) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    const std::string said = refusal_of(damaged);
    const bool is_refused = said.starts_with("65: " + name + ": ");
    refused += is_refused ? 1 : 0;
    EXPECT_TRUE(is_refused || said == "nothing thrown") << at << ": " << said;
  }
  return refused;
}

/// `refusal` of a file of this name, or of any record in it.
inline std::string refusal_of_records(const std::string& name, std::string_view bytes) {
  const TemporaryFolder folder;
  const auto path = folder.write(name, bytes);
  const auto read_all = [&] {
    const auto records = data::open_records(path);
    for (std::int64_t i = 0; i < records->size(); ++i)
      records->object(i);
  };
  return refusal(read_all, folder.path());
}

}  // namespace finetune::tests
