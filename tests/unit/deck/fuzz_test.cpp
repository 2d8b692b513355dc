// SPDX-License-Identifier: Apache-2.0
// Whatever bytes a deck holds, reading it ends in settings or in one core::Error.
#include <algorithm>
#include <array>
#include <string_view>

#include "core/random.hpp"
#include "unit/deck/sample.hpp"

namespace finetune::deck::fuzz_test {
namespace {

const std::string valid =
    "# A deck.\n"
    "model.path = 'a/b'\n"
    "[parallel]\n"
    "sharding = \"NO_SHARD\" # \"x\n"
    "tp = 0x2\n"
    "[optimizer]\n"
    "lr = 1_0.5e-3\n"
    "beta2 = 0.95\n"
    "warmup_steps = 10\r\n"
    "fused = true\n";

// What makes a parser change its mind.
constexpr std::array<std::string_view, 24> pieces = {
    "[", "]", "[[", "]]", "{",      "}",     "\"",         "'",  "\"\"\"", "'''",  "\n", "\r",
    "=", ".", ",",  "#",  "\\u00e", "1e999", "1979-05-27", "0x", "inf",    "\xc3", "\\", "é"};

class Mutator {
 public:
  explicit Mutator(std::uint64_t run) : key_(7, core::RandomUse::test, run) {}

  std::string mutate() {
    std::string text = valid;
    const std::size_t num_changes = 1 + below(6);
    for (std::size_t i = 0; i < num_changes && !text.empty(); ++i)
      change(text);
    return text;
  }

 private:
  std::size_t below(std::size_t bound) {
    return static_cast<std::size_t>(key_.below(index_++, bound));
  }

  void change(std::string& text) {
    const std::size_t at = below(text.size());
    const std::size_t length = std::min<std::size_t>(1 + below(12), text.size() - at);
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 3:
        text.insert(at, pieces[below(pieces.size())]);
        break;
      default:
        text.resize(at);
    }
  }

  core::RandomKey key_;
  std::uint64_t index_ = 0;
};

TEST(DeckFuzz, FiveThousandMutationsAreReadOrRefused) {
  int num_read = 0;
  int num_refused = 0;
  for (std::uint64_t run = 0; run < 5000; ++run) {
    const std::string text = Mutator(run).mutate();
    try {
      read(text);
      ++num_read;
    } catch (const core::Error& error) {
      EXPECT_EQ(error.kind(), core::ErrorKind::deck) << error.what();
      ++num_refused;
    }
  }
  // Both ways were taken often enough for the test to say something.
  EXPECT_GT(num_read, 125);
  EXPECT_GT(num_refused, 2500);
}

TEST(DeckFuzz, MutatedOverridesAreReadOrRefused) {
  for (std::uint64_t run = 0; run < 2000; ++run) {
    std::string value = Mutator(100000 + run).mutate();
    value.erase(0, std::min<std::size_t>(run % 60, value.size()));
    value.resize(std::min<std::size_t>(40, value.size()));
    try {
      read("", {"model.path=" + value, "optimizer.lr=" + value.substr(0, 8)});
    } catch (const core::Error& error) {
      EXPECT_TRUE(error.kind() == core::ErrorKind::deck ||
                  error.kind() == core::ErrorKind::command_line);
    }
  }
}

}  // namespace
}  // namespace finetune::deck::fuzz_test
