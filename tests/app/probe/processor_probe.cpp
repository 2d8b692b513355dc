// SPDX-License-Identifier: Apache-2.0
// With FINETUNE_PROBE_TRAPS the initialisers, of the program and of its library, execute an
// instruction that no processor has: what a program does before main that was built for another
// processor. One source for both: the library has no main.

#ifdef FINETUNE_PROBE_PROGRAM
#include <cstdio>
#endif

namespace {

#ifdef FINETUNE_PROBE_TRAPS
struct Initialised {
  Initialised() { __builtin_trap(); }
} initialised;
#endif

}  // namespace

#ifdef FINETUNE_PROBE_PROGRAM
int name_of_the_library();

int main() {
  std::printf("main was reached, %d\n", name_of_the_library());
}
#else
int name_of_the_library() {
  return 7;
}
#endif
