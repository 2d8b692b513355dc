#pragma once
// SPDX-License-Identifier: Apache-2.0
// A file of prompts or texts, and the file of what a model says of them, line by line.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli.hpp"
#include "comm/communicator.hpp"
#include "core/file.hpp"
#include "core/json.hpp"

namespace finetune::app {

/// A field of a line. Throws: ErrorKind::input.
std::string text_in(const core::Json& record, const char* field, const std::string& where);

/// Refuses --file without -o, -o that is the same file, and several adapters. Throws:
/// ErrorKind::command_line.
void require_one_answer(const Arguments& arguments);

/// What ranks have written of their lines, as lists [[number, line], ...], in the order of numbers.
std::string in_order(const std::vector<std::string>& of_ranks);

/// The file of the answers, which the root writes, and locks as long as this lives.
class AnswerFile {
 public:
  AnswerFile(const comm::Communicator& world, std::filesystem::path file)
      : world_(world), file_(std::move(file)) {}

  /// How many lines of an earlier start are whole answers: their "prompt_hash" is that of
  /// `fingerprints`, one for each line that there is to be. Of the last one what is not whole is
  /// dropped. Collective on the world. Throws: ErrorKind::create for other answers and for files
  /// that are none of answers, which are kept, and where another process writes to it.
  std::int64_t open(const std::vector<std::string>& fingerprints);

  /// Collective on the world. Throws: ErrorKind::io.
  void add(const std::string& lines);

 private:
  std::int64_t open_on_root(const std::vector<std::string>& fingerprints);
  void require_same(const std::string& line, const std::vector<std::string>& fingerprints,
                    std::int64_t index) const;
  /// `rest`, the last line, has no end: refuses what is not the beginning of an answer.
  void require_begun(const std::string& rest, const std::vector<std::string>& fingerprints,
                     std::int64_t index) const;
  [[noreturn]] void refuse_file(std::int64_t index) const;

  comm::Communicator world_;
  std::filesystem::path file_;
  std::optional<core::File> out_;  ///< on the root
  std::int64_t size_bytes_ = 0;    ///< of the whole lines
};

}  // namespace finetune::app
