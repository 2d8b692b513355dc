// SPDX-License-Identifier: Apache-2.0
// What is written of a run by way of the folder of its model: one file for llama.cpp, or FP8.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "commands.hpp"
#include "core/error.hpp"
#include "export.hpp"

namespace finetune::app {
namespace {

bool is_fp8(const Arguments& arguments) {
  return arguments.dtype.starts_with("fp8");
}

/// A folder that is gone when this is.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

bool is_model(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / "config.json", ignored);
}

/// The model of a folder as what is asked for. `name` is told in it.
void write_of(const std::filesystem::path& folder, const std::string& name,
              const Arguments& arguments, const train::Registry& registry) {
  if (!is_fp8(arguments))
    return export_gguf(folder, {.file = arguments.second, .dtype = arguments.dtype, .name = name},
                       registry);
  Arguments packed = arguments;
  packed.path = folder.string();
  packed.format = arguments.dtype;
  run_quantize(packed, registry);
}

}  // namespace

bool is_by_way(const Arguments& arguments) {
  return is_gguf(arguments.second) || is_fp8(arguments);
}

int export_by_way(const Arguments& arguments, const train::Registry& registry) {
  if (is_gguf(arguments.second))
    require_new({.file = arguments.second, .dtype = arguments.dtype, .name = {}});
  if (is_model(arguments.path)) {
    write_of(arguments.path, "", arguments, registry);
    return core::exit_done;
  }
  const std::filesystem::path out(arguments.second);
  // Not the name that writing it takes.
  const TemporaryFolder folder(fmt::format("{}.whole.tmp.{}", arguments.second, ::getpid()));
  Arguments by_way = arguments;
  by_way.second = folder.path().string();
  // In FP8 are codes of what a folder would have.
  by_way.dtype = is_fp8(arguments) ? "" : "float32";
  by_way.writes_sums = false;
  run_export(by_way, registry);
  if (!is_model(folder.path()))
    core::fail(core::ErrorKind::command_line,
               {"finetune export", arguments.path + " has an adapter, and no model of its own",
                "what is asked for holds a whole model", "Add --merge."});
  write_of(folder.path(), out.stem().string(), arguments, registry);
  return core::exit_done;
}

}  // namespace finetune::app
