#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an evaluation has found out so far, so that one that was stopped goes on.

#include <functional>
#include <map>
#include <string>

#include "core/json.hpp"

namespace finetune::tasks {

/// Every rank has the same, and one writes it down.
class Progress {
 public:
  using Write = std::function<void(const std::string& line)>;

  /// `lines`: what was written, of an evaluation of this `fingerprint` or of another one, which is
  /// forgotten. A last line that was cut off is no line. `write`: gets lines with their ends; none:
  /// somebody else writes.
  Progress(const std::string& lines, const std::string& fingerprint, Write write);

  /// Whether `lines` were of this evaluation: else the file begins anew.
  bool continues() const { return continues_; }
  std::size_t size() const { return known_.size(); }

  /// nullptr: it is not known.
  const core::Json* find(const std::string& key) const;
  void add(const std::string& key, core::Json value);

 private:
  Write write_;
  bool continues_ = false;
  std::map<std::string, core::Json> known_;
};

}  // namespace finetune::tasks
