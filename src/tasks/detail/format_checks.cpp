// SPDX-License-Identifier: Apache-2.0
// Instructions about formats, and the list of all.
#include <algorithm>
#include <array>

#include "tasks/detail/checks.hpp"
#include "tasks/detail/phrases.hpp"

namespace finetune::tasks {
namespace {

Check placeholders(const CheckArguments& arguments) {
  const std::int64_t wanted = arguments.number("num_placeholders");
  const Regex placeholder = expression(R"(\[.*?\])");
  return [=](const std::string& answer) { return num_matches(placeholder, answer) >= wanted; };
}

Check postscript(const CheckArguments& arguments) {
  const std::string marker = stripped(arguments.text("postscript_marker"));
  const Regex line = expression(marker == "P.P.S"  ? R"(p\.\s?p\.\s?s)"
                                : marker == "P.S." ? R"(p\.\s?s\.)"
                                                   : marker,
                                true, arguments.where());
  return [=](const std::string& answer) { return is_found(line, answer); };
}

Check bullets(const CheckArguments& arguments) {
  const std::int64_t wanted = arguments.number("num_bullets");
  const Regex stars = expression(R"(^\s*\*[^\*].*$)"), dashes = expression(R"(^\s*-.*$)");
  return [=](const std::string& answer) {
    return num_matches(stars, answer) + num_matches(dashes, answer) == wanted;
  };
}

Check constrained_response(const CheckArguments&) {
  return [](const std::string& answer) {
    return std::ranges::any_of(
        std::array{"My answer is yes.", "My answer is no.", "My answer is maybe."},
        [&](const char* allowed) { return answer.find(allowed) != std::string::npos; });
  };
}

/// Marks at the ends of a match.
std::string without_ends(std::string text, char mark, std::size_t most) {
  for (std::size_t i = 0; i < most && text.starts_with(mark); ++i)
    text.erase(0, 1);
  for (std::size_t i = 0; i < most && text.ends_with(mark); ++i)
    text.pop_back();
  return text;
}

Check highlights(const CheckArguments& arguments) {
  const std::int64_t wanted = arguments.number("num_highlights");
  const Regex single = expression(R"(\*[^\n\*]*\*)"), doubled = expression(R"(\*\*[^\n\*]*\*\*)");
  return [=](const std::string& answer) {
    std::int64_t count = 0;
    for (const std::string& each : single.find_all(answer))
      count += !stripped(without_ends(each, '*', each.size())).empty();
    for (const std::string& each : doubled.find_all(answer))
      count += !stripped(without_ends(each, '*', 2)).empty();
    return count >= wanted;
  };
}

Check sections(const CheckArguments& arguments) {
  const std::int64_t wanted = arguments.number("num_sections");
  const Regex divider =
      expression(R"(\s?)" + stripped(arguments.text("section_spliter")) + R"(\s?\d+\s?)", false,
                 arguments.where());
  return [=](const std::string& answer) { return num_matches(divider, answer) >= wanted; };
}

Check json_format(const CheckArguments&) {
  return [](const std::string& answer) {
    std::string body = stripped(answer);
    for (const char* fence : {"```json", "```Json", "```JSON", "```"})
      if (body.starts_with(fence)) body.erase(0, std::string_view(fence).size());
    if (body.ends_with("```")) body.resize(body.size() - 3);
    return core::Json::accept(stripped(body));
  };
}

Check title(const CheckArguments&) {
  static const Regex titles = expression(R"(<<[^\n]+>>)");
  return [](const std::string& answer) {
    return std::ranges::any_of(titles.find_all(answer), [](std::string each) {
      each.erase(0, std::min(each.find_first_not_of('<'), each.size()));
      each.resize(each.find_last_not_of('>') + 1);
      return !stripped(each).empty();
    });
  };
}

Check two_responses(const CheckArguments&) {
  static const Regex divider = expression(R"(\*\*\*\*\*\*)");
  return [](const std::string& answer) {
    const std::vector<std::string> all = divider.split(answer);
    std::vector<std::string> responses;
    for (std::size_t i = 0; i < all.size(); ++i) {
      responses.push_back(stripped(all[i]));
      if (!responses.back().empty()) continue;
      if (i != 0 && i + 1 != all.size()) return false;
      responses.pop_back();
    }
    return responses.size() == 2 && responses[0] != responses[1];
  };
}

Check repeated_prompt(const CheckArguments& arguments) {
  const Regex prompt =
      expression(R"(\A)" + literal(stripped(arguments.text("prompt_to_repeat"))), true);
  return [=](const std::string& answer) { return is_found(prompt, stripped(answer)); };
}

Check end_phrase(const CheckArguments& arguments) {
  const Regex end = expression(literal(stripped(arguments.text("end_phrase"))) + R"(\z)", true);
  return [=](const std::string& answer) {
    const std::string body = stripped(answer);
    return is_found(end, without_ends(body, '"', body.size()));
  };
}

Check quotation(const CheckArguments&) {
  return [](const std::string& answer) {
    const std::string body = stripped(answer);
    return body.size() > 1 && body.starts_with('"') && body.ends_with('"');
  };
}

Check capitals(const CheckArguments&) {
  return [](const std::string& answer) { return is_upper(answer); };
}

Check small_letters(const CheckArguments&) {
  return [](const std::string& answer) { return is_lower(answer); };
}

Check no_comma(const CheckArguments&) {
  return [](const std::string& answer) { return answer.find(',') == std::string::npos; };
}

}  // namespace

std::span<const CheckKind> check_kinds() {
  static constexpr CheckKind kinds[] = {
      {"keywords:existence", keyword_existence},
      {"keywords:frequency", keyword_frequency},
      {"keywords:forbidden_words", forbidden_words},
      {"keywords:letter_frequency", letter_frequency},
      {"length_constraints:number_sentences", number_of_sentences},
      {"length_constraints:number_paragraphs", number_of_paragraphs},
      {"length_constraints:number_words", number_of_words},
      {"length_constraints:nth_paragraph_first_word", first_word_of_paragraph},
      {"detectable_content:number_placeholders", placeholders},
      {"detectable_content:postscript", postscript},
      {"detectable_format:number_bullet_lists", bullets},
      {"detectable_format:constrained_response", constrained_response},
      {"detectable_format:number_highlighted_sections", highlights},
      {"detectable_format:multiple_sections", sections},
      {"detectable_format:json_format", json_format},
      {"detectable_format:title", title},
      {"combination:two_responses", two_responses},
      {"combination:repeat_prompt", repeated_prompt},
      {"startend:end_checker", end_phrase},
      {"startend:quotation", quotation},
      {"change_case:capital_word_frequency", capital_words},
      {"change_case:english_capital", capitals},
      {"change_case:english_lowercase", small_letters},
      {"punctuation:no_comma", no_comma}};
  return kinds;
}

}  // namespace finetune::tasks
