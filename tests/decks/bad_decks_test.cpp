// SPDX-License-Identifier: Apache-2.0
// Every deck under bad/ through the program, on one rank and on two: it ends, with the exit code
// and messages that are about what the deck's first lines name, each printed once. Their words are
// on the golden page.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <regex>
#include <tuple>

#include "decks/deck_header.hpp"
#include "support/folders.hpp"
#include "support/messages.hpp"
#include "support/residence.hpp"

namespace finetune::tests::bad_decks_test {
namespace {

namespace fs = std::filesystem;

struct Case {
  fs::path deck;
  int ranks = 1;
};

// GoogleTest prints it when a test fails.
void PrintTo(const Case& run, std::ostream* out) {
  *out << run.deck.filename() << " on " << run.ranks << " ranks";
}

std::vector<Case> cases(int ranks) {
  std::vector<Case> all;
  for (const auto& entry : fs::directory_iterator(source_folder() / "tests/decks/bad")) {
    const std::vector<int> wanted = read_header(entry.path()).ranks;
    if (std::ranges::find(wanted, ranks) != wanted.end()) all.push_back({entry.path(), ranks});
  }
  std::ranges::sort(all, {}, &Case::deck);
  return all;
}

/// The first three decks of each exit code.
std::vector<Case> some_cases(int ranks) {
  std::map<int, int> num_of_code;
  std::vector<Case> some;
  for (const Case& each : cases(ranks))
    if (++num_of_code[read_header(each.deck).exit_code] <= 3) some.push_back(each);
  return some;
}

/// Every line of `text` reads `<where>: <problem> (<why>). <what to do>`; excerpts and lists are
/// indented, and the last line of several problems counts them.
void expect_complete_messages(const std::string& text) {
  static const std::regex message(R"((error|warning): .+: .+ \(.+\)\. .+[.?])");
  static const std::regex next_problem(R"(.+: .+ \(.+\)\. .+[.?])");
  static const std::regex number_of_problems(R"(.+: \d+ problems\.)");
  std::istringstream lines(text);
  bool is_first = true;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) continue;
    const bool is_good = std::regex_match(line, is_first ? message : next_problem) ||
                         std::regex_match(line, number_of_problems);
    EXPECT_TRUE(is_good) << "this message is not complete: " << line;
    is_first = false;
  }
}

Outcome run(const Case& wanted) {
  const auto& [deck, ranks] = wanted;
  const DeckHeader header = read_header(deck);
  const std::string name = deck.stem().string() + ".r" + std::to_string(ranks);
  std::vector<std::string> words = {"bad/" + deck.filename().string()};
  const auto is_output = [](const std::string& arg) { return arg.starts_with("train.output="); };
  if (std::ranges::none_of(header.args, is_output))
    words.push_back("train.output=" + (empty_folder("bad_decks/" + name) / "output").string());
  words.insert(words.end(), header.args.begin(), header.args.end());

  // How launchers end is a part of what two ranks are for.
  const fs::path folder = source_folder() / "tests/decks";
  return ranks == 1 ? run_finetune(1, words, folder)
                    : run_program(finetune_on(ranks, words), folder);
}

/// Outcomes of all decks on several ranks, in their order. Such a run is mostly waiting, for
/// processes to start and to end: from the second one on those that come next run meanwhile.
class Runs {
 public:
  explicit Runs(std::vector<Case> cases) : cases_(std::move(cases)) {}

  Outcome outcome_of(const Case& wanted) {
    const auto first = std::ranges::find(cases_, wanted.deck, &Case::deck) - cases_.begin();
    const std::size_t at_once = started_.empty() ? 1 : 4;
    const std::size_t end = std::min(cases_.size(), static_cast<std::size_t>(first) + at_once);
    for (std::size_t i = static_cast<std::size_t>(first); i < end; ++i) {
      if (!started_.contains(i))
        started_[i] = std::async(std::launch::async, run, cases_[i]).share();
    }
    return started_[static_cast<std::size_t>(first)].get();
  }

 private:
  std::vector<Case> cases_;
  std::map<std::size_t, std::shared_future<Outcome>> started_;
};

/// The lines of `text` that hold `facts`.
std::vector<std::string> lines_about(const std::string& text, const Facts& facts) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto holds = [&](const std::string& fact) { return holds_fact(line, fact); };
    if (std::ranges::all_of(facts, holds)) found.push_back(line);
  }
  return found;
}

/// What is printed on one rank, or on two where a deck is for two, is on the page. Other numbers of
/// ranks end with the same error; warnings may be others.
void expect_words_of(const fs::path& deck, int ranks, const Outcome& outcome) {
  const DeckHeader header = read_header(deck);
  if (!header.has_words) return;
  const int written_on = header.ranks.front();
  const std::string test = std::string("BadDeck.EndsWithItsMessage/") + deck.stem().string();
  if (ranks != written_on) {
    const auto words = words_of("OnOneRank/" + test);
    EXPECT_FALSE(words.empty());
    for (const std::string& message : words)
      for (const std::string& line : lines_about(message, {"error: "}))
        // The header's facts are all that is the same where the words name the number of ranks.
        if (!holds_fact(line, "1 rank")) {
          EXPECT_EQ(count(outcome.err, line), 1) << line;
        }
    return;
  }
  const std::string said = said_in(outcome.err);
  if (!said.empty()) expect_words(said);
  for (const Facts& facts : header.about)
    for (const std::string& line : lines_about(outcome.out, facts))
      expect_words(line);
}

class BadDeck : public testing::TestWithParam<Case> {};

TEST_P(BadDeck, EndsWithItsMessage) {
  static std::map<std::string, Runs> suites;
  const auto& [deck, ranks] = GetParam();
  const DeckHeader header = read_header(deck);
  const std::string suite =
      testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
  Runs& runs =
      suites.try_emplace(suite, suite.starts_with("Some") ? some_cases(ranks) : cases(ranks))
          .first->second;
  const Outcome outcome = ranks == 1 ? run(GetParam()) : runs.outcome_of(GetParam());

  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, header.exit_code);
  EXPECT_FALSE(header.about.empty());
  for (const Facts& facts : header.about)
    EXPECT_EQ(lines_about(outcome.text(), facts).size(), 1U) << testing::PrintToString(facts);
  expect_words_of(deck, ranks, outcome);
  EXPECT_EQ(count(outcome.err, "error: "), header.exit_code == 0 ? 0 : 1);
  EXPECT_EQ(count(outcome.err, "MPI_ABORT"), 0);
  // mpirun adds its own lines.
  if (ranks == 1) expect_complete_messages(outcome.err);
  if (HasFailure()) std::printf("%s%s", outcome.out.c_str(), outcome.err.c_str());
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.deck.stem().string();
}

INSTANTIATE_TEST_SUITE_P(OnOneRank, BadDeck, testing::ValuesIn(cases(1)), name_of);
INSTANTIATE_TEST_SUITE_P(SomeOnTwoRanks, BadDeck, testing::ValuesIn(some_cases(2)), name_of);
INSTANTIATE_TEST_SUITE_P(OnTwoRanks, BadDeck, testing::ValuesIn(cases(2)), name_of);

TEST(BadDecks, AreMany) {
  for (const auto& entry : fs::directory_iterator(source_folder() / "tests/decks/bad"))
    EXPECT_FALSE(read_header(entry.path()).ranks.empty()) << entry.path() << " is never run";

  EXPECT_GE(cases(1).size(), 25u);
  EXPECT_GE(cases(2).size(), 25u);
}

}  // namespace
}  // namespace finetune::tests::bad_decks_test
