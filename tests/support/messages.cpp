// SPDX-License-Identifier: Apache-2.0
#include "support/messages.hpp"

#include "support/folders.hpp"
#include "support/messages_page.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

bool is_set(const char* variable) {
  return std::getenv(variable) != nullptr;
}

/// Several ranks provoke the same messages: the first one compares them.
bool is_first_rank() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr || std::string_view(rank) == "0";
}

std::string program() {
  const std::string name = fs::read_symlink("/proc/self/exe").filename().string();
  return name.starts_with("test_") ? name.substr(5) : name;
}

fs::path page_path() {
  return source_folder() / "tests/golden/messages" / (program() + ".txt");
}

std::string name_of(const testing::TestInfo& info) {
  return std::string(info.test_suite_name()) + "." + info.name();
}

std::vector<const testing::TestInfo*> tests_of_program() {
  std::vector<const testing::TestInfo*> tests;
  const auto& program = *testing::UnitTest::GetInstance();
  for (int i = 0; i < program.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *program.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j)
      tests.push_back(suite.GetTestInfo(j));
  }
  return tests;
}

std::string how_to_write() {
  return fmt::format("If these words are wanted: tests/messages.sh --write {}", program());
}

/// The page of this program, and what its tests have provoked so far.
class Pages {
 public:
  static Pages& get() {
    static Pages pages;
    return pages;
  }

  bool writes() const { return writes_; }
  const Sections& on_page() const { return on_page_; }

  /// The different messages of a test, in their order; empty when it starts.
  std::vector<std::string>& provoked_by(const std::string& test) { return provoked_[test]; }

  void write() const {
    std::set<std::string> all, done;
    for (const testing::TestInfo* info : tests_of_program()) {
      all.insert(name_of(*info));
      const bool has_run = info->should_run() && !info->result()->Skipped();
      // On several ranks a test may have its messages on some numbers of them only.
      const bool says = is_alone_ || provoked_.contains(name_of(*info));
      if (has_run && says) done.insert(name_of(*info));
    }
    merge_page(page_path(), provoked_, all, done);
  }

  /// Sections of tests that are no longer there.
  std::string strangers() const {
    std::set<std::string> all;
    for (const testing::TestInfo* info : tests_of_program())
      all.insert(name_of(*info));
    std::string names;
    for (const auto& [name, words] : on_page_)
      if (!all.contains(name)) names += " [" + name + "]";
    return names;
  }

  void begin(const testing::TestInfo& info) { provoked_.erase(name_of(info)); }

  void end(const testing::TestInfo& info) const {
    if (writes_ || !is_first_rank() || info.result()->Failed() || info.result()->Skipped()) return;
    const auto section = on_page_.find(name_of(info));
    const auto found = provoked_.find(name_of(info));
    const std::size_t said = found == provoked_.end() ? 0 : found->second.size();
    if (section == on_page_.end() || (said == 0 && !is_alone_)) return;
    EXPECT_GE(said, section->second.size())
        << "the page has messages that the test no longer provokes: " << page_path().string()
        << " [" << section->first << "]\n"
        << how_to_write();
  }

 private:
  const bool writes_ = is_set("FINETUNE_WRITE_MESSAGES");
  const bool is_alone_ = !is_set("OMPI_COMM_WORLD_SIZE");
  Sections on_page_ = read_page(page_path());
  Sections provoked_;
};

class Listener : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& info) override { Pages::get().begin(info); }
  void OnTestEnd(const testing::TestInfo& info) override { Pages::get().end(info); }
};

class PageOfProgram : public testing::Environment {
  void SetUp() override {
    listener_ = new Listener;
    testing::UnitTest::GetInstance()->listeners().Append(listener_);
  }
  void TearDown() override {
    delete testing::UnitTest::GetInstance()->listeners().Release(listener_);
    if (!is_first_rank()) return;
    if (Pages::get().writes()) return Pages::get().write();
    EXPECT_EQ(Pages::get().strangers(), "") << "no tests of these names. " << how_to_write();
  }
  Listener* listener_ = nullptr;
};

[[maybe_unused]] const auto* const environment =
    testing::AddGlobalTestEnvironment(new PageOfProgram);

