// SPDX-License-Identifier: Apache-2.0
// quickstart_material FOLDER: writes the quickstart's text, instructions and tokenizer.

#include "core/error.hpp"
#include "core/log.hpp"
#include "generator/material.hpp"

int main(int argc, char** argv) {
  using namespace finetune;
  if (argc != 2) {
    log::error("usage: quickstart_material FOLDER");
    return static_cast<int>(core::ErrorKind::command_line);
  }
  try {
    quickstart::write_material(argv[1]);
    return core::exit_done;
  } catch (const core::Error& error) {
    log::error(error.what());
    return error.exit_code();
  }
}
