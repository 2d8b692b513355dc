// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "jinja/detail/characters.hpp"
#include "jinja/detail/filters.hpp"

namespace finetune::jinja::detail {
namespace {

std::optional<double> read_float(std::string_view text) {
  text = stripped(text, Ends::both);
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size())
    return std::nullopt;
  return number;
}

std::optional<std::int64_t> read_integer(std::string_view text, int base) {
  text = stripped(text, Ends::both);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size())
    return std::nullopt;
  return number;
}

std::optional<std::int64_t> whole(std::optional<double> number) {
  if (!number || !(std::abs(*number) < 0x1p63)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

Value to_integer(const Filtering& f) {
  require_defined(f.value);
  const Value fallback = f.get(0, "default", 0);
  const std::int64_t base = f.integer(1, "base", 10);
  if (base < 2 || base > 36) throw Problem("int: a base is from 2 to 36");
  std::optional<std::int64_t> number;
  if (f.value.is_integer()) number = f.value.integer();
  if (f.value.is_float()) number = whole(f.value.number());
  if (f.value.listed().is_string()) {
    number = read_integer(f.value.string(), static_cast<int>(base));
    if (!number) number = whole(read_float(f.value.string()));
  }
  return number ? Value(*number) : fallback;
}

Value to_float(const Filtering& f) {
  require_defined(f.value);
  if (f.value.is_number()) return f.value.number();
  const auto number = f.value.listed().is_string() ? read_float(f.value.string()) : std::nullopt;
  return number ? Value(*number) : f.get(0, "default", 0.0);
}

Value round(const Filtering& f) {
  require_defined(f.value);
  if (!f.value.is_number())
    throw Problem(std::string("round asks for a number, not ") + f.value.type_name());
  const std::int64_t precision = f.integer(0, "precision", 0);
  const std::string method = to_text(f.get(1, "method", "common"));
  if (precision < 0 || precision > 30) throw Problem("round: a precision is from 0 to 30");
  const double number = f.value.number();
  if (method == "common") {
    if (f.value.is_integer()) return f.value.integer();
    // To even where both are as near, of the number as it is in binary.
    return std::strtod(fmt::format("{:.{}f}", number, precision).c_str(), nullptr);
  }
  const double scale = std::pow(10, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(number * scale) / scale;
  if (method == "floor") return std::floor(number * scale) / scale;
  throw Problem("round: a method is common, ceil or floor");
}

Value absolute(const Filtering& f) {
  require_defined(f.value);
  if (!f.value.is_number())
    throw Problem(std::string("abs asks for a number, not ") + f.value.type_name());
  if (f.value.is_float()) return std::abs(f.value.number());
  return f.value.integer() < 0 ? compute(Operation::subtract, 0, f.value, f.budget)
                               : Value(f.value.integer());
}

Value sum(const Filtering& f) {
  const Value path = f.get(0, "attribute");
  Value total = f.get(1, "start", 0);
  for (const Value& one : f.elements())
    total = compute(Operation::add, total, path.is_none() ? one : by_path(one, path, f.budget),
                    f.budget);
  return total;
}

/// "1.5 MB" of a number of bytes.
Value file_size(const Filtering& f) {
  require_defined(f.value);
  std::optional<double> num_bytes;
  if (f.value.is_number()) num_bytes = f.value.number();
  if (f.value.is_string()) num_bytes = read_float(f.value.string());
  if (!num_bytes || !std::isfinite(*num_bytes))
    throw Problem("filesizeformat asks for a number of bytes");
  const bool is_binary = f.get(0, "binary", false).is_true();
  const double base = is_binary ? 1024 : 1000;
  if (*num_bytes == 1) return "1 Byte";
  if (*num_bytes < base) return fmt::format("{:.0f} Bytes", std::trunc(*num_bytes) + 0.0);
  constexpr std::string_view prefixes = "kMGTPEZY";
  std::size_t i = 0;
  while (i + 1 < prefixes.size() && *num_bytes >= std::pow(base, i + 2))
    ++i;
  const std::string prefix = !is_binary ? std::string(1, prefixes[i])
                             : i == 0   ? "Ki"
                                        : fmt::format("{}i", prefixes[i]);
  return fmt::format("{:.1f} {}B", base * *num_bytes / std::pow(base, i + 2), prefix);
}

}  // namespace

const FilterTable& filters_of_numbers() {
  static const FilterTable all = {{"int", to_integer}, {"float", to_float},
                                  {"round", round},    {"abs", absolute},
                                  {"sum", sum},        {"filesizeformat", file_size}};
  return all;
}

}  // namespace finetune::jinja::detail
