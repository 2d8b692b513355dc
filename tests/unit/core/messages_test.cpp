// SPDX-License-Identifier: Apache-2.0
// How tests look at messages: support/messages.hpp.
#include "support/messages.hpp"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/folders.hpp"
#include "support/messages_page.hpp"

namespace finetune::tests::messages_test {
namespace {

const std::string message = "a.toml:3: optimizer.lr = 13 is out of range (\"x\"). Use 0.5.";

TEST(Facts, AreWholeWordsAndNumbers) {
  for (const char* fact : {"13", "optimizer.lr", "lr", "\"x\"", "0.5", "lr = 13", ""})
    EXPECT_TRUE(holds_fact(message, fact)) << fact;
  for (const char* fact : {"3 ", "1", "optimizer.l", "r", "5", "0", "14"})
    EXPECT_FALSE(holds_fact(message, fact)) << fact;
  EXPECT_TRUE(holds_fact("3 of 13", "3"));
  EXPECT_FALSE(holds_fact("13", "3"));
}

TEST(Facts, ThatAreMissingAreFailures) {
  expect_facts(message, "a.toml:3", {"13"});
  EXPECT_NONFATAL_FAILURE(expect_facts(message, "", {"14"}), "\"14\" is not in this message");
}

TEST(Facts, BeginWithThePlace) {
  EXPECT_NONFATAL_FAILURE(expect_facts(message, "a.toml:2"), "is not the place");
  EXPECT_NONFATAL_FAILURE(expect_facts("a.toml:31: x", "a.toml:3"), "is not the place");
  EXPECT_NONFATAL_FAILURE(expect_facts("error: " + message, "a.toml:3"), "is not the place");
}

// The page has "planted: one (1)." and "planted: two (2)." here, each once.
TEST(Words, AreThoseOfThePageInItsOrder) {
  expect_message("planted: one (1).", "planted", {"1"});
  expect_message("planted: one (1).", "planted");
  expect_message("planted: two (2).", "planted", {"2"});
}

TEST(Words, OtherThanThoseOfThePageAreAFailure) {
  if (std::getenv("FINETUNE_WRITE_MESSAGES") != nullptr) GTEST_SKIP() << "the page is written";
  // The next failure would be one word late: each message has its place.
  EXPECT_NONFATAL_FAILURE(expect_words("never on a page"), "now:  never on a page");
}

TEST(Pages, ReadBackAsTheyWereWritten) {
  const Sections sections = {{"A.One", {"first", "of\nthree\n\nlines\n    x\n    ^"}},
                             {"B/C.Two/3", {"[x] - y"}}};
  const auto path = build_folder() / ("messages_page." + std::to_string(::getpid()));
  std::ofstream(path) << page_text(sections);
  EXPECT_EQ(read_page(path), sections);
  std::filesystem::remove(path);
  EXPECT_EQ(read_page(path), Sections());
}

TEST(Pages, KeepWhatDidNotRunAndForgetWhatIsGone) {
  const auto folder = build_folder() / ("messages_pages." + std::to_string(::getpid()));
  const auto path = folder / "page.txt";
  merge_page(path, {{"A.a", {"1"}}, {"A.b", {"2"}}, {"A.c", {"3"}}, {"A.d", {"4"}}},
             {"A.a", "A.b", "A.c", "A.d"}, {"A.a", "A.b", "A.c", "A.d"});
  // a says something else, b was not run, c is gone, d says nothing any more.
  merge_page(path, {{"A.a", {"5"}}}, {"A.a", "A.b", "A.d"}, {"A.a", "A.d"});
  EXPECT_EQ(read_page(path), (Sections{{"A.a", {"5"}}, {"A.b", {"2"}}}));
  std::filesystem::remove_all(folder);
}

TEST(Pages, HoldNoFoldersOfThisMachineAndNoControlCharacters) {
  EXPECT_EQ(without_folders((source_folder() / "a").string()), "<source>/a");
  EXPECT_EQ(without_folders(build_folder().string() + "/b: c"), "<build>/b: c");
  EXPECT_EQ(without_folders((std::filesystem::temp_directory_path() / "x-12/y.z").string()),
            "<tmp>/y.z");
  EXPECT_EQ(as_on_page("a\tb \n c\x1b\n\n"), "a\\x09b\n c\\x1b");
}

TEST(Said, IsTheErrorWithoutWhatMpirunAdds) {
  EXPECT_EQ(said_in("noise\nerror: a: b.\n    x\n\n-----\nmpirun\n"), "error: a: b.\n    x");
  EXPECT_EQ(said_in("warning: a.\nerror: b.\n"), "warning: a.\nerror: b.");
  EXPECT_EQ(said_in("nothing"), "");
}

}  // namespace
}  // namespace finetune::tests::messages_test
