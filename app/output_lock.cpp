// SPDX-License-Identifier: Apache-2.0
#include "output_lock.hpp"

#include <fmt/format.h>

#include <system_error>

#include "core/error.hpp"
#include "core/file_lock.hpp"
#include "core/log.hpp"

namespace finetune::app {

namespace fs = std::filesystem;

void lock_output(const core::File& file, const fs::path& output) {
  const core::Locked locked = core::try_lock(file.descriptor(), core::Lock::exclusive);
  if (locked == core::Locked::held_by_another)
    core::fail(core::ErrorKind::create, {output.string(), "is in use by another finetune",
                                         "two that write to it would mix their answers",
                                         "Wait until it ends, or name another output by -o."});
  if (locked == core::Locked::impossible)
    log::warn(fmt::format("{} cannot be locked ({}): see to it that no second command writes to it",
                          output.string(), core::system_reason()));
}

core::File locked_folder(const fs::path& folder) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem)
    core::fail(core::ErrorKind::create, {folder.string(), "cannot be created", problem.message(),
                                         "Name another folder for the results."});
  // Not .lock, which is how the output of a run is known.
  core::File file(folder / ".evaluate.lock", core::File::Mode::create_or_write,
                  core::ErrorKind::create);
  lock_output(file, folder);
  return file;
}

}  // namespace finetune::app
