// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/printf.h>

#include <array>
#include <cmath>

#include "jinja/detail/characters.hpp"
#include "jinja/detail/library.hpp"

namespace finetune::jinja::detail {
namespace {

[[noreturn]] void refuse(Operation operation, const Value& a, const Value& b) {
  constexpr std::array<const char*, 7> signs = {"+", "-", "*", "/", "//", "%", "**"};
  throw Problem(fmt::format("{} {} {} has no meaning", a.type_name(),
                            signs[static_cast<std::size_t>(operation)], b.type_name()));
}

void require_64_bits(bool is_beyond) {
  if (is_beyond) throw Problem("a whole number is beyond 64 bits");
}

/// Rounded down, as Python does.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) throw Problem("division by zero");
  if (b == -1) {
    require_64_bits(a == INT64_MIN);
    return -a;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (; exponent > 0; --exponent) {
    require_64_bits(__builtin_mul_overflow(result, base, &result));
    if (result == 0 || (result == 1 && base == 1)) break;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  }
  return result;
}

Value of_integers(Operation operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (operation == Operation::add || operation == Operation::subtract ||
      operation == Operation::multiply) {
    require_64_bits(operation == Operation::add        ? __builtin_add_overflow(a, b, &result)
                    : operation == Operation::subtract ? __builtin_sub_overflow(a, b, &result)
                                                       : __builtin_mul_overflow(a, b, &result));
    return result;
  }
  if (operation == Operation::floor_divide) return floor_divide(a, b);
  if (operation == Operation::remainder) {
    const std::int64_t quotient = floor_divide(a, b);
    return a - quotient * b;
  }
  if (operation == Operation::power && b >= 0) return power(a, b);
  if (b == 0) throw Problem("division by zero");
  return operation == Operation::divide ? static_cast<double>(a) / static_cast<double>(b)
                                        : std::pow(static_cast<double>(a), static_cast<double>(b));
}

Value of_floats(Operation operation, double a, double b) {
  if (operation == Operation::add) return a + b;
  if (operation == Operation::subtract) return a - b;
  if (operation == Operation::multiply) return a * b;
  if (operation == Operation::power) return std::pow(a, b);
  if (b == 0) throw Problem("division by zero");
  if (operation == Operation::divide) return a / b;
  if (operation == Operation::floor_divide) return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value repeated(const Value& what, std::int64_t times, Budget& budget) {
  times = std::max<std::int64_t>(0, times);
  if (what.is_string()) {
    const Text& text = what.text();
    if (text.size() == 0) return what;
    if (times > (std::int64_t{1} << 32)) throw Problem("the template writes too much text");
    budget.spend_bytes(times * static_cast<std::int64_t>(text.size()));
    Text all;
    for (std::int64_t i = 0; i < times; ++i)
      all += text;
    return all;
  }
  const auto& items = what.sequence().items;
  if (items.empty()) return what;
  if (times > (std::int64_t{1} << 32)) throw Problem("the template takes too many steps");
  budget.spend(times * static_cast<std::int64_t>(items.size()));
  std::vector<Value> all;
  for (std::int64_t i = 0; i < times; ++i)
    all.insert(all.end(), items.begin(), items.end());
  return Sequence{std::move(all), what.sequence().is_tuple};
}

/// One place of a format, in which fmt finds what Python does not know.
template <typename T>
std::string at_place(const std::string& place, const T& value) {
  try {
    return fmt::sprintf(place, value);
  } catch (const fmt::format_error&) {
    throw Problem("a format has no place " + place);
  }
}

/// "%s of %d" % values.
Text formatted(const Text& whole, const Value& values) {
  const std::string& format = whole.bytes();
  const bool are_several = values.is_sequence() && values.sequence().is_tuple;
  std::size_t used = 0;
  const auto next = [&]() -> Value {
    if (!are_several) {
      if (used++ > 0) throw Problem("a format has more places than values");
      return values;
    }
    if (used >= values.sequence().items.size())
      throw Problem("a format has more places than values");
    return values.sequence().items[used++];
  };
  Text text;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      text += whole.part(i, 1);
      continue;
    }
    std::size_t end = format.find_first_not_of("-+ #0123456789.", i + 1);
    if (end == std::string::npos) throw Problem("a format ends within a place");
    const std::string flags = format.substr(i + 1, end - i - 1);
    if (flags.size() > 6) throw Problem("a format's place is too wide");
    const char kind = format[end];
    i = end;
    if (kind == '%') {
      text.append("%");
    } else if (kind == 's' || kind == 'r') {
      const Value value = next();
      if (kind == 's' && flags.empty())
        text += to_written(value);
      else
        text.append(at_place("%" + flags + "s", kind == 's' ? to_text(value) : to_repr(value)),
                    data_origin(value));
    } else if (std::string_view("dixXo").find(kind) != std::string_view::npos) {
      const Value value = next();
      if (!value.is_number()) throw Problem("a format asks for a number");
      const auto number =
          value.is_integer() ? value.integer() : static_cast<std::int64_t>(value.number());
      text.append(at_place("%" + flags + kind, number));
    } else if (std::string_view("feEgG").find(kind) != std::string_view::npos) {
      const Value value = next();
      if (!value.is_number()) throw Problem("a format asks for a number");
      text.append(at_place("%" + flags + kind, value.number()));
    } else {
      throw Problem(fmt::format("formats of the kind %{} are not known here", kind));
    }
  }
  const std::size_t given = are_several ? values.sequence().items.size() : 1;
  if (used < given && (are_several || !(values.is_mapping() || values.is_sequence())))
    throw Problem("a format has more values than places");
  return text;
}

/// Whether it can be added to a text: a dict of the data, too, for templates that take the
/// arguments of a call for the text that they are in many data.
bool is_text(const Value& value) {
  return value.is_string() || (value.is_mapping() && value.mapping().element != Origin::none);
}

Text text_of(const Value& value) {
  return value.is_string() ? value.text() : Text(to_json(value), data_origin(value));
}

}  // namespace

