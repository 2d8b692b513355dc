// SPDX-License-Identifier: Apache-2.0
// Instructions about words and lengths.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/text.hpp"
#include "tasks/detail/checks.hpp"
#include "tasks/detail/phrases.hpp"

namespace finetune::tasks {
namespace {

/// A small letter, without punctuation around: what a word is compared by.
std::string first_word_of(const std::string& paragraph) {
  std::string word = paragraph.substr(0, paragraph.find_first_of(" \t\n\r\f\v"));
  for (const char quote : {'\'', '"'})
    word.erase(0, std::min(word.find_first_not_of(quote), word.size()));
  return word.substr(0, word.find_first_of(".,?!'\""));
}

}  // namespace

const core::Json& CheckArguments::at(const char* key, const char* expected) const {
  if (!arguments_.is_object() || !arguments_.contains(key) || arguments_.at(key).is_null())
    refuse(key, expected);
  return arguments_.at(key);
}

void CheckArguments::refuse(const char* key, const char* expected) const {
  const bool is_there = arguments_.is_object() && arguments_.contains(key);
  core::fail(core::ErrorKind::input,
             {where_,
              fmt::format("\"{}\" is {}", key,
                          is_there ? core::one_line(arguments_.at(key).dump()) : "missing"),
              fmt::format("{} is expected", expected), "Correct the question's kwargs."});
}

std::string CheckArguments::text(const char* key) const {
  constexpr const char* expected = "a text";
  const core::Json& value = at(key, expected);
  if (!value.is_string()) refuse(key, expected);
  return value.get<std::string>();
}

std::vector<std::string> CheckArguments::texts(const char* key) const {
  constexpr const char* expected = "a list of texts";
  const core::Json& value = at(key, expected);
  const auto is_text = [](const core::Json& each) { return each.is_string(); };
  if (!value.is_array() || !std::ranges::all_of(value, is_text)) refuse(key, expected);
  return value.get<std::vector<std::string>>();
}

std::int64_t CheckArguments::number(const char* key) const {
  constexpr const char* expected = "a whole number";
  const core::Json& value = at(key, expected);
  constexpr double largest = 1e9;
  if (!value.is_number()) refuse(key, expected);
  const double number = value.get<double>();
  if (number < 0 || number > largest || number != std::floor(number)) refuse(key, expected);
  return static_cast<std::int64_t>(number);
}

std::function<bool(std::int64_t)> CheckArguments::relation(const char* key, const char* of) const {
  const std::string word = text(key);
  const std::int64_t wanted = number(of);
  if (word == "less than") return [wanted](std::int64_t count) { return count < wanted; };
  if (word == "at least") return [wanted](std::int64_t count) { return count >= wanted; };
  refuse(key, "\"less than\" or \"at least\"");
}

Check keyword_existence(const CheckArguments& arguments) {
  std::vector<Regex> keywords;
  for (const std::string& keyword : arguments.texts("keywords"))
    keywords.push_back(expression(keyword, true, arguments.where()));
  return [keywords](const std::string& answer) {
    return std::ranges::all_of(keywords,
                               [&](const Regex& keyword) { return is_found(keyword, answer); });
  };
}

Check keyword_frequency(const CheckArguments& arguments) {
  const Regex keyword = expression(arguments.text("keyword"), true, arguments.where());
  const auto is_wanted = arguments.relation("relation", "frequency");
  return [=](const std::string& answer) { return is_wanted(num_matches(keyword, answer)); };
}

Check forbidden_words(const CheckArguments& arguments) {
  std::vector<Regex> words;
  for (const std::string& word : arguments.texts("forbidden_words"))
    words.push_back(expression(R"(\b)" + word + R"(\b)", true, arguments.where()));
  return [words](const std::string& answer) {
    return std::ranges::none_of(words, [&](const Regex& word) { return is_found(word, answer); });
  };
}

Check letter_frequency(const CheckArguments& arguments) {
  const Regex letter = expression(literal(arguments.text("letter")), true);
  const auto is_wanted = arguments.relation("let_relation", "let_frequency");
  return [=](const std::string& answer) { return is_wanted(num_matches(letter, answer)); };
}

Check number_of_sentences(const CheckArguments& arguments) {
  const auto is_wanted = arguments.relation("relation", "num_sentences");
  return [=](const std::string& answer) { return is_wanted(num_sentences(answer)); };
}

Check number_of_paragraphs(const CheckArguments& arguments) {
  const std::int64_t wanted = arguments.number("num_paragraphs");
  const Regex divider = expression(R"(\s?\*\*\*\s?)");
  return [=](const std::string& answer) {
    const std::vector<std::string> paragraphs = divider.split(answer);
    std::int64_t count = 0;
    for (std::size_t i = 0; i < paragraphs.size(); ++i) {
      const bool is_empty = stripped(paragraphs[i]).empty();
      // Only what is in front of the first divider, or behind the last one, may be empty.
      if (is_empty && i != 0 && i + 1 != paragraphs.size()) return false;
      count += !is_empty;
    }
    return count == wanted;
  };
}

Check number_of_words(const CheckArguments& arguments) {
  const auto is_wanted = arguments.relation("relation", "num_words");
  const Regex word = expression(R"(\w+)");
  return [=](const std::string& answer) { return is_wanted(num_matches(word, answer)); };
}

Check first_word_of_paragraph(const CheckArguments& arguments) {
  const std::int64_t wanted = arguments.number("num_paragraphs");
  const std::int64_t nth = arguments.number("nth_paragraph");
  const Regex divider = expression(R"(\n\n)");
  const Regex word = expression(R"(\A)" + literal(arguments.text("first_word")) + R"(\z)", true);
  return [=](const std::string& answer) {
    const std::vector<std::string> paragraphs = divider.split(answer);
    const auto count = std::ranges::count_if(
        paragraphs, [](const std::string& one) { return !stripped(one).empty(); });
    if (count != wanted || nth < 1 || nth > count) return false;
    return is_found(word, first_word_of(stripped(paragraphs[static_cast<std::size_t>(nth - 1)])));
  };
}

Check capital_words(const CheckArguments& arguments) {
  const auto is_wanted = arguments.relation("capital_relation", "capital_frequency");
  return [=](const std::string& answer) { return is_wanted(num_capital_words(answer)); };
}

}  // namespace finetune::tasks
