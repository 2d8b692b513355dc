// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/parquet_encodings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "data/records/detail/varint.hpp"

namespace finetune::data::parquet_file {
namespace {

namespace encoding {
constexpr int plain = 0, rle = 3, delta_packed = 5, delta_length = 6, delta_bytes = 7, split = 9;
}

/// Bytes of a page, taken one part after the other.
class PageBytes {
 public:
  PageBytes(Bytes bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  Bytes take(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail_binary(where_, "a page ends early");
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }
  std::uint64_t varint() {
    const auto read = read_varint(bytes_, at_);
    if (!read) fail_binary(where_, "a page ends early");
    return *read;
  }
  bool is_at_end() const { return at_ == bytes_.size(); }
  Bytes rest() const { return bytes_.subspan(at_); }

 private:
  Bytes bytes_;
  const std::string& where_;
  std::size_t at_ = 0;
};

/// The i-th number of `width` bits, the lowest bit first; `packed` holds it.
std::uint64_t bits_at(Bytes packed, std::size_t i, int width) {
  std::uint64_t value = 0;
  std::size_t bit = i * static_cast<std::size_t>(width);
  for (int done = 0; done < width;) {
    const auto in_byte = static_cast<int>(bit % 8);
    const int taken = std::min(8 - in_byte, width - done);
    const auto byte = static_cast<std::uint64_t>(packed[bit / 8]);
    value |= (byte >> in_byte & ((1U << taken) - 1)) << done;
    done += taken;
    bit += static_cast<std::size_t>(taken);
  }
  return value;
}

template <typename T>
void read_plain(PageBytes& page, std::int64_t count, std::vector<std::uint64_t>& out) {
  const Bytes bytes = page.take(static_cast<std::uint64_t>(count) * sizeof(T));
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    // With the sign, so that all widths are read alike.
    if constexpr (std::is_same_v<T, std::int32_t>)
      out.push_back(static_cast<std::uint64_t>(std::int64_t{number_in<T>(bytes.subspan(at))}));
    else
      out.push_back(number_in<T>(bytes.subspan(at)));
  }
}

/// Bytes of all numbers by their places: first the lowest byte of each, and so on.
void read_split(PageBytes& page, std::size_t width, std::int64_t count,
                std::vector<std::uint64_t>& out) {
  const auto n = static_cast<std::size_t>(count);
  const Bytes bytes = page.take(n * width);
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t value = 0;
    for (std::size_t b = 0; b < width; ++b)
      value |= static_cast<std::uint64_t>(bytes[b * n + i]) << (8 * b);
    out.push_back(value);
  }
}

/// Blocks of differences, each of them in few bits.
std::vector<std::uint64_t> read_deltas(PageBytes& page, std::int64_t most, bool is_narrow,
                                       const std::string& where) {
  const std::uint64_t block = page.varint(), minis = page.varint(), count = page.varint();
  auto value = static_cast<std::uint64_t>(zigzag(page.varint()));
  if (minis == 0 || minis > 512 || block > 65536 || block % minis != 0 || block / minis % 32 != 0 ||
      block == 0 || count > static_cast<std::uint64_t>(most))
    fail_binary(where, "a page of differences is damaged");
  std::vector<std::uint64_t> made;
  const auto add = [&] {
    made.push_back(is_narrow
                       ? static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(value)})
                       : value);
  };
  if (count > 0) add();
  while (made.size() < count) {
    const auto least = static_cast<std::uint64_t>(zigzag(page.varint()));
    const Bytes widths = page.take(minis);
    for (std::uint64_t m = 0; m < minis && made.size() < count; ++m) {
      const int width = static_cast<int>(widths[m]);
      if (width > 64) fail_binary(where, "a page of differences is damaged");
      const std::uint64_t size = block / minis;
      const Bytes packed = page.take(size * static_cast<std::uint64_t>(width) / 8);
      for (std::size_t i = 0; i < size && made.size() < count; ++i) {
        value += least + bits_at(packed, i, width);
        add();
      }
    }
  }
  return made;
}

void require_count(std::size_t found, std::int64_t count, const std::string& where) {
  if (static_cast<std::int64_t>(found) != count)
    fail_binary(where, fmt::format("a page has {} values", found),
                fmt::format("{} are described", count));
}

void read_numbers(int how, Physical physical, PageBytes& page, std::int64_t count, Values& out,
                  const std::string& where) {
  const bool is_narrow = physical == Physical::int32 || physical == Physical::real32;
  switch (how) {
    case encoding::plain:
      if (physical == Physical::int32) return read_plain<std::int32_t>(page, count, out.numbers);
      if (is_narrow) return read_plain<std::uint32_t>(page, count, out.numbers);
      return read_plain<std::uint64_t>(page, count, out.numbers);
    case encoding::split:
      return read_split(page, is_narrow ? 4 : 8, count, out.numbers);
    case encoding::delta_packed: {
      const auto read = read_deltas(page, count, is_narrow, where);
      require_count(read.size(), count, where);
      out.numbers.insert(out.numbers.end(), read.begin(), read.end());
      return;
    }
    default:
      fail_binary(where, fmt::format("numbers have the encoding {}", how), "it is not known",
                  "Write the file again with usual settings.");
  }
}

