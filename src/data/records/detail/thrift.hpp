#pragma once
// SPDX-License-Identifier: Apache-2.0
// Structs in Thrift's compact protocol, read without their definition: fields have numbers.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/records/detail/binary.hpp"

namespace finetune::data {

/// A value that others wrote: a number or boolean, text, a list, or a struct.
struct ThriftValue {
  std::int64_t number = 0;
  double real = 0;
  Bytes text = {};
  std::vector<ThriftValue> items = {};
  std::vector<std::pair<int, ThriftValue>> fields = {};

  /// The field of a struct, or null.
  const ThriftValue* find(int field) const;
  std::int64_t number_of(int field, std::int64_t otherwise = 0) const;
  std::string text_of(int field) const;
};

/// The struct that `bytes` begins with, which texts in it are views of, and how many it takes.
/// Throws: ErrorKind::input beginning with `where` for what ends early, is nested too deeply, or
/// has more values than bytes. Source: Apache Thrift, "Thrift Compact protocol encoding".
std::pair<ThriftValue, std::size_t> read_thrift(Bytes bytes, const std::string& where);

}  // namespace finetune::data