bool is_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Whether text[begin, end) is no piece of a longer word or number.
bool is_whole(std::string_view text, std::size_t begin, std::size_t end) {
  const auto at = [&](std::size_t i) { return i < text.size() ? text[i] : ' '; };
  if (is_of_word(text[begin]) && begin > 0 && is_of_word(text[begin - 1])) return false;
  if (is_digit(text[begin]) && begin > 1 && text[begin - 1] == '.' && is_digit(text[begin - 2]))
    return false;
  if (is_of_word(text[end - 1]) && is_of_word(at(end))) return false;
  return !(is_digit(text[end - 1]) && at(end) == '.' && is_digit(at(end + 1)));
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

bool holds_fact(std::string_view text, std::string_view fact) {
  if (fact.empty()) return true;
  for (std::size_t at = text.find(fact); at != std::string_view::npos; at = text.find(fact, at + 1))
    if (is_whole(text, at, at + fact.size())) return true;
  return false;
}

std::vector<std::string> words_of(const std::string& test) {
  const auto found = Pages::get().on_page().find(test);
  return found == Pages::get().on_page().end() ? std::vector<std::string>() : found->second;
}

std::string without_folders(std::string_view message) {
  std::string text(message);
  text = replace_all(text, build_folder().string(), "<build>");
  text = replace_all(text, source_folder().string(), "<source>");
  const std::string temporary = fs::temp_directory_path().string();
  for (std::size_t at = text.find(temporary + "/"); at != std::string::npos;
       at = text.find(temporary + "/", at + 1)) {
    std::size_t end = at + temporary.size() + 1;
    // With the name of the test's own folder, which is another one each time.
    while (end < text.size() && (is_of_word(text[end]) || text[end] == '-'))
      ++end;
    text.replace(at, end - at, "<tmp>");
  }
  return text;
}

std::string said_in(std::string_view err) {
  const std::size_t begin = std::min(err.find("error: "), err.find("warning: "));
  if (begin == std::string_view::npos) return "";
  std::string_view said = err.substr(begin);
  // mpirun frames what it says by lines of dashes.
  said = said.substr(0, said.find("\n-----"));
  return std::string(said.substr(0, said.find_last_not_of('\n') + 1));
}

void expect_facts(std::string_view message, std::string_view where, const Facts& facts,
                  Caller caller) {
  const bool is_there =
      message.starts_with(where) && (where.empty() || is_whole(message, 0, where.size()));
  if (!is_there)
    ADD_FAILURE_AT(caller.file, caller.line)
        << "\"" << where << "\" is not the place of this message: " << message;
  for (const std::string& fact : facts)
    if (!holds_fact(message, fact))
      ADD_FAILURE_AT(caller.file, caller.line)
          << "\"" << fact << "\" is not in this message: " << message;
}

void expect_words(std::string_view message, Caller caller) {
  const testing::TestInfo* running = testing::UnitTest::GetInstance()->current_test_info();
  if (running == nullptr || !is_first_rank()) return;
  Pages& pages = Pages::get();
  const std::string words = as_on_page(without_folders(message));
  auto& provoked = pages.provoked_by(name_of(*running));
  if (std::ranges::find(provoked, words) != provoked.end()) return;
  provoked.push_back(words);
  if (pages.writes()) return;
  const auto on_page = words_of(name_of(*running));
  const std::size_t place = provoked.size() - 1;
  const std::string expected = place < on_page.size() ? on_page[place] : "(nothing)";
  if (words == expected) return;
  ADD_FAILURE_AT(caller.file, caller.line)
      << "other words than those of the page\n  page: " << expected << "\n  now:  " << words
      << "\n  in " << page_path().string() << " [" << name_of(*running) << "], message "
      << place + 1 << "\n"
      << how_to_write();
}

void expect_message(std::string_view message, std::string_view where, const Facts& facts,
                    Caller caller) {
  expect_facts(message, where, facts, caller);
  expect_words(message, caller);
}

void expect_line_about(std::string_view text, const Facts& facts, Caller caller) {
  std::istringstream lines{std::string(text)};
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const bool is_about =
        std::ranges::all_of(facts, [&](const std::string& fact) { return holds_fact(line, fact); });
    if (is_about) found += (found.empty() ? "" : "\n") + line;
  }
  if (!found.empty()) return expect_words(found, caller);
  ADD_FAILURE_AT(caller.file, caller.line)
      << "no line about \"" << fmt::format("{}", fmt::join(facts, "\", \"")) << "\" in: " << text;
}

}  // namespace finetune::tests