void require_defined(const Value& value) {
  if (value.is_undefined()) throw UndefinedProblem(value.undefined_name());
}

std::int64_t integer_of(const Value& value, const std::string& what) {
  require_defined(value);
  if (!value.is_integer())
    throw Problem(fmt::format("{} is a whole number, not {}", what, value.type_name()));
  return value.integer();
}

Value compute(Operation operation, const Value& a, const Value& b, Budget& budget) {
  require_defined(a);
  if (a.is_string() && operation == Operation::remainder) return formatted(a.text(), b);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return of_integers(operation, a.integer(), b.integer());
    return of_floats(operation, a.number(), b.number());
  }
  const auto is_repeatable = [](const Value& v) { return v.is_string() || v.is_sequence(); };
  if (operation == Operation::multiply && is_repeatable(a) && b.is_integer())
    return repeated(a, b.integer(), budget);
  if (operation == Operation::multiply && is_repeatable(b) && a.is_integer())
    return repeated(b, a.integer(), budget);
  if (operation == Operation::add && (a.is_string() || b.is_string()) && is_text(a) && is_text(b)) {
    Text text = text_of(a);
    text += text_of(b);
    budget.spend_bytes(static_cast<std::int64_t>(text.size()));
    return text;
  }
  const Value &first = a.listed(), &second = b.listed();
  if (operation != Operation::add || !first.is_sequence() || !second.is_sequence() ||
      first.sequence().is_tuple != second.sequence().is_tuple)
    refuse(operation, a, b);
  std::vector<Value> items = first.sequence().items;
  items.insert(items.end(), second.sequence().items.begin(), second.sequence().items.end());
  budget.spend(static_cast<std::int64_t>(items.size()));
  return Sequence{std::move(items), first.sequence().is_tuple};
}

}  // namespace finetune::jinja::detail
