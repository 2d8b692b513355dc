// SPDX-License-Identifier: Apache-2.0
#include "core/processor.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/processor_rows.hpp"

namespace finetune::core::processor_test {
namespace {

InstructionSet set_of(std::initializer_list<std::string_view> names) {
  InstructionSet set = 0;
  for (const auto name : names) {
    int bit = 0;
    while (instruction_name(bit) != nullptr && instruction_name(bit) != name)
      ++bit;
    EXPECT_NE(instruction_name(bit), nullptr) << "no row is called " << name;
    set |= InstructionSet{1} << bit;
  }
  return set;
}

std::string refusal(const ProcessorNeeds& needs, const ProcessorFound& found) {
  char text[2048];
  return {text, write_refusal(needs, found, text, sizeof(text))};
}

TEST(Processor, RunsWhatItWasItselfBuiltFor) {
  EXPECT_EQ(instructions_compiled_for() & ~instructions_here(), 0U);
}

TEST(Processor, HasABitForEachRowOfTheTable) {
  int num_rows = 0;
  while (instruction_name(num_rows) != nullptr)
    ++num_rows;
  EXPECT_LT(num_rows, 64);
  EXPECT_EQ(instruction_name(-1), nullptr);
  EXPECT_EQ(instructions_here() >> num_rows, 0U);
}

#if defined(__x86_64__)

const InstructionSet v2 = set_of({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"});
const InstructionSet v3 =
    v2 | set_of({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"});
const InstructionSet v4 = v3 | set_of({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});

TEST(Processor, ThatHasAllThatIsNeededIsNotRefused) {
  EXPECT_EQ(refusal({v3, "x86-64-v3"}, {v3, "a processor", "n1"}), "");
  EXPECT_EQ(refusal({v3, "x86-64-v3"}, {v4, "a processor", "n1"}), "");
  EXPECT_EQ(refusal({}, {}), "");
}

TEST(Processor, ThatLacksSomethingIsToldWhatAndWhatToBuild) {
  EXPECT_EQ(
      refusal({v2 | set_of({"avx", "avx512f"}), "native"}, {v3, "Some CPU @ 2 GHz", "n3"}),
      "error: n3: the processor, Some CPU @ 2 GHz, lacks avx512f (this finetune was built with "
      "FINETUNE_ARCH=native and needs sse3, ssse3, sse4.1, sse4.2, popcnt, avx, avx512f). Build "
      "it for x86-64-v3, which runs here: FINETUNE_ARCH=x86-64-v3 "
      "jobscripts/local.sh build, or cmake -DFINETUNE_ARCH=x86-64-v3.\n");
  // Spack's compiler wrapper chooses, and a virtual machine may hide its name.
  EXPECT_EQ(
      refusal({set_of({"fma", "avx2"}), ""}, {v2, "", "n3"}),
      "error: n3: the processor lacks avx2, fma (this finetune was built for another processor "
      "and needs avx2, fma). Build it for x86-64-v2, which runs here: "
      "FINETUNE_ARCH=x86-64-v2 jobscripts/local.sh build, or cmake "
      "-DFINETUNE_ARCH=x86-64-v2.\n");
}

TEST(Processor, IsAdvisedTheLevelOfWhichItHasEverything) {
  EXPECT_STREQ(fitting_arch(0), "x86-64");
  EXPECT_STREQ(fitting_arch(v2), "x86-64-v2");
  EXPECT_STREQ(fitting_arch(v3 & ~set_of({"movbe"})), "x86-64-v2");
  EXPECT_STREQ(fitting_arch(v3 | set_of({"avx512f"})), "x86-64-v3");
  EXPECT_STREQ(fitting_arch(v4), "x86-64-v4");
  // An emulator or a hypervisor may leave out what lies below.
  EXPECT_STREQ(fitting_arch(v4 & ~set_of({"ssse3"})), "x86-64");
}

TEST(Processor, HasWhatTheCompilersOwnLookFinds) {
  __builtin_cpu_init();
  const InstructionSet here = instructions_here();
#define EXPECT_SAME(name) \
  EXPECT_EQ((here & set_of({name})) != 0, __builtin_cpu_supports(name) != 0) << name
  EXPECT_SAME("sse3");
  EXPECT_SAME("ssse3");
  EXPECT_SAME("sse4.1");
  EXPECT_SAME("sse4.2");
  EXPECT_SAME("popcnt");
  EXPECT_SAME("bmi");
  EXPECT_SAME("bmi2");
  EXPECT_SAME("avx");
  EXPECT_SAME("avx2");
  EXPECT_SAME("fma");
  EXPECT_SAME("fma4");
  EXPECT_SAME("xop");
  EXPECT_SAME("gfni");
  EXPECT_SAME("avx512f");
  EXPECT_SAME("avx512cd");
  EXPECT_SAME("avx512bw");
  EXPECT_SAME("avx512dq");
  EXPECT_SAME("avx512vl");
  EXPECT_SAME("avx512ifma");
  EXPECT_SAME("avx512vbmi");
  EXPECT_SAME("avx512vbmi2");
  EXPECT_SAME("avx512vnni");
  EXPECT_SAME("avx512bitalg");
  EXPECT_SAME("avx512vpopcntdq");
  EXPECT_SAME("avx512bf16");
#undef EXPECT_SAME
}

TEST(Processor, NeedsAreWhatTheCompilerMayUse) {
#if defined(__AVX2__)
  EXPECT_NE(instructions_compiled_for() & set_of({"avx2"}), 0U);
#else
  EXPECT_EQ(instructions_compiled_for() & set_of({"avx2"}), 0U);
#endif
#if defined(__AVX512F__)
  EXPECT_NE(instructions_compiled_for() & set_of({"avx512f"}), 0U);
#else
  EXPECT_EQ(instructions_compiled_for() & set_of({"avx512f"}), 0U);
#endif
}

#endif

TEST(Processor, RefusalsAreCutOffWhereTheirTextEnds) {
  char text[] = "..........#";
  EXPECT_EQ(write_refusal({~InstructionSet{0}, ""}, {0, "", "a host"}, text, 10),
            instruction_name(0) == nullptr ? 0U : 10U);
  if (instruction_name(0) != nullptr) {
    EXPECT_STREQ(text, "error: a \n#");
  }
}

}  // namespace
}  // namespace finetune::core::processor_test
