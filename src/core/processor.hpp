#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which instructions this processor has beyond the first ones of its family, and what a program
// says that was built for more of them. Runs before anything else does, so it is compiled without
// FINETUNE_ARCH's instructions and calls nothing of the C++ library, whose inline functions the
// linker may take from a file that has them.

#include <cstddef>
#include <cstdint>

namespace finetune::core {

/// Instruction-set extensions; bit i is row i of the table in core/processor_rows.hpp.
using InstructionSet = std::uint64_t;

/// What a program was built for.
struct ProcessorNeeds {
  InstructionSet instructions = 0;
  const char* arch = "";  ///< FINETUNE_ARCH; empty: the compiler's own choice
};

/// Where a program runs.
struct ProcessorFound {
  InstructionSet instructions = 0;
  const char* name = "";  ///< of the processor; may be empty
  const char* host = "";
};

/// The name of an extension as compilers spell it, "avx2"; nullptr past the last one.
const char* instruction_name(int bit);

/// The extensions of the processor that this process runs on, as far as the operating system lets
/// programs use them.
InstructionSet instructions_here();

/// The processor's own name for itself, at most 48 characters; empty if it does not tell.
void processor_name(char (&name)[49]);

/// The widest FINETUNE_ARCH whose programs run on a processor with these extensions.
const char* fitting_arch(InstructionSet instructions);

/// Writes the line that says why a program with these needs cannot run there, in the grammar of all
/// errors and with a newline, cut off after `size` bytes. Returns its length: 0 if it can run.
std::size_t write_refusal(const ProcessorNeeds& needs, const ProcessorFound& found, char* text,
                          std::size_t size);

}  // namespace finetune::core
