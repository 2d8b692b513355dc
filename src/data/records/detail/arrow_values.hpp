#pragma once
// SPDX-License-Identifier: Apache-2.0
// Values of Arrow's columns as JSON, every place checked.

#include <string>

#include "data/records/detail/arrow_batch.hpp"

namespace finetune::data::arrow_ipc {

/// The values of a row, which together are no larger than any sample of a data set.
class Values {
 public:
  Values(const Dictionaries& dictionaries, const std::string& where)
      : dictionaries_(dictionaries), where_(where) {}

  /// Throws: ErrorKind::input beginning with `where` for places outside of buffers, texts that are
  /// not UTF-8, values that are too many.
  OrderedJson at(const Column& column, std::int64_t i);

 private:
  OrderedJson number(const Column& column, std::int64_t i);
  OrderedJson text(std::span<const std::byte> letters);
  OrderedJson view(const Column& column, std::int64_t i);
  OrderedJson list(const Column& column, std::int64_t begin, std::int64_t end);
  OrderedJson coded(const Column& column, std::int64_t i);
  std::int64_t place(const Column& column, std::int64_t i) const;
  bool bit(std::span<const std::byte> bits, std::int64_t i) const;
  std::span<const std::byte> part(std::span<const std::byte> bytes, std::int64_t at,
                                  std::int64_t size) const;
  void spend(std::int64_t bytes);

  const Dictionaries& dictionaries_;
  const std::string& where_;
  std::int64_t spent_ = 0;
};

}  // namespace finetune::data::arrow_ipc
