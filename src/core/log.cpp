// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"

#include <atomic>
#include <cstdio>
#include <string>

#include "core/text.hpp"

namespace finetune::log {
namespace {

// The one piece of process-wide state: whether this process is the first rank never changes after
// start-up, and passing it to every caller of `info` would say nothing.
std::atomic<bool> root{true};

void write(std::FILE* stream, std::string_view prefix, std::string_view line) {
  // One fwrite a line, so that lines of several ranks do not tear.
  std::string text(prefix);
  text += core::printable(line);
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

}  // namespace

void set_root(bool is_root) {
  root = is_root;
}

bool is_root() {
  return root;
}

void info(std::string_view line) {
  if (root) write(stdout, "", line);
}

void warn(std::string_view line) {
  if (root) write(stderr, "warning: ", line);
}

void error(std::string_view line) {
  write(stderr, "error: ", line);
}

}  // namespace finetune::log