void read_booleans(int how, PageBytes& page, std::int64_t count, Values& out,
                   const std::string& where) {
  if (how == encoding::rle) {
    const auto size = number_in<std::uint32_t>(page.take(4));
    return read_hybrid(page.take(size), 1, count, out.numbers, where);
  }
  if (how != encoding::plain)
    fail_binary(where, fmt::format("booleans have the encoding {}", how), "it is not known",
                "Write the file again with usual settings.");
  const Bytes bits = page.take((static_cast<std::uint64_t>(count) + 7) / 8);
  for (std::int64_t i = 0; i < count; ++i)
    out.numbers.push_back(bits_at(bits, static_cast<std::size_t>(i), 1));
}

/// Beginnings that texts share with the one before, and what follows them.
void read_prefixed(PageBytes& page, std::int64_t count, Values& out,
                   std::deque<std::vector<std::byte>>& owned, Room& room,
                   const std::string& where) {
  const auto shared = read_deltas(page, count, true, where);
  const auto lengths = read_deltas(page, count, true, where);
  require_count(shared.size(), count, where);
  require_count(lengths.size(), count, where);
  Bytes before;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (shared[i] > before.size()) fail_binary(where, "a text's beginning is missing");
    const Bytes rest = page.take(lengths[i]);
    room.take(static_cast<std::int64_t>(shared[i] + rest.size()), 1);
    auto& text =
        owned.emplace_back(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(shared[i]));
    text.insert(text.end(), rest.begin(), rest.end());
    before = text;
    out.texts.push_back(before);
  }
}

}  // namespace

void Room::take(std::int64_t count, std::int64_t bytes_each) {
  if (count < 0 || count > left_ / bytes_each)
    fail_binary(where_, "a group of rows expands to more than any data set's",
                "it is a mistake or an attack", "Write the file again, in smaller groups of rows.");
  left_ -= count * bytes_each;
}

template <typename T>
void read_hybrid(Bytes bytes, int width, std::int64_t count, std::vector<T>& out,
                 const std::string& where) {
  PageBytes page(bytes, where);
  const auto size = static_cast<std::uint64_t>((width + 7) / 8);
  while (count > 0) {
    const std::uint64_t head = page.varint();
    if ((head & 1) == 0) {
      const auto run = std::min(static_cast<std::uint64_t>(count), head >> 1);
      if (run == 0) fail_binary(where, "a page has a run of nothing");
      std::array<std::byte, 8> wide{};
      std::ranges::copy(page.take(size), wide.begin());
      out.insert(out.end(), run, static_cast<T>(number_in<std::uint64_t>(wide)));
      count -= static_cast<std::int64_t>(run);
      continue;
    }
    const std::uint64_t groups = head >> 1;
    if (groups == 0 || groups > bytes.size() + static_cast<std::uint64_t>(count))
      fail_binary(where, "a page has a run of nothing, or too long");
    const Bytes packed = page.take(groups * static_cast<std::uint64_t>(width));
    const auto taken = std::min(static_cast<std::uint64_t>(count), 8 * groups);
    for (std::size_t i = 0; i < taken; ++i)
      out.push_back(static_cast<T>(bits_at(packed, i, width)));
    count -= static_cast<std::int64_t>(taken);
  }
}

template void read_hybrid(Bytes, int, std::int64_t, std::vector<std::uint8_t>&, const std::string&);
template void read_hybrid(Bytes, int, std::int64_t, std::vector<std::uint64_t>&,
                          const std::string&);

void read_values(int how, Physical physical, Bytes bytes, std::int64_t count, Values& out,
                 std::deque<std::vector<std::byte>>& owned, Room& room, const std::string& where) {
  PageBytes page(bytes, where);
  room.take(count, sizeof(Bytes));
  if (physical == Physical::boolean) return read_booleans(how, page, count, out, where);
  if (physical != Physical::bytes) return read_numbers(how, physical, page, count, out, where);
  switch (how) {
    case encoding::plain:
      for (std::int64_t i = 0; i < count; ++i)
        out.texts.push_back(page.take(number_in<std::uint32_t>(page.take(4))));
      return;
    case encoding::delta_length: {
      const auto lengths = read_deltas(page, count, true, where);
      require_count(lengths.size(), count, where);
      for (const std::uint64_t length : lengths)
        out.texts.push_back(page.take(length));
      return;
    }
    case encoding::delta_bytes:
      return read_prefixed(page, count, out, owned, room, where);
    default:
      fail_binary(where, fmt::format("texts have the encoding {}", how), "it is not known",
                  "Write the file again with usual settings.");
  }
}

}  // namespace finetune::data::parquet_file
