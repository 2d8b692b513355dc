// SPDX-License-Identifier: Apache-2.0
#include "kernels/processor.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace finetune::kernels {
namespace {

std::string lower(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

struct Instructions {
  bool multiplies_bf16 = false;
  bool multiplies_f16 = false;
  const char* name = "";
};

#if defined(__x86_64__)
/// A bit of the leaf of extended features that the compiler has no name for yet.
bool has_extended(unsigned leaf, unsigned bit, bool in_edx) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, leaf, &a, &b, &c, &d) != 0 && ((in_edx ? d : a) >> bit & 1u) != 0;
}

/// Whether the names that oneDNN takes leave bf16, or fp16, to its products.
bool onednn_allows(std::string_view type) {
  const std::string limit = lower("ONEDNN_MAX_CPU_ISA");
  if (limit.empty() || limit == "all" || limit == "default") return true;
  if (limit.find("amx") != std::string::npos) return type == "bf16" || limit.ends_with(type);
  if (limit.starts_with("avx10")) return true;
  if (limit.ends_with("fp16")) return true;
  return type == "bf16" && limit.ends_with("bf16");
}

Instructions look() {
  __builtin_cpu_init();
  const std::string capability = lower("ATEN_CPU_CAPABILITY");
  const bool has_wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq") && capability != "avx2" &&
                        capability != "default";
  Instructions found;
  found.name = __builtin_cpu_supports("avx2") ? "AVX2" : "SSE";
  if (!has_wide) return found;
  const bool has_amx = has_extended(0, 22, /*in_edx=*/true) && onednn_allows("bf16");
  found.multiplies_bf16 =
      has_amx || (__builtin_cpu_supports("avx512bf16") && onednn_allows("bf16"));
  found.multiplies_f16 =
      (has_extended(0, 23, true) || has_extended(1, 21, false)) && onednn_allows("fp16");
  found.name = has_amx ? "AMX" : found.multiplies_bf16 ? "AVX-512 BF16" : "AVX-512";
  return found;
}
#elif defined(__aarch64__) && defined(__linux__)
Instructions look() {
  constexpr unsigned long bf16 = 1ul << 14;  // HWCAP2_BF16 of the kernel's asm/hwcap.h
  Instructions found;
  found.multiplies_bf16 = (::getauxval(AT_HWCAP2) & bf16) != 0;
  found.name = found.multiplies_bf16 ? "NEON BF16" : "NEON";
  return found;
}
#else
Instructions look() {
  return {.name = "an unknown instruction set"};
}
#endif

const Instructions& instructions() {
  static const Instructions found = look();
  return found;
}

}  // namespace

bool multiplies(core::DType dtype) {
  if (dtype == core::DType::bf16) return instructions().multiplies_bf16;
  if (dtype == core::DType::f16) return instructions().multiplies_f16;
  return true;
}

const char* instruction_set() {
  return instructions().name;
}

}  // namespace finetune::kernels
