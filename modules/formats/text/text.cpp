// SPDX-License-Identifier: Apache-2.0
#include "formats/text/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/text.hpp"
#include "data/files.hpp"
#include "data/json_records.hpp"

namespace finetune::formats::text {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
/// A document is tokenised whole by one rank, in several times its size of memory.
constexpr std::int64_t longest_document_bytes = std::int64_t{1} << 30;

/// The "text" of each object of a JSON or JSONL file.
class RecordReader final : public data::Reader {
 public:
  explicit RecordReader(const fs::path& path) : records_(path) {}

  std::int64_t size() const override { return records_.size(); }

  data::Sample sample(std::int64_t i) const override {
    const std::string where = records_.where(i);
    return {{{data::required_text(records_.object(i), "text", where), true}}, where};
  }

 private:
  data::JsonRecords records_;
};

void check_text(const fs::path& path, std::string_view text) {
  const auto line_of = [&](std::size_t byte) {
    return fmt::format("{}:{}", path.string(),
                       1 + std::count(text.begin(), text.begin() + static_cast<long>(byte), '\n'));
  };
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    core::fail(core::ErrorKind::input, {line_of(zero), "holds a byte of value 0",
                                        "plain text has none; UTF-16 and binary "
                                        "files do",
                                        "Convert the file to UTF-8, or remove it."});
  }
  if (const auto bad = core::invalid_utf8(text)) {
    core::fail(core::ErrorKind::input,
               {line_of(*bad),
                fmt::format("byte 0x{:02x} is not valid UTF-8",
                            static_cast<unsigned>(static_cast<unsigned char>(text[*bad]))),
                "plain text is read as UTF-8", "Convert the file, for example with iconv."});
  }
}

/// A file that is one document.
class FileReader final : public data::Reader {
 public:
  explicit FileReader(const fs::path& path) : path_(path) {
    if (core::File(path, core::File::Mode::read).size_bytes() == 0) {
      core::fail(core::ErrorKind::input,
                 {path.string(), "is empty", "there is nothing to train on", "Check data.path."});
    }
  }

  std::int64_t size() const override { return 1; }

  data::Sample sample(std::int64_t) const override {
    std::string text = core::read_text(path_, longest_document_bytes);
    if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
    check_text(path_, text);
    return {{{std::move(text), true}}, path_.string() + ":1"};
  }

 private:
  fs::path path_;
};

std::unique_ptr<data::Reader> open_file(const fs::path& path) {
  if (path.extension() == ".jsonl" || path.extension() == ".json")
    return std::make_unique<RecordReader>(path);
  return std::make_unique<FileReader>(path);
}

}  // namespace

data::Format format() {
  const auto open = [](const fs::path& path) {
    return data::open_files(path, {".txt", ".jsonl", ".json"}, open_file);
  };
  return {"text", data::Layout::continuous, open};
}

}  // namespace finetune::formats::text
