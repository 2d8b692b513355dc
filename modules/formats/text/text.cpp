// SPDX-License-Identifier: Apache-2.0
#include "formats/text/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/decompress.hpp"
#include "data/records/fields.hpp"
#include "data/records/records.hpp"
#include "data/text/columns.hpp"
#include "data/text/detect_format.hpp"
#include "data/text/record_reader.hpp"

namespace finetune::formats::text {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
/// A document is tokenised whole by one rank, in several times its size of memory.
constexpr std::int64_t longest_document_bytes = std::int64_t{1} << 30;

constexpr data::Field text_field{"text", &data::Columns::text, "data.text_column"};

/// A field of each record.
class FieldReader final : public data::RecordReader {
 public:
  FieldReader(const fs::path& path, const data::Columns& columns)
      : data::RecordReader(path), text_(data::column_of(columns, text_field)) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    sample.segments = {{data::text_field(records().object(i), text_, sample.where), true}};
  }

  data::Column text_;
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
class FileReader final : public data::SampleReader {
 public:
  explicit FileReader(const fs::path& path) : path_(path), file_(data::open_plain(path)) {
    if (file_.file().size_bytes() == 0) {
      core::fail(core::ErrorKind::input,
                 {path.string(), "is empty", "it holds no text", "Is it the right file?"});
    }
    if (file_.file().size_bytes() > longest_document_bytes) {
      core::fail(core::ErrorKind::input,
                 {path.string(),
                  fmt::format("is larger than {}", core::human_bytes(longest_document_bytes)),
                  "a file of plain text is one document, which one rank tokenises alone",
                  "Split it, or put its documents into a JSONL file."});
    }
  }

  std::int64_t size() const override { return 1; }
  std::string where(std::int64_t) const override { return path_.string() + ":1"; }
  std::vector<fs::path> files() const override { return {path_}; }

  data::Sample sample(std::int64_t i) const override {
    std::string text(static_cast<std::size_t>(file_.file().size_bytes()), '\0');
    file_.file().read_at(0, std::as_writable_bytes(std::span(text)));
    if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
    check_text(path_, text);
    data::Sample sample;
    sample.where = where(i);
    sample.segments = {{std::move(text), true}};
    return sample;
  }

 private:
  fs::path path_;
  data::PlainFile file_;
};

std::unique_ptr<data::SampleReader> open_file(const fs::path& path, const data::Columns& columns) {
  if (!data::record_ending(path).empty()) return std::make_unique<FieldReader>(path, columns);
  return std::make_unique<FileReader>(path);
}

}  // namespace

data::Format format() {
  const auto open = [](const data::DataPath& path, const data::Columns& columns) {
    return data::open_files(path, data::data_endings(path),
                            [&](const fs::path& file) { return open_file(file, columns); });
  };
  data::Format format{"text", data::Layout::continuous, open};
  // Many data sets of instructions hold each sample as one text besides.
  format.fits = [](const data::OrderedJson& record, const data::Columns& columns) {
    if (!data::has_column(record, columns, text_field)) return data::Fit::no;
    return data::column_of(columns, text_field).chosen ? data::Fit::strong : data::Fit::weak;
  };
  format.fields = {text_field};
  format.reads_plain_text = true;
  return format;
}

}  // namespace finetune::formats::text
