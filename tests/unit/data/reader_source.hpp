#pragma once
// SPDX-License-Identifier: Apache-2.0
// A reader and an encoder as one source of samples.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "data/format.hpp"
#include "data/source.hpp"
#include "data/tokens.hpp"

namespace finetune::data {

/// What the samples of a reader are besides their text.
struct SourceNames {
  std::vector<std::filesystem::path> files;
  std::string settings;
  std::function<std::string(std::span<const std::int32_t>)> text;
};

class ReaderSource final : public Source {
 public:
  /// `reader` outlives it.
  ReaderSource(const Reader& reader, Encoder encoder, SourceNames names)
      : reader_(reader), encoder_(std::move(encoder)), names_(std::move(names)) {}

  std::int64_t size() const override { return reader_.size(); }

  SourceSample sample(std::int64_t i) const override {
    const Sample sample = reader_.sample(i);
    SourceSample result{tokenise(sample, encoder_)};
    for (const Segment& segment : sample.segments) {
      if (segment.trained && segment.text.empty())
        result.findings |= static_cast<std::uint32_t>(Finding::empty_answer);
    }
    return result;
  }

  std::string where(std::int64_t i) const override { return reader_.sample(i).where; }
  std::string text(std::span<const std::int32_t> ids) const override { return names_.text(ids); }
  std::vector<std::filesystem::path> files() const override { return names_.files; }
  std::string settings() const override { return names_.settings; }

 private:
  const Reader& reader_;
  Encoder encoder_;
  SourceNames names_;
};

}  // namespace finetune::data
