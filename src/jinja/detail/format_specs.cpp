// SPDX-License-Identifier: Apache-2.0
// Source: "Format Specification Mini-Language" of Python's library reference.
#include "jinja/detail/format_specs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "jinja/detail/characters.hpp"
#include "jinja/detail/letters.hpp"
#include "jinja/detail/library.hpp"

namespace finetune::jinja::detail {
namespace {

constexpr std::int64_t widest = 1'000'000;

[[noreturn]] void refuse_format(std::string_view spec, const Value& value) {
  throw Problem(fmt::format("str.format: \":{}\" is no format known here for the type {}", spec,
                            value.type_name()));
}

/// What stands behind the colon.
struct Spec {
  std::string_view whole;
  std::string_view fill = " ";
  char alignment = 0;  ///< < > ^ =, 0: that of the value's type
  char sign = 0;
  bool is_alternate = false;
  std::int64_t width = 0;
  char grouping = 0;
  std::optional<int> precision = {};
  char kind = 0;
};

/// Reads a Spec from its beginning on.
class SpecReader {
 public:
  explicit SpecReader(std::string_view text) : rest_(text) {}

  /// Nothing if it is none.
  std::optional<Spec> read(bool is_of_number) && {
    Spec spec{.whole = rest_};
    const bool has_fill = read_alignment(spec);
    spec.sign = take("+- ");
    spec.is_alternate = take("#") != 0;
    if (!has_fill && take("0") != 0) {
      spec.fill = "0";
      if (spec.alignment == 0 && is_of_number) spec.alignment = '=';
    }
    if (const auto width = number()) spec.width = *width;
    spec.grouping = take(",_");
    if (take(".") != 0) {
      const auto precision = number();
      if (!precision) return std::nullopt;
      spec.precision = static_cast<int>(*precision);
    }
    if (rest_.size() > 1) return std::nullopt;
    if (!rest_.empty()) spec.kind = rest_.front();
    return spec;
  }

 private:
  /// Whether there is a character to fill with.
  bool read_alignment(Spec& spec) {
    const std::vector<std::string_view> characters = characters_of(rest_);
    const auto is_alignment = [&](std::size_t i) {
      return i < characters.size() && characters[i].find_first_of("<>^=") == 0;
    };
    const bool has_fill = is_alignment(1);
    if (!has_fill && !is_alignment(0)) return false;
    if (has_fill) {
      spec.fill = characters[0];
      rest_.remove_prefix(characters[0].size());
    }
    spec.alignment = rest_.front();
    rest_.remove_prefix(1);
    return has_fill;
  }

  /// The next character if it is one of those; 0: it is not.
  char take(std::string_view any) {
    if (rest_.empty() || any.find(rest_.front()) == std::string_view::npos) return 0;
    const char taken = rest_.front();
    rest_.remove_prefix(1);
    return taken;
  }

  std::optional<std::int64_t> number() {
    std::int64_t number = 0;
    const char* end = rest_.data() + rest_.size();
    if (rest_.empty() || !is_digit(static_cast<unsigned char>(rest_.front()))) return std::nullopt;
    const auto read = std::from_chars(rest_.data(), end, number);
    if (read.ec != std::errc() || number > widest)
      throw Problem("str.format of more than a million characters");
    rest_ = {read.ptr, static_cast<std::size_t>(end - read.ptr)};
    return number;
  }

