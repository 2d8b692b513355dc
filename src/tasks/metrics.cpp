// SPDX-License-Identifier: Apache-2.0
#include "tasks/metrics.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/regex.hpp"
#include "core/text.hpp"
#include "tasks/detail/instructions.hpp"

namespace finetune::tasks {
namespace {

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::int64_t num_characters(const std::string& text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string small(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) {
    return c < 0x80 ? static_cast<char>(std::tolower(c)) : static_cast<char>(c);
  });
  return text;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (const char c : text + " ") {
    const bool is_space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (is_space) {
      if (!words.empty() && !words.back().empty()) words.emplace_back();
      continue;
    }
    if (words.empty()) words.emplace_back();
    words.back() += c;
  }
  if (!words.empty() && words.back().empty()) words.pop_back();
  return words;
}

std::string without_punctuation(const std::string& text) {
  std::string kept;
  for (const char c : text)
    if (std::ispunct(static_cast<unsigned char>(c)) == 0) kept += c;
  return kept;
}

std::vector<std::string> words_of_answer(const std::string& text) {
  std::vector<std::string> words = words_of(without_punctuation(small(text)));
  std::erase_if(
      words, [](const std::string& word) { return word == "a" || word == "an" || word == "the"; });
  return words;
}

std::vector<std::string> words_of_summary(const std::string& text) {
  std::string spaced = small(text);
  for (char& c : spaced)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = ' ';
  return words_of(spaced);
}

double f_measure(double common, std::size_t answered, std::size_t right) {
  if (common == 0) return 0;
  const double precision = common / static_cast<double>(answered);
  const double recall = common / static_cast<double>(right);
  return 2 * precision * recall / (precision + recall);
}

std::vector<double> followed(const std::string& metric, const Instructions& instructions,
                             const std::string& answer) {
  return metric.ends_with("_loose") ? instructions.loose(answer) : instructions.strict(answer);
}

/// Of a whole answer; of one that is checked for instructions whether it follows all.
double value_of(const std::string& metric, const Task& task, const std::string& answer,
                const std::string& right) {
  if (is_of_instructions(metric)) {
    const auto all = followed(metric, Instructions::read(right, task.file), answer);
    return metric.starts_with("prompt_")
               ? std::ranges::find(all, 0.0) == all.end()
               : std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  }
  if (metric == "exact_match") return answer == counted(task, right);
  if (metric == "numeric") {
    const std::string number = last_number(answer);
    return !number.empty() && number == last_number(right);
  }
  if (metric == "f1") return token_f1(answer, right);
  if (metric == "rouge_l") return rouge_l(answer, right);
  if (metric == "contains")
    return !right.empty() && small(answer).find(small(core::trimmed(right))) != std::string::npos;
  core::check(metric == "json", "a task's metrics are known");
  return is_json(answer, right);
}

constexpr const char* majority_suffix = "_majority";
constexpr const char* any_suffix = "_any";

/// Whether several tries have a majority and a best one by this metric.
bool judges_tries(const std::string& metric, std::int64_t num_tries) {
  return num_tries > 1 && (metric == "exact_match" || metric == "numeric");
}

}  // namespace

std::size_t likeliest(const std::vector<ScoredChoice>& scores) {
  return static_cast<std::size_t>(
      std::ranges::max_element(scores, {}, &ScoredChoice::log_likelihood) - scores.begin());
}

std::vector<std::string> values_of(const Task& task) {
  if (task.kind == Kind::perplexity) return metrics_of(Kind::perplexity);
  std::vector<std::string> names;
  for (const std::string& metric : task.metrics) {
    names.push_back(metric);
    if (task.kind != Kind::generate || !judges_tries(metric, task.generation.samples)) continue;
    names.push_back(metric + majority_suffix);
    names.push_back(metric + any_suffix);
  }
  return names;
}

Values judge_choices(const Task& task, const Question& question,
                     const std::vector<ScoredChoice>& scores) {
  Values values;
  const auto is_right = [&](std::size_t choice) {
    return question.all_right.empty() ? static_cast<std::int64_t>(choice) == question.right
                                      : question.all_right[choice] != 0;
  };
  if (has(task.metrics, "accuracy")) values["accuracy"] = is_right(likeliest(scores));
  if (has(task.metrics, "accuracy_normalised")) {
    std::vector<ScoredChoice> of_length = scores;
    for (std::size_t i = 0; i < scores.size(); ++i)
      of_length[i].log_likelihood /=
          std::max<double>(1, static_cast<double>(num_characters(question.choices[i])));
    values["accuracy_normalised"] = is_right(likeliest(of_length));
  }
  if (has(task.metrics, "true_mass")) {
    const double largest = scores[likeliest(scores)].log_likelihood;
    double all = 0, right = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double p = std::exp(scores[i].log_likelihood - largest);
      all += p;
      if (is_right(i)) right += p;
    }
    values["true_mass"] = right / all;
  }
  return values;
}

