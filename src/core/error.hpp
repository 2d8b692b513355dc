#pragma once
// SPDX-License-Identifier: Apache-2.0
// The one exception type of the program, its kinds and their exit codes.

#include <stdexcept>
#include <string>

namespace finetune::core {

/// What went wrong, as far as the caller of the program is concerned. The value is the exit code
/// (sysexits.h where it has a fitting one).
enum class ErrorKind : int {
  command_line = 64,  ///< unusable command line
  input = 65,         ///< model, data or checkpoint cannot be used
  environment = 69,   ///< ranks, device or a library are missing or do not fit
  bug = 70,           ///< an assumption of this program does not hold
  numbers = 71,       ///< loss or gradients stopped being finite
  create = 73,        ///< an output cannot be created
  io = 74,            ///< reading or writing failed, or a rank fell silent
  deck = 78,          ///< the deck is wrong, or the ranks disagree about it
  no_progress = 79,   ///< start after start has ended without a new checkpoint: do not submit again
};

inline constexpr int exit_done = 0;
/// Stopped early with a new checkpoint: submit the same command again.
inline constexpr int exit_resubmit = 75;
/// Stopped early without a new checkpoint, but there is an older one: submit again.
inline constexpr int exit_resubmit_older = 76;

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

/// The four parts of every message a user reads:
/// `<where>: <problem> (<why it is a problem>). <what to do>`.
struct Message {
  std::string where;    ///< file:line, tensor, rank ...; may be empty
  std::string problem;  ///< what was found
  std::string why;      ///< why it cannot be used; may be empty
  std::string remedy;   ///< a sentence saying what to do, with its full stop; may be empty
};

std::string to_string(const Message& message);

[[noreturn]] void fail(ErrorKind kind, const Message& message);

/// Throws ErrorKind::bug naming `what` if `condition` does not hold. For assumptions about our own
/// code, never for user input.
void check(bool condition, const char* what);

}  // namespace finetune::core
