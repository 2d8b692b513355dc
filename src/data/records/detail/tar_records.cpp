// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/tar_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/detail/json_index.hpp"

namespace finetune::data {
namespace {

constexpr std::int64_t block_bytes = 512;
using Block = std::array<char, block_bytes>;

/// Members with a sample's fields; the first is the object.
constexpr std::array<std::string_view, 3> read_endings = {"json", "txt", "cls"};

[[noreturn]] void fail_damaged(const core::File& file, std::int64_t at,
                               const std::string& problem) {
  core::fail(core::ErrorKind::input,
             {file.path().string(), "cannot be read as a tar archive",
              fmt::format("at byte {} {}", at, problem),
              "Copy or download the file again; it is truncated or something else."});
}

/// Source: POSIX.1-2017, pax, "ustar Interchange Format".
std::string_view text_at(const Block& block, std::size_t begin, std::size_t length) {
  const std::string_view field(block.data() + begin, length);
  return field.substr(0, field.find('\0'));
}

/// Octal digits, or a number of 8 bytes behind a byte 0x80, as GNU writes large ones.
std::optional<std::int64_t> number_at(const Block& block, std::size_t begin, std::size_t length) {
  constexpr std::int64_t most = std::int64_t{1} << 50;  // 256 times that fits, too
  std::int64_t value = 0;
  if ((block[begin] & 0x80) != 0) {
    for (std::size_t i = begin + 1; i < begin + length; ++i) {
      value = value * 256 + static_cast<unsigned char>(block[i]);
      if (value > most) return std::nullopt;
    }
    return value;
  }
  const std::string digits = core::trimmed(text_at(block, begin, length));
  for (const char digit : digits) {
    if (digit < '0' || digit > '7' || value > most) return std::nullopt;
    value = value * 8 + (digit - '0');
  }
  return digits.empty() ? std::nullopt : std::optional(value);
}

bool has_checksum(const Block& block) {
  constexpr std::size_t begin = 148, length = 8;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i)
    sum += i >= begin && i < begin + length ? ' ' : static_cast<unsigned char>(block[i]);
  return number_at(block, begin, length) == sum;
}

std::string read_text(const core::File& file, std::int64_t offset, std::int64_t length) {
  return read_entry(file, {.offset = offset, .length = length});
}

/// The value of `key` in records "27 path=a/long/name\n" of a pax header.
std::optional<std::string> pax_value(std::string_view records, std::string_view key) {
  std::optional<std::string> value;
  while (!records.empty()) {
    const std::size_t blank = records.find(' ');
    std::size_t length = 0;
    for (const char digit : records.substr(0, std::min<std::size_t>(blank, 12)))
      length =
          digit >= '0' && digit <= '9' ? length * 10 + static_cast<std::size_t>(digit - '0') : 0;
    if (blank == records.npos || length <= blank + 1 || length > records.size()) break;
    const std::string_view record = records.substr(blank + 1, length - blank - 2);
    if (record.starts_with(key) && record.substr(key.size()).starts_with('='))
      value = record.substr(key.size() + 1);
    records.remove_prefix(length);
  }
  return value;
}

/// What headers say of the file behind them.
struct Said {
  std::optional<std::string> name;
  std::optional<std::int64_t> length;
};

void add_pax(const core::File& file, std::int64_t at, std::string_view records, Said& said) {
  if (auto name = pax_value(records, "path")) said.name = std::move(name);
  const auto size = pax_value(records, "size");
  if (!size) return;
  if (size->empty() || size->size() > 18 ||
      size->find_first_not_of("0123456789") != std::string::npos)
    fail_damaged(file, at, "a size is no number");
  said.length = std::stoll(*size);
}

/// "a/0001" and "json" of "a/0001.json".
std::pair<std::string, std::string> cut(const std::string& name) {
  const std::size_t last = name.rfind('/') + 1;  // npos + 1 = 0
  const std::size_t point = std::min(name.find('.', last), name.size());
  return {name.substr(0, point), point < name.size() ? name.substr(point + 1) : ""};
}

}  // namespace