std::string counted(const Task& task, const std::string& answer) {
  const Generation& rules = task.generation;
  std::string text = answer;
  if (!rules.extract.empty()) {
    const auto found = core::Regex(rules.extract, rules.ignores_case, task.file).find_all(text);
    if (!found.empty()) text = rules.take == "first" ? found.front() : found.back();
  }
  for (const std::string& pattern : rules.drop)
    text = core::Regex(pattern, rules.ignores_case, task.file).removed_from(text);
  if (rules.ignores_case) text = small(text);
  if (rules.ignores_punctuation) text = without_punctuation(text);
  const auto words = words_of(text);
  std::string joined;
  for (const std::string& word : words)
    joined += (joined.empty() ? "" : " ") + word;
  return joined;
}

Values judge_answers(const Task& task, const Question& question,
                     const std::vector<std::string>& answers) {
  Values values;
  std::vector<std::string> texts;
  for (const std::string& answer : answers)
    texts.push_back(counted(task, answer));
  // Given most often, of those the first.
  const auto times = [&](const std::string& text) { return std::ranges::count(texts, text); };
  const std::string& majority = *std::ranges::max_element(texts, {}, times);
  for (const std::string& metric : task.metrics) {
    double sum = 0, best = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const bool is_whole = metric == "json" || is_of_instructions(metric);
      const double value =
          value_of(metric, task, is_whole ? answers[i] : texts[i], question.answer);
      sum += value;
      best = std::max(best, value);
    }
    values[metric] = sum / static_cast<double>(texts.size());
    if (!judges_tries(metric, std::ssize(texts))) continue;
    values[metric + majority_suffix] = value_of(metric, task, majority, question.answer);
    values[metric + any_suffix] = best;
  }
  return values;
}

bool is_of_instructions(const std::string& metric) {
  return metric.starts_with("prompt_") || metric.starts_with("instruction_");
}

Parts judge_parts(const Task& task, const Question& question,
                  const std::vector<std::string>& answers) {
  Parts parts;
  for (const std::string& metric : task.metrics) {
    if (!metric.starts_with("instruction_")) continue;
    const Instructions instructions = Instructions::read(question.answer, task.file);
    std::vector<double>& means = parts[metric];
    means.assign(instructions.size(), 0);
    for (const std::string& answer : answers) {
      const auto all = followed(metric, instructions, answer);
      for (std::size_t i = 0; i < all.size(); ++i)
        means[i] += all[i] / static_cast<double>(answers.size());
    }
  }
  return parts;
}

double token_f1(const std::string& answer, const std::string& right) {
  const auto given = words_of_answer(answer);
  auto left = words_of_answer(right);
  const std::size_t num_right = left.size();
  if (given.empty() || num_right == 0) return given.empty() && num_right == 0;
  double common = 0;
  for (const std::string& word : given) {
    const auto found = std::ranges::find(left, word);
    if (found == left.end()) continue;
    left.erase(found);
    ++common;
  }
  return f_measure(common, given.size(), num_right);
}

double rouge_l(const std::string& answer, const std::string& right) {
  const auto a = words_of_summary(answer), b = words_of_summary(right);
  std::vector<std::int64_t> row(b.size() + 1);
  for (const std::string& word : a) {
    std::int64_t diagonal = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::int64_t above = row[j + 1];
      row[j + 1] = word == b[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return f_measure(static_cast<double>(row.back()), a.size(), b.size());
}

std::string last_number(const std::string& text) {
  static const core::Regex numbers(R"(-?[$€]?\d[\d,]*(?:\.\d+)?|-?[$€]?\.\d+)", false, "numeric");
  const auto found = numbers.find_all(text);
  if (found.empty()) return "";
  std::string digits;
  for (const char c : found.back())
    if (c == '-' || c == '.' || std::isdigit(static_cast<unsigned char>(c)) != 0) digits += c;
  // One beyond all doubles is infinite, as Python's float() has it.
  return core::round_trip(std::strtod(digits.c_str(), nullptr));
}

double num_words(std::string_view text) {
  // Where Python's str.isspace is true beyond ASCII: U+0085, U+00A0, U+1680, U+2000 to U+200A,
  // U+2028, U+2029, U+202F, U+205F and U+3000.
  static constexpr std::array<std::string_view, 19> wide = {
      "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81",
      "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86",
      "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8",
      "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
  double words = 1;
  bool was_space = false;
  while (!text.empty()) {
    const char c = text.front();
    const auto found =
        std::ranges::find_if(wide, [&](std::string_view one) { return text.starts_with(one); });
    const bool is_space =
        c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1C' && c <= '\x1F') || found != wide.end();
    words += is_space && !was_space;
    was_space = is_space;
    text.remove_prefix(found == wide.end() ? 1 : found->size());
  }
  return words;
}

bool is_json(const std::string& text, const std::string& right) {
  std::string body = core::trimmed(text);
  const std::string fence = "```";
  if (const auto begin = body.find(fence); begin != std::string::npos) {
    const auto line = body.find('\n', begin);
    const auto end = line == std::string::npos ? line : body.find(fence, line);
    if (end != std::string::npos) body = body.substr(line + 1, end - line - 1);
  }
  const core::Json json = core::Json::parse(body, nullptr, false);
  if (json.is_discarded()) return false;
  const core::Json names = core::Json::parse(right, nullptr, false);
  if (!names.is_array()) return true;
  return std::ranges::all_of(names, [&](const core::Json& name) {
    return json.is_object() && name.is_string() && json.contains(name.get<std::string>());
  });
}

}  // namespace finetune::tasks
