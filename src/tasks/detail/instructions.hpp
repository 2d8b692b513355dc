#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a prompt asks of the form of its answer, and whether the answer has it.
// Source: Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models" (arXiv
// 2311.07911); ids and arguments are those of its published data.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace finetune::tasks {

class Instructions {
 public:
  /// Reads {"instructions": [id, ...], "kwargs": [{...}, ...]}; arguments that are null are not
  /// there. Which language an answer is in is not judged: such instructions are left out. Throws:
  /// ErrorKind::input beginning with `where` for an id that is not known, and for arguments that
  /// are missing or of another kind.
  static Instructions read(const std::string& json, const std::string& where);

  bool empty() const { return checks_.empty(); }
  std::size_t size() const { return checks_.size(); }

  /// Of each, 1 if `answer` follows it, else 0.
  std::vector<double> strict(const std::string& answer) const;
  /// The same where also the answer without its first line, its last one or both, and all of these
  /// without asterisks, may follow it.
  std::vector<double> loose(const std::string& answer) const;

 private:
  std::vector<std::function<bool(const std::string&)>> checks_;
};

}  // namespace finetune::tasks
