#pragma once
// SPDX-License-Identifier: Apache-2.0
// The instruction-set extensions that compilers use without being asked, and which of them the file
// is compiled for that includes this. Extensions for which a program has to call something (AES,
// SHA, AMX) are not here: a processor without them runs it.

#include <cstdint>

// ROW(name, macro, ...): the compiler's macro is defined where it may use the extension.
#if defined(__x86_64__)
// What follows: CPUID's leaf, subleaf, register and bit; the register state (XCR0) that the
// operating system must save. Source: Intel 64 and IA-32 Architectures Software Developer's Manual,
// volume 2, CPUID; for fma4, xop and tbm AMD64 Architecture Programmer's Manual, volume 3, appendix
// E.
#define FINETUNE_INSTRUCTIONS(ROW)                                 \
  ROW("sse3", __SSE3__, 1, 0, ecx, 0, 0)                           \
  ROW("ssse3", __SSSE3__, 1, 0, ecx, 9, 0)                         \
  ROW("sse4.1", __SSE4_1__, 1, 0, ecx, 19, 0)                      \
  ROW("sse4.2", __SSE4_2__, 1, 0, ecx, 20, 0)                      \
  ROW("popcnt", __POPCNT__, 1, 0, ecx, 23, 0)                      \
  ROW("movbe", __MOVBE__, 1, 0, ecx, 22, 0)                        \
  ROW("lzcnt", __LZCNT__, 0x80000001, 0, ecx, 5, 0)                \
  ROW("bmi", __BMI__, 7, 0, ebx, 3, 0)                             \
  ROW("bmi2", __BMI2__, 7, 0, ebx, 8, 0)                           \
  ROW("tbm", __TBM__, 0x80000001, 0, ecx, 21, 0)                   \
  ROW("avx", __AVX__, 1, 0, ecx, 28, 0x6)                          \
  ROW("avx2", __AVX2__, 7, 0, ebx, 5, 0x6)                         \
  ROW("f16c", __F16C__, 1, 0, ecx, 29, 0x6)                        \
  ROW("fma", __FMA__, 1, 0, ecx, 12, 0x6)                          \
  ROW("fma4", __FMA4__, 0x80000001, 0, ecx, 16, 0x6)               \
  ROW("xop", __XOP__, 0x80000001, 0, ecx, 11, 0x6)                 \
  ROW("avxvnni", __AVXVNNI__, 7, 1, eax, 4, 0x6)                   \
  ROW("gfni", __GFNI__, 7, 0, ecx, 8, 0)                           \
  ROW("avx512f", __AVX512F__, 7, 0, ebx, 16, 0xe6)                 \
  ROW("avx512cd", __AVX512CD__, 7, 0, ebx, 28, 0xe6)               \
  ROW("avx512bw", __AVX512BW__, 7, 0, ebx, 30, 0xe6)               \
  ROW("avx512dq", __AVX512DQ__, 7, 0, ebx, 17, 0xe6)               \
  ROW("avx512vl", __AVX512VL__, 7, 0, ebx, 31, 0xe6)               \
  ROW("avx512ifma", __AVX512IFMA__, 7, 0, ebx, 21, 0xe6)           \
  ROW("avx512vbmi", __AVX512VBMI__, 7, 0, ecx, 1, 0xe6)            \
  ROW("avx512vbmi2", __AVX512VBMI2__, 7, 0, ecx, 6, 0xe6)          \
  ROW("avx512vnni", __AVX512VNNI__, 7, 0, ecx, 11, 0xe6)           \
  ROW("avx512bitalg", __AVX512BITALG__, 7, 0, ecx, 12, 0xe6)       \
  ROW("avx512vpopcntdq", __AVX512VPOPCNTDQ__, 7, 0, ecx, 14, 0xe6) \
  ROW("avx512bf16", __AVX512BF16__, 7, 1, eax, 5, 0xe6)            \
  ROW("avx512fp16", __AVX512FP16__, 7, 0, edx, 23, 0xe6)
#elif defined(__aarch64__)
// What follows: which word of Linux's capabilities, AT_HWCAP or AT_HWCAP2, and its bit. Source:
// linux/arch/arm64/include/uapi/asm/hwcap.h.
#define FINETUNE_INSTRUCTIONS(ROW)                         \
  ROW("lse", __ARM_FEATURE_ATOMICS, 1, 8)                  \
  ROW("fp16", __ARM_FEATURE_FP16_VECTOR_ARITHMETIC, 1, 10) \
  ROW("rdm", __ARM_FEATURE_QRDMX, 1, 12)                   \
  ROW("fcma", __ARM_FEATURE_COMPLEX, 1, 14)                \
  ROW("rcpc", __ARM_FEATURE_RCPC, 1, 15)                   \
  ROW("dotprod", __ARM_FEATURE_DOTPROD, 1, 20)             \
  ROW("sve", __ARM_FEATURE_SVE, 1, 22)                     \
  ROW("sve2", __ARM_FEATURE_SVE2, 2, 1)                    \
  ROW("i8mm", __ARM_FEATURE_MATMUL_INT8, 2, 13)            \
  ROW("bf16", __ARM_FEATURE_BF16_VECTOR_ARITHMETIC, 2, 14)
#else
// No program is refused on other processors.
#define FINETUNE_INSTRUCTIONS(ROW)
#endif

// A macro that is not defined is its own name; all of these begin with an underscore.
#define FINETUNE_TEXT_OF(macro) #macro

namespace finetune::core {

/// The extensions that the including file is compiled for; bits as in core/processor.hpp. Differs
/// from file to file, so it is a function of each.
static consteval std::uint64_t instructions_compiled_for() {
  std::uint64_t found = 0;
  int bit = 0;
#define FINETUNE_ADD_ROW(name, macro, ...)                                 \
  if (FINETUNE_TEXT_OF(macro)[0] != '_') found |= std::uint64_t{1} << bit; \
  ++bit;
  FINETUNE_INSTRUCTIONS(FINETUNE_ADD_ROW)
#undef FINETUNE_ADD_ROW
  static_cast<void>(bit);
  return found;
}

}  // namespace finetune::core
