// SPDX-License-Identifier: Apache-2.0
#include "core/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/text.hpp"

namespace finetune::core {
namespace {

constexpr int deepest = 64;

std::string position(std::string_view text, std::size_t byte, const std::string& where,
                     std::int64_t first_line) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = first_line + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 = 0 on the first line
  return fmt::format("{}:{}:{}", where, line, before.size() - line_start + 1);
}

/// The start of a text that may be as long as the file. (A character cut in two is escaped when it
/// is printed.)
std::string start_of(std::string text) {
  constexpr std::size_t longest = 300;
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

/// "syntax error while parsing object ..." without the library's own prefix and byte position.
std::string reason(const std::string& what) {
  const std::size_t colon = what.rfind(": ", what.find("; last read"));
  return start_of(colon == std::string::npos ? what : what.substr(colon + 2));
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, std::int64_t first_line,
                std::int64_t most_values) {
  if (const auto bad = invalid_utf8(text)) {
    fail(ErrorKind::input,
         {position(text, *bad, where, first_line),
          fmt::format("byte 0x{:02x} is not valid UTF-8", static_cast<unsigned char>(text[*bad])),
          "JSON is UTF-8", "Convert the file, for example with iconv."});
  }
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    // The parser would take it for the end and pass over what follows.
    fail(ErrorKind::input, {position(text, nul, where, first_line), "a NUL byte", "JSON is text",
                            "Correct or remove this entry."});
  }
  std::vector<std::set<std::string>> keys;
  std::int64_t num_values = 0;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    const bool begins =
        event != Json::parse_event_t::object_end && event != Json::parse_event_t::array_end;
    if (begins && event != Json::parse_event_t::key && ++num_values > most_values) {
      fail(ErrorKind::input,
           {where, fmt::format("JSON holds more than {} values", with_commas(most_values)),
            "they would take many times the memory of the text", "Is it the right file?"});
    }
    if (depth > deepest) {
      fail(ErrorKind::input,
           {where, fmt::format("JSON is nested deeper than {} levels", deepest),
            "such files only occur as attacks", "Remove the file, or create it again."});
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      fail(ErrorKind::input, {where,
                              fmt::format("JSON key \"{}\" occurs twice",
                                          start_of(one_line(value.get<std::string>()))),
                              "only one of the two could be meant", "Remove one."});
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    fail(ErrorKind::input,
         {position(text, error.byte == 0 ? 0 : error.byte - 1, where, first_line), "broken JSON",
          reason(error.what()), "Correct this place, or get the file again."});
  } catch (const Json::out_of_range& error) {
    fail(ErrorKind::input,
         {where, "a JSON number is out of range", reason(error.what()), "Correct the number."});
  }
}

Json read_json(const std::filesystem::path& path, std::int64_t limit_bytes) {
  return parse_json(read_text(path, limit_bytes), path.string());
}

}  // namespace finetune::core
