// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "commands.hpp"
#include "core/error.hpp"
#include "support/messages.hpp"

namespace finetune::app::bytes_test {
namespace {

using finetune::tests::expect_message;

TEST(ParseBytes, KnowsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("1234"), 1234);
  EXPECT_EQ(parse_bytes("12B"), 12);
  EXPECT_EQ(parse_bytes("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_bytes("80GiB"), std::int64_t{80} << 30);
  EXPECT_EQ(parse_bytes("512 MiB"), std::int64_t{512} << 20);
  EXPECT_EQ(parse_bytes("1.5KiB"), 1536);
  EXPECT_EQ(parse_bytes("2TB"), 2'000'000'000'000);
}

TEST(ParseBytes, RefusesEverythingElse) {
  for (const char* text : {"", "GiB", "-1GiB", "0", "0.5", "5 gib", "5GiB of it", "nan", "inf",
                           "nanGB", "1e30TiB", "0x10", "5,5GB", "+5GB"}) {
    try {
      EXPECT_EQ(parse_bytes(text), -1) << "accepted \"" << text << "\"";
    } catch (const core::Error& error) {
      EXPECT_EQ(error.kind(), core::ErrorKind::command_line);
      expect_message(error.what(), "finetune", {"\"" + std::string(text) + "\"", "80GiB", "5GB"});
    }
  }
}

}  // namespace
}  // namespace finetune::app::bytes_test
