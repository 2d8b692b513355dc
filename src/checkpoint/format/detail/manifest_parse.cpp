// SPDX-License-Identifier: Apache-2.0
// The strict reader of MANIFEST.json. It consumes parse events and never builds a document, so that
// a hostile file costs no more memory than it has bytes.
#include <fmt/format.h>

#include <limits>
#include <set>
#include <utility>

#include "checkpoint/format/detail/manifest.hpp"
#include "checkpoint/format/detail/manifest_fields.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

using core::Json;

[[noreturn]] void refuse(const std::string& where, const std::string& problem) {
  core::fail(core::ErrorKind::input,
             {where, problem, "the manifest is damaged or was not written by this program",
              "Remove this checkpoint folder or restore it from a copy."});
}

/// The values of one row. `form` has a letter a value: t text, n number, l list of numbers.
struct Row {
  std::string form;
  std::vector<std::string> texts;
  std::vector<std::int64_t> numbers;
  std::vector<std::vector<std::int64_t>> lists;
};

constexpr std::size_t longest_form = 6;

// A row in memory is several times its text. No checkpoint comes near these: 4 kinds of a million
// tensors, cut by a thousand ranks.
constexpr std::size_t most_files = 1'000'000;
constexpr std::size_t most_tensors = 4'000'000;
constexpr std::size_t most_slices = 8'000'000;  // and boxes, each of which has one
// The shortest text of a number in a list has two bytes, an average checksum eleven.
constexpr std::size_t bytes_per_number = 4;

class ManifestReader : public nlohmann::json_sax<Json> {
 public:
  ManifestReader(const std::string& where, std::size_t text_bytes)
      : where_(where), most_numbers_(text_bytes / bytes_per_number) {}

  Manifest result() {
    for (const std::string_view name :
         {field::format, field::version, field::step, field::world_size, field::block_bytes,
          field::created_by, field::state_bytes, field::state_fingerprint, field::files,
          field::tensors, field::slices, field::fingerprint}) {
      require_field(name);
    }
    if (version_ == 1) {
      if (seen_.contains(field::boxes)) refuse(where_, "format version 1 has no boxes");
      add_whole_boxes();
    } else {
      require_field(field::boxes);
    }
    return std::move(manifest_);
  }

