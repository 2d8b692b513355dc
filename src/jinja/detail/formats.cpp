// SPDX-License-Identifier: Apache-2.0
// Source: "Format String Syntax" of Python's library reference; string.Formatter, which Jinja's
// sandbox calls for str.format.
#include "jinja/detail/formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "jinja/detail/format_specs.hpp"
#include "jinja/detail/letters.hpp"
#include "jinja/detail/library.hpp"

namespace finetune::jinja::detail {
namespace {

/// {name!conversion:spec} of a format, all of them within it.
struct Place {
  std::string_view name;
  char conversion = 0;
  std::string_view spec;
  std::size_t end = 0;  ///< behind its }
};

Place place_at(std::string_view all, std::size_t begin) {
  constexpr const char* open = "str.format: a { is not closed";
  std::size_t end = begin;
  for (; end < all.size() && std::string_view("}:!").find(all[end]) == std::string_view::npos;
       ++end) {
    if (all[end] == '{') throw Problem("str.format: a { stands within the name of a place");
    if (all[end] == '[') end = std::min(all.find(']', end), all.size() - 1);
  }
  if (end == all.size()) throw Problem(open);
  Place place{.name = all.substr(begin, end - begin), .spec = {}};
  if (all[end] == '!') {
    if (end + 2 >= all.size()) throw Problem(open);
    place.conversion = all[end + 1];
    end += 2;
    if (all[end] != ':' && all[end] != '}')
      throw Problem("str.format: a conversion is of one letter, as in {!r}");
  }
  if (all[end] == '}') {
    place.end = end + 1;
    return place;
  }
  begin = ++end;
  for (int depth = 1; end < all.size(); ++end) {
    if (all[end] == '{') ++depth;
    if (all[end] == '}' && --depth == 0) {
      place.spec = all.substr(begin, end - begin);
      place.end = end + 1;
      return place;
    }
  }
  throw Problem(open);
}

class Formatter {
 public:
  Formatter(const Arguments& arguments, Budget& budget) : arguments_(arguments), budget_(budget) {}

  /// `deeper`: how often formats of places may have places themselves.
  Text text(const Text& format, int deeper) {
    const std::string_view all = format.bytes();
    Text made;
    for (std::size_t begin = 0; begin < all.size();) {
      const std::size_t brace = std::min(all.find_first_of("{}", begin), all.size());
      const bool is_double = brace + 1 < all.size() && all[brace + 1] == all[brace];
      made += format.part(begin, brace - begin + (is_double ? 1 : 0));
      begin = brace + 2;
      if (is_double || brace == all.size()) continue;
      if (all[brace] == '}') throw Problem("str.format: a } closes nothing; \"}}\" writes one");
      const Place place = place_at(all, brace + 1);
      made += at(place, format, deeper);
      begin = place.end;
    }
    return made;
  }

 private:
  Text at(const Place& place, const Text& format, int deeper) {
    budget_.spend();
    Value value = value_of(place.name);
    if (place.conversion == 'r')
      value = Text(to_repr(value), data_origin(value));
    else if (place.conversion == 's')
      value = to_written(value);
    else if (place.conversion != 0)
      throw Problem(
          fmt::format("str.format: the conversion \"!{}\" is not known here", place.conversion));
    if (place.spec.empty()) return written(value);
    if (deeper == 0) throw Problem("str.format: places are nested too deeply");
    const Text expanded = text(format.part(place.spec), deeper - 1);
    if (expanded.size() == 0) return written(value);
    Text made = laid_out(value, expanded.bytes(), budget_);
    budget_.spend_bytes(static_cast<std::int64_t>(made.size()));
    return made;
  }

  Text written(const Value& value) {
    Text text = to_written(value);
    budget_.spend_bytes(static_cast<std::int64_t>(text.size()));
    return text;
  }

  /// Of "", "0" or "name", with ".field" and "[key]" behind it.
  Value value_of(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(std::string(name.substr(0, end)));
    for (std::string_view rest = name.substr(end); !rest.empty();) {
      const bool is_key = rest.front() == '[';
      const std::size_t stop =
          std::min(is_key ? rest.find(']') : rest.find_first_of(".[", 1), rest.size());
      const std::string part(rest.substr(1, stop - 1));
      if (part.empty() || (is_key && stop == rest.size()) || (!is_key && rest.front() != '.'))
        throw Problem(fmt::format("str.format: \"{}\" is no name of a place", name));
      rest.remove_prefix(stop + (is_key ? 1 : 0));
      if (!is_key)
        value = attribute_of(value, part, budget_);
      else if (const auto place = number_of(part))
        value = item_of(value, *place, budget_);
      else
        value = item_of(value, part, budget_);
    }
    return value;
  }

  Value argument(const std::string& name) {
    const auto place = number_of(name);
    if (!place && !name.empty()) {
      if (const Value* named = arguments_.find(SIZE_MAX, name)) return *named;
      throw Problem(fmt::format("str.format: there is no value for {{{}}}", name));
    }
    if (place ? num_counted_ > 0 : has_numbers_)
      throw Problem("str.format: places are either all numbered or none of them");
    has_numbers_ = has_numbers_ || place;
    const std::size_t i = place ? static_cast<std::size_t>(*place) : num_counted_++;
    if (i < arguments_.positional.size()) return arguments_.positional[i];
    throw Problem(fmt::format("str.format: there is no value for {{{}}}", name));
  }

  static std::optional<std::int64_t> number_of(std::string_view digits) {
    std::int64_t number = 0;
    const char* end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, number);
    if (!is_all(digits, is_digit) || read.ec != std::errc()) return std::nullopt;
    return number;
  }

  const Arguments& arguments_;
  Budget& budget_;
  std::size_t num_counted_ = 0;  ///< places without a number
  bool has_numbers_ = false;
};

}  // namespace

Text filled(const Text& format, const Arguments& arguments, Budget& budget) {
  return Formatter(arguments, budget).text(format, 2);
}

}  // namespace finetune::jinja::detail
