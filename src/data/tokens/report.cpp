// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.hpp"

namespace finetune::data {
namespace {

using core::Json;

std::string share(std::int64_t part, std::int64_t whole) {
  const double percent =
      whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
  return fmt::format("{:.1f} %", percent);
}

std::string counted(std::int64_t count, const std::string& noun) {
  return core::with_commas(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string overlong_line(const DataReport& report, std::int64_t max_seq_length) {
  const std::int64_t overlong = report.of(SampleKind::overlong).number;
  const std::int64_t truncated = report.of(SampleKind::truncated).number;
  std::string text = fmt::format(
      "{} longer than max_seq_length = {}: {} cut, {} dropped", counted(overlong, "sample"),
      max_seq_length, core::with_commas(truncated), core::with_commas(overlong - truncated));
  if (report.tokens_lost > 0)
    text += fmt::format("; {} lost", counted(report.tokens_lost, "token"));
  return text;
}

/// What is odd, a line each; nothing about what does not occur.
std::vector<std::string> findings(const DataReport& report, std::int64_t max_seq_length) {
  std::vector<std::string> lines;
  const auto add = [&](SampleKind kind, const char* what) {
    const std::int64_t number = report.of(kind).number;
    if (number > 0) lines.push_back(counted(number, "sample") + " " + what);
  };
  if (report.of(SampleKind::overlong).number > 0)
    lines.push_back(overlong_line(report, max_seq_length));
  add(SampleKind::masked, "without a trained token dropped");
  add(SampleKind::empty_answer, "with an empty answer");
  add(SampleKind::missing_end_of_turn, "with a trained answer that no end token follows");
  add(SampleKind::unknown_role, "with a message of an unknown role, which was left out");
  add(SampleKind::left_out_part,
      "of a table with times, maps or bytes inside the columns of chats, which were left out");
  add(SampleKind::not_written,
      "with text, reasoning or calls of an answer that the chat template leaves out");
  add(SampleKind::special_name, "with the name of a special token in the text, which stays text");
  add(SampleKind::held_ends,
      "that hold the tokenizer's begin or end token already, which is not written twice");
  add(SampleKind::duplicate, "equal to an earlier one");
  return lines;
}

/// Which tokens end answers, by name. Those at which the model stops and that end none are named
/// where a last answer ends without any of them: a model that learned from it may not stop there.
std::string ends_line(const DataReport& report) {
  if (report.num_answers == 0) return "";
  const std::string all = core::with_commas(report.num_answers);
  std::string text, never;
  for (const EndCount& end : report.ends) {
    std::string& list = end.number > 0 ? text : never;
    if (!list.empty()) list += end.number > 0 ? ", " : " or ";
    list += core::one_line(end.name);
    if (end.number > 0) list += fmt::format(" {} of {}", core::with_commas(end.number), all);
  }
  if (text.empty()) text = "none";
  text = fmt::format("end tokens of {}: {}", counted(report.num_answers, "trained answer"), text);
  if (report.num_open > 0)
    text += fmt::format("; without one: {} of {}", core::with_commas(report.num_open), all);
  if (report.num_unstopped > 0 && !never.empty())
    text += fmt::format("; none ends with {}, where the model stops", never);
  return text;
}

/// Bars of at most 40 characters, the longest for the most frequent length.
std::vector<std::string> histogram(const DataReport& report) {
  constexpr std::int64_t width = 40;
  const auto& lengths = report.lengths;
  const auto is_some = [](std::int64_t n) { return n > 0; };
  const auto first = std::ranges::find_if(lengths, is_some);
  if (first == lengths.end()) return {};
  const auto last = std::find_if(lengths.rbegin(), lengths.rend(), is_some).base();
  const std::int64_t most = *std::max_element(first, last);
  std::vector<std::string> lines = {"tokens per sample, as read:"};
  for (auto i = first; i != last; ++i) {
    const auto low = std::int64_t{1} << (i - lengths.begin());
    const std::int64_t bar = (*i * width + most - 1) / most;
    lines.push_back(fmt::format("{:>11} - {:<11} {:>13} {}", core::with_commas(low == 1 ? 0 : low),
                                core::with_commas(2 * low - 1), core::with_commas(*i),
                                std::string(static_cast<std::size_t>(bar), '#')));
  }
  return lines;
}

/// Of the histogram, whose classes count as samples of their middle: about the length of the sample
/// that a token is in, on average over tokens. 0 without samples.
std::int64_t tokens_around_a_token(const DataReport& report, std::int64_t max_seq_length) {
  double tokens = 0, squares = 0;
  for (std::size_t k = 0; k < report.lengths.size(); ++k) {
    const double length =
        std::min(1.5 * std::exp2(static_cast<double>(k)), static_cast<double>(max_seq_length));
    tokens += length * static_cast<double>(report.lengths[k]);
    squares += length * length * static_cast<double>(report.lengths[k]);
  }
  return tokens == 0 ? 0 : std::llround(squares / tokens);
}

std::int64_t number(const Json& json, const char* name) {
  return json.at(name).get<std::int64_t>();
}

/// The numbers that the cache and metrics.jsonl both have.
Json numbers(const DataReport& report) {
  Json json = {{"read", report.num_read},
               {"samples", report.num_samples},
               {"tokens", report.num_tokens},
               {"trained_tokens", report.num_trained_tokens},
               {"trained_share", report.trained_share()},
               {"dropped", report.num_dropped},
               {"tokens_lost", report.tokens_lost},
               {"longest", report.longest},
               {"eos_trained", report.eos_trained},
               {"answers", report.num_answers},
               {"end_tokens", Json::array()}};
  for (const EndCount& end : report.ends)
    json["end_tokens"].push_back({end.name, end.number});
  for (std::size_t k = 0; k < num_kinds; ++k)
    json[kind_names[k]] = report.counts[k].number;
  return json;
}

}  // namespace

std::string example_of(const DataReport& report, const std::string& indent) {
  if (report.example_text.empty()) return "";
  std::string text =
      fmt::format("{}{} {} of {}", indent, report.example_has_turns ? "conversation" : "sample",
                  core::with_commas(report.example + 1), core::with_commas(report.num_read));
  if (report.example_has_turns && !report.example_where.empty())
    text += fmt::format(" ({})", core::one_line(report.example_where));
  if (report.example_has_turns && !report.example_template.empty())
    text += ", written by " + core::one_line(report.example_template);
  return text + "; lines after + are trained, those after - are not, \\n is a new line\n" +
         report.example_text;
}

Json to_json(const DataReport& report) {
  Json json = numbers(report);
  json["first"] = Json::object();
  for (std::size_t k = 0; k < num_kinds; ++k) {
    if (report.counts[k].number > 0) json["first"][kind_names[k]] = report.counts[k].first;
  }
  json["lengths"] = report.lengths;
  json["example"] = report.example;
  json["example_text"] = report.example_text;
  json["example_has_turns"] = report.example_has_turns;
  json["example_file"] = report.example_file;
  json["example_place"] = report.example_place;
  json["open_answers"] = report.num_open;
  json["unstopped"] = report.num_unstopped;
  return json;
}

DataReport report_from_json(const Json& json) {
  DataReport report;
  report.num_read = number(json, "read");
  report.num_samples = number(json, "samples");
  report.num_tokens = number(json, "tokens");
  report.num_trained_tokens = number(json, "trained_tokens");
  report.num_dropped = number(json, "dropped");
  report.tokens_lost = number(json, "tokens_lost");
  report.longest = number(json, "longest");
  report.eos_trained = number(json, "eos_trained");
  for (std::size_t k = 0; k < num_kinds; ++k) {
    // Kinds that are counted since a cache was written do not occur in it.
    report.counts[k].number = json.value(kind_names[k], std::int64_t{0});
    if (report.counts[k].number > 0)
      report.counts[k].first = number(json.at("first"), kind_names[k]);
  }
  report.lengths = json.at("lengths").get<decltype(report.lengths)>();
  report.example = number(json, "example");
  report.example_text = json.at("example_text").get<std::string>();
  // What follows is not in every cache of data without conversations.
  report.example_has_turns = json.value("example_has_turns", false);
  report.example_file = json.value("example_file", std::int64_t{-1});
  report.example_place = json.value("example_place", std::string());
  report.num_answers = json.value("answers", std::int64_t{0});
  report.num_open = json.value("open_answers", std::int64_t{0});
  report.num_unstopped = json.value("unstopped", std::int64_t{0});
  for (const Json& end : json.value("end_tokens", Json::array()))
    report.ends.push_back({end.at(0).get<std::string>(), end.at(1).get<std::int64_t>()});
  return report;
}

std::string to_record(const DataReport& report, const std::string& name, const Json& more) {
  Json json = numbers(report);
  json["name"] = name;
  Json histogram = Json::array();  // [shortest of the class, samples]
  for (std::size_t k = 0; k < report.lengths.size(); ++k) {
    if (report.lengths[k] > 0)
      histogram.push_back({k == 0 ? 0 : std::int64_t{1} << k, report.lengths[k]});
  }
  json["histogram"] = std::move(histogram);
  json.update(more);
  return Json{{"data", std::move(json)}}.dump();
}

std::string to_string(const DataReport& report, const std::string& name,
                      std::int64_t max_seq_length, const std::string& labels) {
  const std::string indent(name.size() + 2, ' ');
  std::string text =
      fmt::format("{}: {} read, {} to train on, {} (longest sample {}), {} of them trained ({})\n",
                  name, counted(report.num_read, "sample"), counted(report.num_samples, "sequence"),
                  counted(report.num_tokens, "token"), core::with_commas(report.longest),
                  core::with_commas(report.num_trained_tokens),
                  share(report.num_trained_tokens, report.num_tokens));
  text += indent + (labels.empty()
                        ? fmt::format("end tokens trained in {} of {} kept",
                                      core::with_commas(report.eos_trained),
                                      counted(report.num_read - report.num_dropped, "sample"))
                        : labels);
  if (const std::string line = ends_line(report); !line.empty()) text += "\n" + indent + line;
  for (const std::string& line : findings(report, max_seq_length))
    text += "\n" + indent + line;
  for (const std::string& line : histogram(report))
    text += "\n" + indent + line;
  if (const std::int64_t around = tokens_around_a_token(report, max_seq_length); around > 0)
    text += fmt::format("\n{}a token is in a sample of about {}, on average", indent,
                        counted(around, "token"));
  if (!report.example_text.empty()) text += "\n" + example_of(report, indent);
  return text;
}

}  // namespace finetune::data