  std::string_view rest_;
};

/// Between `head`, a sign, and the rest, or around both.
Text aligned(std::string_view head, const Text& rest, const Spec& spec, char usual,
             Budget& budget) {
  const std::int64_t missing =
      std::max<std::int64_t>(0, spec.width - num_characters(head) - num_characters(rest.bytes()));
  budget.spend_bytes(missing * std::ssize(spec.fill));
  const char alignment = spec.alignment == 0 ? usual : spec.alignment;
  const std::int64_t num_left = alignment == '<' ? 0 : alignment == '^' ? missing / 2 : missing;
  const auto fill = [&](std::int64_t times) {
    std::string all;
    for (; times > 0; --times)
      all += spec.fill;
    return all;
  };
  Text text;
  if (alignment == '=') text.append(head);
  text.append(fill(num_left));
  if (alignment != '=') text.append(head);
  text += rest;
  text.append(fill(missing - num_left));
  return text;
}

/// A sign between every so many of the digits that `number` begins with.
std::string grouped(std::string number, char sign, std::size_t every) {
  const auto is_of_number = [&](char c) {
    return every == 4 ? std::isxdigit(static_cast<unsigned char>(c)) != 0
                      : is_digit(static_cast<unsigned char>(c));
  };
  const auto end = std::ranges::find_if_not(number, is_of_number);
  for (auto at = end - number.begin(); at > std::ptrdiff_t(every);) {
    at -= std::ptrdiff_t(every);
    number.insert(static_cast<std::size_t>(at), 1, sign);
  }
  return number;
}

/// As Python writes a float to so many digits if no type is said: as %g, but with a digit behind
/// the point, and with an exponent as soon as there is no room for that digit.
std::string float_text_of(double size, int precision) {
  precision = std::max(1, precision);
  std::string text = fmt::format("{:.{}g}", size, precision);
  if (!std::isfinite(size) || text.find_first_of(".e") != std::string::npos) return text;
  if (std::cmp_less(text.size(), precision)) return text + ".0";
  text = fmt::format("{:.{}e}", size, precision - 1);
  const std::size_t exponent = text.find('e');
  const std::string mantissa = text.substr(0, exponent);
  // Its first digit is not taken for a zero that says nothing.
  const std::size_t last = mantissa.find_last_not_of("0.");
  return mantissa.substr(0, last == std::string::npos ? 1 : last + 1) + text.substr(exponent);
}

/// Without its sign.
std::string float_digits(const Value& value, double number, const Spec& spec) {
  if (spec.is_alternate) refuse_format(spec.whole, value);
  const int precision = spec.precision.value_or(6);
  if (precision > 1000)
    throw Problem("str.format: a float has at most 1000 digits behind its point");
  const double size = std::abs(number);
  switch (spec.kind) {
    case 0:
      return spec.precision ? float_text_of(size, precision) : float_text(size);
    case 'e':
      return fmt::format("{:.{}e}", size, precision);
    case 'E':
      return fmt::format("{:.{}E}", size, precision);
    case 'f':
      return fmt::format("{:.{}f}", size, precision);
    case 'F':
      return fmt::format("{:.{}F}", size, precision);
    case 'g':
      return fmt::format("{:.{}g}", size, precision);
    case 'G':
      return fmt::format("{:.{}G}", size, precision);
    case '%':
      return fmt::format("{:.{}f}%", size * 100, precision);
    default:
      refuse_format(spec.whole, value);
  }
}

/// Without its sign.
std::string integer_digits(const Value& value, const Spec& spec) {
  const bool is_decimal = spec.kind == 0 || spec.kind == 'd';
  if (spec.precision || (!is_decimal && spec.grouping == ',')) refuse_format(spec.whole, value);
  if (value.is_long_integer()) {
    const std::string& digits = value.long_integer().digits;
    if (!is_decimal) refuse_format(spec.whole, value);
    return digits.substr(digits.starts_with('-') ? 1 : 0);
  }
  const std::int64_t number = value.integer();
  const std::uint64_t size =
      number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  if (is_decimal) return fmt::format("{}", size);
  if (spec.kind == 'x') return fmt::format("{:x}", size);
  if (spec.kind == 'X') return fmt::format("{:X}", size);
  if (spec.kind == 'o') return fmt::format("{:o}", size);
  if (spec.kind == 'b') return fmt::format("{:b}", size);
  refuse_format(spec.whole, value);
}

bool has_minus(const Value& value, bool is_float) {
  if (value.is_long_integer()) return value.long_integer().digits.starts_with('-');
  if (!is_float) return value.integer() < 0;
  return std::signbit(value.number()) && !std::isnan(value.number());
}

Text number_at(const Value& value, const Spec& spec, Budget& budget) {
  constexpr std::string_view of_floats = "eEfFgG%";
  const bool is_float = value.is_float() || (spec.kind != 0 && value.is_integer() &&
                                             of_floats.find(spec.kind) != std::string_view::npos);
  const bool is_negative = has_minus(value, is_float);
  std::string digits =
      is_float ? float_digits(value, value.number(), spec) : integer_digits(value, spec);
  const bool is_other_base = !is_float && spec.kind != 0 && spec.kind != 'd';
  if (spec.grouping != 0) {
    // Python would write separators between zeros that fill, too.
    if (spec.alignment == '=' && spec.fill == "0") refuse_format(spec.whole, value);
    digits = grouped(std::move(digits), spec.grouping, is_other_base ? 4 : 3);
  }
  std::string head;
  if (is_negative)
    head = "-";
  else if (spec.sign == '+' || spec.sign == ' ')
    head = std::string(1, spec.sign);
  if (spec.is_alternate && is_other_base) head += {'0', spec.kind};
  return aligned(head, Text(std::move(digits)), spec, '>', budget);
}

Text string_at(const Value& value, const Spec& spec, Budget& budget) {
  if ((spec.kind != 0 && spec.kind != 's') || spec.sign != 0 || spec.is_alternate ||
      spec.grouping != 0 || spec.alignment == '=')
    refuse_format(spec.whole, value);
  Text text = value.text();
  if (spec.precision) {
    const auto characters = characters_of(value.string());
    std::size_t kept = 0;
    for (std::size_t i = 0; i < characters.size() && std::cmp_less(i, *spec.precision); ++i)
      kept += characters[i].size();
    text = text.part(0, kept);
  }
  return aligned({}, text, spec, '<', budget);
}

}  // namespace

Text laid_out(const Value& value, std::string_view format, Budget& budget) {
  require_defined(value);
  const bool is_number = value.is_number() || value.is_long_integer();
  const auto spec = SpecReader(format).read(is_number);
  if (!spec || !(is_number || value.is_string())) refuse_format(format, value);
  return is_number ? number_at(value, *spec, budget) : string_at(value, *spec, budget);
}

}  // namespace finetune::jinja::detail
