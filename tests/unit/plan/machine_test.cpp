// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.hpp"
#include "plan/machine/machine_file.hpp"
#include "support/errors.hpp"
#include "support/folders.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::machine_test {
namespace {

namespace fs = std::filesystem;

const fs::path shipped = tests::source_folder() / "inputs/machines";

std::string message_of(const std::function<void()>& f, core::ErrorKind kind) {
  return tests::error_of(kind, f);
}

TEST(Machines, OneThatIsNotThereNamesThoseThatAre) {
  const std::string message =
      message_of([] { read_machine("h100-9", shipped); }, core::ErrorKind::command_line);
  EXPECT_NE(message.find("Did you mean \"h100-8\"?"), std::string::npos) << message;
  EXPECT_NE(message.find("a100-80-8"), std::string::npos) << message;
  message_of([] { read_machine("/nowhere/machine.toml", shipped); }, core::ErrorKind::command_line);
}

TEST(Machines, AFileIsReadStrictly) {
  const std::string message = message_of(
      [] {
        parse_machine("[machine]\ngpus_per_node = 8\nbf16_tflop = 1.0\nmemory_gb_per_s = -1.0\n",
                      "mine.toml");
      },
      core::ErrorKind::deck);
  EXPECT_NE(message.find("mine.toml:3"), std::string::npos) << message;
  EXPECT_NE(message.find("'bf16_tflops'"), std::string::npos) << message;
  EXPECT_NE(message.find("mine.toml:4"), std::string::npos) << message;
  message_of([] { parse_machine("[machine]\nname = \"empty\"\n", "mine.toml"); },
             core::ErrorKind::deck);
}

TEST(Machines, RefusesNumbersThatNoMachineHas) {
  const std::string message = message_of(
      [] {
        parse_machine(
            "[machine]\ngpus_per_node = 9000000000000000000\nnode_memory_gib = 1e300\n"
            "inter_gb_per_s = 1e300\n",
            "mine.toml");
      },
      core::ErrorKind::deck);
  for (const char* line : {"mine.toml:2", "mine.toml:3", "mine.toml:4"})
    EXPECT_NE(message.find(line), std::string::npos) << message;
}

TEST(Machines, OfAFileNeedsNoneOfTheProgram) {
  EXPECT_TRUE(is_machine_file("mine.toml"));
  EXPECT_TRUE(is_machine_file("./mine"));
  EXPECT_FALSE(is_machine_file("h100-8"));
  EXPECT_GT(read_machine((shipped / "h100-8.toml").string(), {}).gpus_per_node, 0);
  message_of([] { read_machine("nowhere.toml", {}); }, core::ErrorKind::command_line);
}

TEST(Machines, MemoryIsTheGpusOrAShareOfTheNodes) {
  Machine machine = tests::round_machine();
  EXPECT_EQ(usual_ranks_per_node(machine), 2);
  EXPECT_EQ(usable_bytes(machine, 2), static_cast<std::int64_t>(0.99 * 80 * 0x1p30));
  machine.gpus_per_node = 0;
  machine.cores_per_node = 4;
  machine.node_memory_gib = 8;
  EXPECT_EQ(usual_ranks_per_node(machine), 4);
  EXPECT_EQ(usable_bytes(machine, 4), static_cast<std::int64_t>(0.94 * 2 * 0x1p30));
}

TEST(Machines, EachThatComesWithTheProgramTellsAllThatAPlanNeeds) {
  int num = 0;
  for (const auto& entry : fs::directory_iterator(shipped)) {
    if (entry.path().extension() != ".toml") continue;
    ++num;
    const Machine machine = read_machine(entry.path().string(), shipped);
    SCOPED_TRACE(entry.path().string());
    for (const double rate :
         {machine.peak_tflops, machine.bf16_tflops, machine.fp32_tflops, machine.memory_gb_per_s,
          machine.intra_gb_per_s, machine.inter_gb_per_s, machine.write_gb_per_s,
          machine.read_gb_per_s, machine.node_memory_gib, machine.node_mtbf_hours})
      EXPECT_GT(rate, 0);
    EXPECT_LT(machine.bf16_tflops, machine.peak_tflops) << "nobody reaches the data sheet";
    EXPECT_LE(machine.fp8_tflops, 2 * machine.bf16_tflops) << "an estimate until it is measured";
    EXPECT_EQ(machine.gpus_per_node > 0, machine.gpu_memory_gib > 0);
    EXPECT_EQ(machine.gpus_per_node > 0, machine.host_gb_per_s > 0);
  }
  EXPECT_GE(num, 8);
}

}  // namespace
}  // namespace finetune::plan::machine_test
