// SPDX-License-Identifier: Apache-2.0
// The tokenizer for scripts that compare it with others (compare.py, tests/bench/tokenizer.py).
//
//   tokenizer_tool ids FOLDER < texts      a JSON string a line; answers [ids, decoded] a line
//   tokenizer_tool parts FOLDER < texts    a list of [string, whether it starts anew, whether it is
//                                          plain] a line; answers ids, as of a template's text
//   tokenizer_tool rate FOLDER FILE N      encodes FILE N times as documents; answers MiB, then
//   seconds
//                                        of the processor and on the wall and the number of ids a
//                                        line

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "core/json.hpp"
#include "tokenizer/tokenizer.hpp"

namespace {

using finetune::core::Json;
using finetune::tokenizer::Encode;
using finetune::tokenizer::Tokenizer;

void ids(const Tokenizer& tokenizer) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = finetune::core::parse_json(line, "stdin").get<std::string>();
    const auto found = tokenizer.encode(text, Encode::document);
    std::cout << Json{found, tokenizer.decode(found, false)}.dump() << '\n';
  }
}

void parts(const Tokenizer& tokenizer) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto given = finetune::core::parse_json(line, "stdin");
    std::vector<std::string> texts;
    std::vector<finetune::tokenizer::TextPart> all;
    for (const Json& part : given)
      texts.push_back(part.at(0).get<std::string>());
    for (std::size_t i = 0; i < texts.size(); ++i)
      all.push_back({.text = texts[i],
                     .plain = given[i].at(2).get<bool>(),
                     .starts_anew = given[i].at(1).get<bool>()});
    std::cout << Json(tokenizer.encode(all, Encode::no_ends)).dump() << '\n';
  }
}

/// Stretches of a text of some kilobytes, ended by line ends: bench/tokenizer.py cuts alike.
std::vector<std::string> documents(const std::string& text) {
  constexpr std::size_t least_bytes = 4096;
  std::vector<std::string> result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t line_end = text.find('\n', std::min(begin + least_bytes, text.size()));
    const std::size_t end = line_end == std::string::npos ? text.size() : line_end + 1;
    result.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return result;
}

void rate(const Tokenizer& tokenizer, const std::string& file, int repeats) {
  const std::string text = finetune::core::read_text(file, 1 << 30);
  const auto all = documents(text);
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t processor = std::clock();
    std::size_t num_ids = 0;
    for (const std::string& document : all)
      num_ids += tokenizer.encode(document, Encode::no_ends).size();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const double used = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
    fmt::print("{:.6f} {:.6f} {:.6f} {}\n", static_cast<double>(text.size()) / (1 << 20), used,
               seconds.count(), num_ids);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 2 && arguments[0] == "ids") {
      ids(Tokenizer::load(arguments[1]));
    } else if (arguments.size() == 2 && arguments[0] == "parts") {
      parts(Tokenizer::load(arguments[1]));
    } else if (arguments.size() == 4 && arguments[0] == "rate") {
      rate(Tokenizer::load(arguments[1]), arguments[2], std::stoi(arguments[3]));
    } else {
      std::fputs("usage: tokenizer_tool ids FOLDER | parts FOLDER | rate FOLDER FILE N\n", stderr);
      return 64;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 65;
  }
  return 0;
}