  bool null() override { refuse(where_, "it holds a null"); }
  bool boolean(bool) override { refuse(where_, "it holds a boolean"); }
  bool number_integer(number_integer_t) override { refuse(where_, "it holds a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    refuse(where_, "it holds a number that is not an integer");
  }
  bool binary(binary_t&) override { refuse(where_, "it holds binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      refuse(where_, "a number is too large");
    const auto number = static_cast<std::int64_t>(value);
    if (level_ == Level::list) {
      if (++num_numbers_ > most_numbers_) refuse(where_, "its lists hold too many short numbers");
      row_.lists.back().push_back(number);
      return true;
    }
    extend_form('n');
    row_.numbers.push_back(number);
    return end_of_value();
  }

  bool string(string_t& value) override {
    if (level_ == Level::list) refuse(where_, "a list of numbers holds a text");
    extend_form('t');
    row_.texts.push_back(std::move(value));
    return end_of_value();
  }

  bool start_object(std::size_t) override {
    if (level_ != Level::outside) refuse(where_, "an object is nested");
    level_ = Level::fields;
    return true;
  }

  bool key(string_t& name) override {
    if (seen_.contains(name))
      refuse(where_, fmt::format("field \"{}\" occurs twice", core::one_line(name)));
    field_ = *seen_.insert(name).first;
    return true;
  }

  bool end_object() override {
    level_ = Level::outside;
    return true;
  }

  bool start_array(std::size_t) override {
    switch (level_) {
      case Level::fields:
        if (field_ != field::files && field_ != field::tensors && field_ != field::boxes &&
            field_ != field::slices)
          refuse(where_, fmt::format("field \"{}\" is a list", core::one_line(field_)));
        level_ = Level::rows;
        return true;
      case Level::rows:
        level_ = Level::row;
        return true;
      case Level::row:
        extend_form('l');
        row_.lists.emplace_back();
        level_ = Level::list;
        return true;
      default:
        refuse(where_, "lists are nested too deeply");
    }
  }

  bool end_array() override {
    if (level_ == Level::row) end_of_row();
    level_ = static_cast<Level>(static_cast<int>(level_) - 1);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    refuse(where_, fmt::format("broken JSON at byte {}", position));
  }

 private:
  enum class Level { outside, fields, rows, row, list };

  void require_field(std::string_view name) const {
    if (!seen_.contains(name)) refuse(where_, fmt::format("field \"{}\" is missing", name));
  }

  /// Slices of version 1 name tensors.
  void add_whole_boxes() {
    std::vector<std::int64_t> box_of(manifest_.tensors.size(), -1);
    for (Extent& extent : manifest_.extents) {
      const auto tensor = static_cast<std::size_t>(extent.box);
      if (tensor >= box_of.size()) refuse(where_, "a slice names no tensor of the list");
      if (box_of[tensor] < 0) {
        box_of[tensor] = std::ssize(manifest_.boxes);
        manifest_.boxes.push_back({extent.box, core::whole_box(manifest_.tensors[tensor].shape)});
      }
      extent.box = box_of[tensor];
    }
  }

  void extend_form(char letter) {
    if (level_ == Level::outside || level_ == Level::rows || row_.form.size() == longest_form)
      refuse(where_, "a value is in an unexpected place");
    row_.form += letter;
  }

  bool end_of_value() {
    if (level_ == Level::fields) {
      if (row_.form == "t" ? !take_text(row_.texts[0]) : !take_number(row_.numbers[0]))
        refuse(where_,
               fmt::format("field \"{}\" is unknown or of a wrong type", core::one_line(field_)));
      row_ = Row();
    }
    return true;
  }

  bool take_text(std::string& value) {
    if (field_ == field::format) {
      if (value != field::format_value) refuse(where_, "this is not a checkpoint's manifest");
    } else if (field_ == field::created_by) {
      manifest_.created_by = std::move(value);
    } else if (field_ == field::state_fingerprint) {
      manifest_.state_fingerprint = std::move(value);
    } else {
      return field_ == field::fingerprint;  // compared before parsing
    }
    return true;
  }

  bool take_number(std::int64_t value) {
    if (field_ == field::version) {
      if (value < field::first_version || value > field::version_value) refuse_version(value);
      version_ = value;
    } else if (field_ == field::step) {
      manifest_.step = value;
    } else if (field_ == field::world_size) {
      manifest_.world_size = value;
    } else if (field_ == field::block_bytes) {
      manifest_.block_bytes = value;
    } else if (field_ == field::state_bytes) {
      manifest_.state_bytes = value;
    } else {
      return false;
    }
    return true;
  }

  [[noreturn]] void refuse_version(std::int64_t version) const {
    core::fail(core::ErrorKind::input,
               {where_, fmt::format("the checkpoint has format version {}", version),
                fmt::format("this program reads versions {} to {}", field::first_version,
                            field::version_value),
                "Use the program that wrote it, or export its weights with that one."});
  }

  void end_of_row() {
    Row row = std::exchange(row_, Row());
    if (field_ == field::files && row.form == "tnn") {
      limit(manifest_.files.size(), most_files);
      manifest_.files.push_back(
          {std::move(row.texts[0]), row.numbers[0], checksum(row.numbers[1])});
    } else if (field_ == field::tensors && row.form == "tttl") {
      const auto dtype = core::parse_dtype(row.texts[2]);
      if (!dtype)
        refuse(where_, fmt::format("dtype \"{}\" is unknown", core::one_line(row.texts[2])));
      limit(manifest_.tensors.size(), most_tensors);
      manifest_.tensors.push_back(
          {std::move(row.texts[0]), std::move(row.texts[1]), *dtype, std::move(row.lists[0])});
    } else if (field_ == field::boxes && row.form == "nll") {
      limit(manifest_.boxes.size(), most_slices);
      manifest_.boxes.push_back(
          {row.numbers[0], {std::move(row.lists[0]), std::move(row.lists[1])}});
    } else if (field_ == field::slices && row.form == "nnnnnl") {
      Extent extent{row.numbers[0], row.numbers[1], row.numbers[2],
                    row.numbers[3], row.numbers[4], {}};
      extent.crc32c.reserve(row.lists[0].size());
      for (const std::int64_t value : row.lists[0])
        extent.crc32c.push_back(checksum(value));
      limit(manifest_.extents.size(), most_slices);
      manifest_.extents.push_back(std::move(extent));
    } else {
      refuse(where_, fmt::format("a row of \"{}\" has a wrong form", core::one_line(field_)));
    }
  }

  void limit(std::size_t rows, std::size_t most) const {
    if (rows == most) refuse(where_, fmt::format("\"{}\" has more than {} rows", field_, most));
  }

  std::uint32_t checksum(std::int64_t value) const {
    if (value > std::numeric_limits<std::uint32_t>::max())
      refuse(where_, "a checksum has more than 32 bits");
    return static_cast<std::uint32_t>(value);
  }

  const std::string& where_;
  std::size_t most_numbers_;
  std::size_t num_numbers_ = 0;
  std::int64_t version_ = 0;
  Manifest manifest_;
  Level level_ = Level::outside;
  std::set<std::string, std::less<>> seen_;
  std::string field_;
  Row row_;
};

/// The fingerprint covers every byte before its own field, and the field ends the file.
void check_fingerprint(std::string_view text, const std::string& where) {
  const std::string head = fmt::format("\"{}\":\"", field::fingerprint);
  constexpr std::size_t digits = 32;
  constexpr std::string_view tail = "\"}\n";
  const std::size_t field_bytes = head.size() + digits + tail.size();
  if (text.size() >= field_bytes) {
    const std::string_view covered = text.substr(0, text.size() - field_bytes);
    const std::string expected = head + core::fingerprint(covered) + std::string(tail);
    if (text.substr(covered.size()) == expected) return;
  }
  refuse(where, "its fingerprint does not fit its content");
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& where) {
  check_fingerprint(text, where);
  // The parser would take it for the end and pass over what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    refuse(where, fmt::format("byte {} is NUL", nul));
  ManifestReader reader(where, text.size());
  Json::sax_parse(text, &reader);
  Manifest manifest = reader.result();
  validate(manifest, where, core::ErrorKind::input);
  return manifest;
}

}  // namespace finetune::checkpoint
