// SPDX-License-Identifier: Apache-2.0
#include "core/processor.hpp"

#include "core/processor_rows.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace finetune::core {
namespace {

#define FINETUNE_NAME_OF_ROW(name, ...) name,
const char* const names_of_instructions[] = {FINETUNE_INSTRUCTIONS(FINETUNE_NAME_OF_ROW) nullptr};
#undef FINETUNE_NAME_OF_ROW

constexpr int num_instructions = sizeof(names_of_instructions) / sizeof(const char*) - 1;

/// Compared letter by letter: strcmp is found through the C library's own look at the processor,
/// which is not done everywhere when the first check runs.
bool same_text(const char* a, const char* b) {
  while (*a != '\0' && *a == *b)
    ++a, ++b;
  return *a == *b;
}

InstructionSet bit_of(const char* name) {
  for (int i = 0; i < num_instructions; ++i) {
    if (same_text(names_of_instructions[i], name)) return InstructionSet{1} << i;
  }
  return 0;
}

/// A text of bounded length that grows at its end.
class BoundedText {
 public:
  BoundedText(char* text, std::size_t size) : text_(text), size_(size) {}

  BoundedText& operator<<(const char* part) {
    while (*part != '\0' && length_ < size_)
      text_[length_++] = *part++;
    return *this;
  }

  BoundedText& operator<<(InstructionSet set) {
    const char* between = "";
    for (int i = 0; i < num_instructions; ++i) {
      if ((set >> i & 1) == 0) continue;
      *this << between << names_of_instructions[i];
      between = ", ";
    }
    return *this;
  }

  /// Ends the line, in the place of its last character if it is cut off.
  std::size_t end_line() {
    if (size_ == 0) return 0;
    if (length_ == size_) --length_;
    text_[length_++] = '\n';
    return length_;
  }

 private:
  char* text_;
  std::size_t size_;
  std::size_t length_ = 0;
};

#if defined(__x86_64__)
struct CpuidRow {
  unsigned leaf;
  unsigned subleaf;
  enum { eax, ebx, ecx, edx } reg;
  int bit;
  std::uint64_t states;
};

#define FINETUNE_CPUID_ROW(name, macro, leaf, subleaf, reg, bit, states) \
  {leaf, subleaf, CpuidRow::reg, bit, states},
const CpuidRow cpuid_rows[] = {FINETUNE_INSTRUCTIONS(FINETUNE_CPUID_ROW)};
#undef FINETUNE_CPUID_ROW

/// Which registers the operating system saves for programs. Bits: 1 SSE, 2 AVX, 5 to 7 AVX-512.
std::uint64_t saved_states() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned os_uses_xsave = 1U << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & os_uses_xsave) == 0) return 0;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}
#endif

}  // namespace

const char* instruction_name(int bit) {
  return bit >= 0 && bit < num_instructions ? names_of_instructions[bit] : nullptr;
}

InstructionSet instructions_here() {
  InstructionSet found = 0;
#if defined(__x86_64__)
  const std::uint64_t states = saved_states();
  for (int i = 0; i < num_instructions; ++i) {
    const CpuidRow& row = cpuid_rows[i];
    unsigned registers[4] = {};
    if (__get_cpuid_count(row.leaf, row.subleaf, &registers[0], &registers[1], &registers[2],
                          &registers[3]) == 0) {
      continue;
    }
    const bool is_there = (registers[row.reg] >> row.bit & 1) != 0;
    if (is_there && (states & row.states) == row.states) found |= InstructionSet{1} << i;
  }
#elif defined(__aarch64__)
  const unsigned long words[] = {0, getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
  int i = 0;
#define FINETUNE_HWCAP_ROW(name, macro, word, bit)                    \
  if ((words[word] >> bit & 1) != 0) found |= InstructionSet{1} << i; \
  ++i;
  FINETUNE_INSTRUCTIONS(FINETUNE_HWCAP_ROW)
#undef FINETUNE_HWCAP_ROW
#endif
  return found;
}

void processor_name(char (&name)[49]) {
  name[0] = '\0';
#if defined(__x86_64__)
  unsigned words[12] = {};
  for (unsigned i = 0; i < 3; ++i) {
    if (__get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                    &words[4 * i + 3]) == 0) {
      return;
    }
  }
  const char* letters = reinterpret_cast<const char*>(words);
  std::size_t begin = 0, end = 0;
  while (begin < sizeof(words) && letters[begin] == ' ')
    ++begin;
  for (std::size_t i = begin; i < sizeof(words) && letters[i] != '\0'; ++i) {
    name[i - begin] = letters[i];
    if (letters[i] != ' ') end = i + 1 - begin;
  }
  name[end] = '\0';
#endif
}

const char* fitting_arch(InstructionSet instructions) {
  struct Level {
    const char* arch;
    const char* names[9];
  };
#if defined(__x86_64__)
  // The levels of the x86-64 psABI; each has what those above it in the list add.
  static const Level levels[] = {
      {"x86-64", {}},
      {"x86-64-v2", {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"}},
      {"x86-64-v3", {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}},
      {"x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}}};
#elif defined(__aarch64__)
  static const Level levels[] = {{"armv8-a", {}}, {"armv8.2-a", {"lse", "rdm"}}};
#else
  static const Level levels[] = {{"native", {}}};
#endif
  const char* fitting = "";
  for (const Level& level : levels) {
    for (const char* name : level.names) {
      if (name != nullptr && (instructions & bit_of(name)) == 0) return fitting;
    }
    fitting = level.arch;
  }
  return fitting;
}

std::size_t write_refusal(const ProcessorNeeds& needs, const ProcessorFound& found, char* text,
                          std::size_t size) {
  const InstructionSet lacking = needs.instructions & ~found.instructions;
  if (lacking == 0) return 0;
  const char* arch = fitting_arch(found.instructions);
  BoundedText line(text, size);
  line << "error: " << found.host << ": the processor";
  if (found.name[0] != '\0') line << ", " << found.name << ",";
  line << " lacks " << lacking << " (this finetune was built ";
  if (needs.arch[0] != '\0') {
    line << "with FINETUNE_ARCH=" << needs.arch;
  } else {
    line << "for another processor";
  }
  line << " and needs " << needs.instructions << "). Build it for " << arch
       << ", which runs here: FINETUNE_ARCH=" << arch
       << " jobscripts/local.sh build, or cmake -DFINETUNE_ARCH=" << arch << ".";
  return line.end_line();
}

}  // namespace finetune::core
