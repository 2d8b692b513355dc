// SPDX-License-Identifier: Apache-2.0
#include "core/json.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/detail/json_builder.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/ordered_json.hpp"
#include "core/text.hpp"

namespace finetune::core {
namespace {

std::string position(std::string_view text, std::size_t byte, const std::string& where,
                     std::int64_t first_line) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = first_line + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 = 0 on the first line
  return fmt::format("{}:{}:{}", where, line, before.size() - line_start + 1);
}

/// "syntax error while parsing object ..." without the library's own prefix and byte position.
std::string reason(const std::string& what) {
  const std::size_t colon = what.rfind(": ", what.find("; last read"));
  return detail::start_of(colon == std::string::npos ? what : what.substr(colon + 2));
}

/// What parse_json and ordered_json do.
template <typename Value>
Value parse_checked(std::string_view text, const std::string& where, std::int64_t first_line,
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
  try {
    detail::JsonBuilder<Value> builder(where, most_values);
    Value::sax_parse(text, &builder);
    return builder.take();
  } catch (const nlohmann::detail::parse_error& error) {
    fail(ErrorKind::input,
         {position(text, error.byte == 0 ? 0 : error.byte - 1, where, first_line), "broken JSON",
          reason(error.what()), "Correct this place, or get the file again."});
  } catch (const nlohmann::detail::out_of_range& error) {
    fail(ErrorKind::input,
         {where, "a JSON number is out of range", reason(error.what()), "Correct the number."});
  }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, std::int64_t first_line,
                std::int64_t most_values) {
  return parse_checked<Json>(text, where, first_line, most_values);
}

OrderedJson ordered_json(std::string_view text, const std::string& where, std::int64_t first_line,
                         std::int64_t most_values) {
  return parse_checked<OrderedJson>(text, where, first_line, most_values);
}

Json read_json(const std::filesystem::path& path, std::int64_t limit_bytes) {
  return parse_json(read_text(path, limit_bytes), path.string());
}

}  // namespace finetune::core
