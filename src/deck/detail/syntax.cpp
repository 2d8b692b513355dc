// SPDX-License-Identifier: Apache-2.0
#include "deck/detail/syntax.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <vector>

namespace finetune::deck {
namespace {

/// One place that a report shows: ` 12 | text` and `    |  ^--- note` below it.
struct Mark {
  TextPlace place;
  std::string_view text;
  std::string_view note;
};

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    if (lines.back().ends_with('\r')) lines.back().remove_suffix(1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Splits ` 12 | text`; the number is 0 where the line has none.
bool split_numbered(std::string_view line, std::int64_t& number, std::string_view& text) {
  const std::size_t bar = line.find(" | ");
  if (bar == std::string_view::npos) return false;
  std::string_view digits = line.substr(0, bar);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  number = 0;
  if (!digits.empty()) {
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (result.ec != std::errc() || result.ptr != digits.data() + digits.size()) return false;
  }
  text = line.substr(bar + 3);
  return true;
}

std::vector<Mark> find_marks(const std::vector<std::string_view>& lines) {
  std::vector<Mark> marks;
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    std::int64_t number = 0;
    std::int64_t none = 0;
    std::string_view text;
    std::string_view under;
    if (!split_numbered(lines[i], number, text) || number == 0) continue;
    if (!split_numbered(lines[i + 1], none, under) || none != 0) continue;
    const std::size_t begin = under.find_first_of("^~");
    if (begin == std::string_view::npos) continue;
    const std::size_t end = std::min(under.find_first_not_of("^~-", begin), under.size());
    const std::size_t note = std::min(under.find_first_not_of(' ', end), under.size());
    const std::size_t width = under[begin] == '~' ? end - begin : 1;
    const TextPlace place(number, static_cast<std::int64_t>(begin + 1),
                          static_cast<std::int64_t>(width));
    marks.push_back({place, text, under.substr(note)});
  }
  return marks;
}

/// The library numbers some lines from the start of the value; the text it shows is right.
TextPlace mend(const Mark& mark, const SourceText& source) {
  if (source.line(mark.place.line) == mark.text) return mark.place;
  const auto lines = split_lines(source.text);
  const auto found = std::find_if(lines.begin(), lines.end(), [&](std::string_view line) {
    return !mark.text.empty() && line.find(mark.text) != std::string_view::npos;
  });
  if (found == lines.end()) return TextPlace();
  return TextPlace(found - lines.begin() + 1);
}

/// "missing value" of "[error] toml::parse_key_value_pair: missing value".
std::string_view plain_sentence(std::string_view line) {
  if (line.starts_with("[error] ")) line.remove_prefix(8);
  if (line.starts_with("toml::")) {
    const std::size_t colon = line.find(": ");
    line.remove_prefix(colon == std::string_view::npos ? 6 : colon + 2);
  }
  return line;
}

struct Translation {
  std::string_view found_in_report;
  std::string_view problem;
  std::string_view why;
  std::string_view remedy;
};

constexpr std::string_view quotes_remedy =
    "Put text in quotes, for example path = \"a/b\"; numbers, true and false stand without.";

// The first that fits wins.
constexpr std::array<Translation, 15> translations = {{
    {"unknown value appeared", "this is not a TOML value", "text needs quotes", quotes_remedy},
    {"the next token is not a boolean", "this is not a TOML value", "text needs quotes",
     quotes_remedy},
    {"the next token is not a float", "this is not a TOML value", "text needs quotes",
     quotes_remedy},
    {"is not a valid multiline", "this string does not end, or holds an unknown escape",
     "a string ends with the three quotes it begins with", "Close it."},
    {"parse_literal_string: the next token", "this string does not end",
     "a string ends with the quote it begins with", "Close it."},
    {"the next token is not a valid string", "this string does not end, or holds an unknown escape",
     "a backslash begins an escape in double quotes",
     "Close it; write \\\\ for a backslash, or use single quotes."},
    {"expected value, but got nothing", "there is no value after =", "a key needs a value",
     "Write one, or put # before the line."},
    {"missing key-value separator", "there is no = after the key", "a line reads key = value",
     "Write key = value."},
    {"empty key is not allowed", "there is no key before =", "a line reads key = value",
     "Write key = value."},
    {"invalid key appeared", "this is neither a table nor a key",
     "a table reads [name], a key reads key = value", "Correct this line."},
    {"invalid format for key", "this is not a key",
     "keys are letters, digits, _ and -, followed by =", "Correct the key."},
    {"missing array separator", "this array does not continue here", "a comma or ] is expected",
     "Separate its values with commas and close it with ]."},
    {"invalid format appeared in an array", "this does not belong into an array",
     "the array before it is still open", "Close the array with ]."},
    {"newline required after", "something follows the table's name",
     "a table's name stands alone in its line", "Begin a new line after ]."},
    {"invalid line format", "something follows the value", "a line holds one value",
     "Put text in quotes; begin a new line for the next key."},
}};

DeckProblem duplicate(std::string_view sentence, const std::vector<Mark>& marks,
                      const SourceText& source) {
  const std::size_t open = sentence.find("(\"");
  const std::size_t close = sentence.find("\")", open);
  const bool named = open != std::string_view::npos && close != std::string_view::npos;
  const std::string name =
      named ? fmt::format("'{}'", sentence.substr(open + 2, close - open - 2)) : "this";
  const TextPlace first = marks.size() > 1 ? mend(marks.front(), source) : TextPlace();
  const bool is_table = sentence.starts_with("table");
  return {marks.empty() ? TextPlace() : mend(marks.back(), source),
          fmt::format("{} {} is given twice", is_table ? "table" : "key", clipped(name, 60)),
          first.line > 0 ? fmt::format("it stands in line {} already", first.line)
                         : "only one of the two could be meant",
          is_table ? "Put the keys of both under one." : "Remove one of the two."};
}

}  // namespace

DeckProblem syntax_problem(const std::string& report, const SourceText& source) {
  const auto lines = split_lines(report);
  const auto marks = find_marks(lines);
  const std::string_view sentence = lines.empty() ? "" : plain_sentence(lines.front());
  if (sentence.find("already exists") != std::string_view::npos)
    return duplicate(sentence, marks, source);

  if (marks.size() > 1 && marks.back().text.empty()) {
    return {mend(marks.front(), source), "this array does not end",
            "there is no ] up to the end of the file", "Close it with ]."};
  }
  // The last place is where reading failed; those before it say where that began.
  const Mark mark = marks.empty() ? Mark() : marks.back();
  const TextPlace place = mark.place.line > 0 ? mend(mark, source) : TextPlace();
  for (const Translation& each : translations) {
    if (report.find(each.found_in_report) == std::string::npos) continue;
    return {place, std::string(each.problem), std::string(each.why), std::string(each.remedy)};
  }
  std::string why = clipped(sentence, 200);
  if (!mark.note.empty() && mark.note != "here")
    why += fmt::format("{}{}", why.empty() ? "" : ": ", clipped(mark.note, 120));
  return {place, "this is not TOML", why, "Correct this line."};
}

}  // namespace finetune::deck