std::vector<TarMember> index_tar(const core::File& file, std::size_t most_members) {
  std::vector<TarMember> members;
  bool is_ended = false;
  Said said;
  const std::int64_t end = file.size_bytes();
  for (std::int64_t at = 0; at + block_bytes <= end && members.size() < most_members;) {
    Block block;
    file.read_at(at, std::as_writable_bytes(std::span(block)));
    // Two blocks of zeros end an archive; what several archives in one have there is passed over.
    if (std::ranges::all_of(block, [](char c) { return c == 0; })) {
      is_ended = true;
      at += block_bytes;
      continue;
    }
    is_ended = false;
    const auto length = number_at(block, 124, 12);
    if (!has_checksum(block) || !length) fail_damaged(file, at, "there is no header of a member");
    const char type = block[156];
    const std::int64_t begin = at + block_bytes;
    const bool is_header = type == 'L' || type == 'x' || type == 'g' || type == 'K';
    const std::int64_t bytes = is_header ? *length : said.length.value_or(*length);
    if (bytes > end - begin)
      fail_damaged(file, at, "the member is longer than the rest of the file");
    if (is_header && bytes > longest_entry_bytes)
      fail_damaged(file, at, "a name is longer than any");
    if (type == 'L') {
      said.name = read_text(file, begin, bytes);
      said.name->resize(std::min(said.name->find('\0'), said.name->size()));
    } else if (type == 'x') {
      add_pax(file, at, read_text(file, begin, bytes), said);
    } else if (!is_header) {
      const std::string_view prefix =
          text_at(block, 257, 5) == "ustar" && block[262] == '\0' ? text_at(block, 345, 155) : "";
      std::string name(text_at(block, 0, 100));
      if (!prefix.empty()) name = fmt::format("{}/{}", prefix, name);
      if (type == '0' || type == '\0' || type == '7')
        members.push_back({said.name.value_or(name), begin, bytes});
      said = {};
    }
    at = begin + (bytes + block_bytes - 1) / block_bytes * block_bytes;
  }
  if (end % block_bytes != 0 || (members.empty() && end == 0))
    fail_damaged(file, end, end == 0 ? "the file is empty" : "the file ends within a block");
  // Whoever was cut off between two members has none.
  if (!is_ended && members.size() < most_members && end > 0)
    fail_damaged(file, end, "the zeros that end an archive are missing");
  return members;
}

TarRecords::TarRecords(PlainFile file, std::size_t most_records)
    : plain_(std::move(file)), file_(plain_.file()) {
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  constexpr std::size_t most_of_a_sample = 64;
  std::set<std::string> seen;
  const auto members = index_tar(
      file_, most_records > all / most_of_a_sample ? all : most_records * most_of_a_sample);
  for (const TarMember& member : members) {
    const auto [key, ending] = cut(member.name);
    const bool is_hidden = member.name.starts_with('.') && !member.name.starts_with("./");
    if (is_hidden || member.name.find("/.") != std::string::npos ||
        std::ranges::find(read_endings, ending) == read_endings.end())
      continue;
    if (samples_.empty() || samples_.back().key != key) {
      if (samples_.size() == most_records) break;
      if (!seen.insert(key).second)
        core::fail(core::ErrorKind::input,
                   {fmt::format("{}: {}", file_.path().string(), core::one_line(member.name)),
                    "its sample has begun before, with other members between",
                    "members of a sample lie side by side",
                    "Write the archive in the order of names (tar --sort=name)."});
      samples_.push_back({key, {}});
    }
    samples_.back().members.push_back(member);
  }
  if (samples_.empty())
    core::fail(core::ErrorKind::input, {file_.path().string(), "has no member that ends in .json",
                                        "each sample has one", "Check data.path."});
}

std::string TarRecords::text_of(const TarMember& member) const {
  const std::string where =
      fmt::format("{}: {}", file_.path().string(), core::one_line(member.name));
  if (member.length > longest_entry_bytes)
    core::fail(core::ErrorKind::input,
               {where, fmt::format("is longer than {}", core::human_bytes(longest_entry_bytes)),
                "no sample of a data set is", "Remove it."});
  std::string text = read_text(file_, member.offset, member.length);
  if (const auto bad = core::invalid_utf8(text))
    core::fail(core::ErrorKind::input, {where, fmt::format("byte {} is not valid UTF-8", *bad + 1),
                                        "texts are UTF-8", "Write the archive again from UTF-8."});
  return text;
}

OrderedJson TarRecords::fields_of(const TarMember& member) const {
  const std::string where =
      fmt::format("{}: {}", file_.path().string(), core::one_line(member.name));
  OrderedJson fields = core::ordered_json(text_of(member), where);
  if (!fields.is_object())
    core::fail(core::ErrorKind::input,
               {where, fmt::format("is a JSON {}", core::type_name(fields)),
                "a sample is an object, { ... }", "Correct or remove this member."});
  return fields;
}

OrderedJson TarRecords::object(std::int64_t i) const {
  OrderedJson record = OrderedJson::object();
  const auto add = [&](const std::string& name, OrderedJson value) {
    if (record.contains(name))
      core::fail(core::ErrorKind::input,
                 {where(i), fmt::format("has the field \"{}\" twice", core::one_line(name)),
                  "a member and a field of another are called so", "Remove one."});
    record[name] = std::move(value);
  };
  for (const TarMember& member : samples_.at(static_cast<std::size_t>(i)).members) {
    const std::string ending = cut(member.name).second;
    if (ending == "json") {
      const OrderedJson fields = fields_of(member);
      for (const auto& [name, value] : fields.items())
        add(name, value);
    } else {
      add(ending, text_of(member));
    }
  }
  return record;
}

std::string TarRecords::where(std::int64_t i) const {
  return fmt::format("{}: {}", file_.path().string(),
                     core::one_line(samples_.at(static_cast<std::size_t>(i)).key));
}

}  // namespace finetune::data
