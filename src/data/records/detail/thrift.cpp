// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/thrift.hpp"

#include <algorithm>

#include "data/records/detail/varint.hpp"

namespace finetune::data {
namespace {

constexpr int deepest_thrift = 32;

namespace thrift_type {
enum Code { stop, yes, no, byte, i16, i32, i64, real, binary, list, set, map, structure };
}  // namespace thrift_type

class ThriftReader {
 public:
  ThriftReader(Bytes bytes, const std::string& where)
      : bytes_(bytes), where_(where), left_(bytes.size()) {}

  std::size_t offset() const { return at_; }

  ThriftValue read_struct(int depth) {
    if (depth > deepest_thrift) fail_binary(where_, "its description is nested too deeply");
    ThriftValue made;
    for (int field = 0;;) {
      const unsigned head = next();
      const int type = head & 15;
      if (type == thrift_type::stop) return made;
      field =
          head >> 4 != 0 ? field + static_cast<int>(head >> 4) : static_cast<int>(zigzag(varint()));
      count();
      made.fields.emplace_back(field, read(type, depth));
    }
  }

 private:
  ThriftValue read(int type, int depth) {
    switch (type) {
      case thrift_type::yes:
        return {.number = 1};
      case thrift_type::no:
        return {.number = 0};
      case thrift_type::byte:
        return {.number = static_cast<std::int8_t>(next())};
      case thrift_type::i16:
      case thrift_type::i32:
      case thrift_type::i64:
        return {.number = zigzag(varint())};
      case thrift_type::real:
        return {.real = number_in<double>(take(8))};
      case thrift_type::binary:
        return {.text = take(varint())};
      case thrift_type::list:
      case thrift_type::set:
        return read_list(depth);
      case thrift_type::map:
        return read_map(depth);
      case thrift_type::structure:
        return read_struct(depth + 1);
      default:
        fail_binary(where_, "its description has a value of no type");
    }
  }

  ThriftValue read_list(int depth) {
    if (depth > deepest_thrift) fail_binary(where_, "its description is nested too deeply");
    const unsigned head = next();
    const std::uint64_t size = head >> 4 == 15 ? varint() : head >> 4;
    ThriftValue made;
    for (std::uint64_t i = 0; i < size; ++i) {
      count();
      made.items.push_back(read_element(static_cast<int>(head & 15), depth + 1));
    }
    return made;
  }

  /// Of a list: booleans are bytes there.
  ThriftValue read_element(int type, int depth) {
    if (type == thrift_type::yes || type == thrift_type::no) return {.number = next() == 1};
    return read(type, depth);
  }

  /// Nothing here needs one: its values are passed over.
  ThriftValue read_map(int depth) {
    const std::uint64_t size = varint();
    if (size == 0) return {};
    const unsigned types = next();
    for (std::uint64_t i = 0; i < size; ++i) {
      count();
      read_element(static_cast<int>(types >> 4), depth + 1);
      read_element(static_cast<int>(types & 15), depth + 1);
    }
    return {};
  }

  /// There are no more values than bytes.
  void count() {
    if (left_-- == 0) fail_binary(where_, "its description has more values than bytes");
  }

  unsigned next() { return number_in<std::uint8_t>(take(1)); }

  Bytes take(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail_binary(where_, "its description ends early");
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }

  std::uint64_t varint() {
    const auto read = read_varint(bytes_, at_);
    if (!read) fail_binary(where_, "its description ends early");
    return *read;
  }

  Bytes bytes_;
  const std::string& where_;
  std::size_t left_;
  std::size_t at_ = 0;
};

}  // namespace

const ThriftValue* ThriftValue::find(int field) const {
  const auto found = std::ranges::find(fields, field, &std::pair<int, ThriftValue>::first);
  return found == fields.end() ? nullptr : &found->second;
}

std::int64_t ThriftValue::number_of(int field, std::int64_t otherwise) const {
  const ThriftValue* found = find(field);
  return found == nullptr ? otherwise : found->number;
}

std::string ThriftValue::text_of(int field) const {
  const ThriftValue* found = find(field);
  if (found == nullptr) return "";
  return {reinterpret_cast<const char*>(found->text.data()), found->text.size()};
}

std::pair<ThriftValue, std::size_t> read_thrift(Bytes bytes, const std::string& where) {
  ThriftReader reader(bytes, where);
  ThriftValue made = reader.read_struct(0);
  return {std::move(made), reader.offset()};
}

}  // namespace finetune::data
