#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the first lines of a deck under tests/decks say about its run.

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace finetune::tests {

struct DeckHeader {
  std::vector<int> ranks;         ///< # ranks: 1 2
  int exit_code = 0;              ///< # exit: 78
  std::vector<std::string> args;  ///< # args: optimizer.lr=1e-4
  bool has_words = true;          ///< # words: vary; they are not on the golden page
  /// # about: bad/x.toml:17 | optimizer.name = "lion" | optimizer.eps: facts of one line of the
  /// output; repeatable
  std::vector<std::vector<std::string>> about;
};

inline std::vector<std::string> split_facts(const std::string& value) {
  static const std::string bar = " | ";
  std::vector<std::string> facts;
  std::size_t begin = 0;
  for (std::size_t end; (end = value.find(bar, begin)) != std::string::npos;
       begin = end + bar.size())
    facts.push_back(value.substr(begin, end - begin));
  facts.push_back(value.substr(begin));
  return facts;
}

inline DeckHeader read_header(const std::filesystem::path& deck) {
  DeckHeader header;
  std::ifstream file(deck);
  for (std::string line; std::getline(file, line) && line.starts_with("# ");) {
    const std::size_t colon = line.find(": ");
    const std::string name = line.substr(2, colon - 2);
    const std::string value = line.substr(colon + 2);
    std::istringstream words(value);
    if (name == "ranks") {
      for (int n = 0; words >> n;)
        header.ranks.push_back(n);
    } else if (name == "exit") {
      words >> header.exit_code;
    } else if (name == "args") {
      for (std::string word; words >> word;)
        header.args.push_back(word);
    } else if (name == "words") {
      header.has_words = value != "vary";
    } else if (name == "about") {
      header.about.push_back(split_facts(value));
    }
  }
  return header;
}

}  // namespace finetune::tests
