#pragma once
// SPDX-License-Identifier: Apache-2.0
// The filters of templates, in tables by what they are about.

#include <string>
#include <unordered_map>

#include "jinja/detail/library.hpp"

namespace finetune::jinja::detail {

/// What a filter is given.
struct Filtering {
  const Value& value;
  const Arguments& arguments;
  const std::string& name;
  Budget& budget;

  Value get(std::size_t place, const char* key, Value fallback = {}) const {
    return arguments.get(place, key, std::move(fallback));
  }
  std::int64_t integer(std::size_t place, const char* key, std::int64_t fallback) const {
    return integer_of(get(place, key, fallback), name + ": " + key);
  }
  /// Its value as text, as Python's str().
  std::string text() const { return to_text(value); }
  Text written() const { return to_written(value); }
  std::vector<Value> elements() const;
};

using FilterTable = std::unordered_map<std::string, FilterFunction>;

const FilterTable& filters_of_text();
const FilterTable& filters_of_numbers();
const FilterTable& filters_of_lists();

/// value.a.b of "a.b", where numbers are places.
Value by_path(const Value& value, const Value& path, Budget& budget);

}  // namespace finetune::jinja::detail
