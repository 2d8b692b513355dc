// SPDX-License-Identifier: Apache-2.0
#include "model_identity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <system_error>

#include "comm/agree.hpp"
#include "core/hash.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;

/// Their contents decide: a copy with another time is the same.
bool is_small(const fs::path& file) {
  constexpr std::array names = {"config.json",    "generation_config.json", "adapter_config.json",
                                "tokenizer.json", "tokenizer_config.json",  "chat_template.jinja"};
  return std::ranges::find(names, file.filename().string()) != names.end();
}

/// To read them all would take minutes.
bool holds_weights(const fs::path& file) {
  const fs::path ending = file.extension();
  return ending == ".safetensors" || ending == ".gguf" || ending == ".bin";
}

std::string identity_of_file(const fs::path& file) {
  if (is_small(file))
    return fmt::format("{} {}", file.filename().string(), core::file_fingerprint(file));
  std::error_code ignored;
  const auto time = fs::last_write_time(file, ignored).time_since_epoch();
  return fmt::format("{} {} {}", file.filename().string(), fs::file_size(file, ignored),
                     std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

std::string identity_of_folder(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code problem;
  for (fs::directory_iterator i(folder, problem), end; !problem && i != end; i.increment(problem)) {
    std::error_code ignored;
    const fs::path& file = i->path();
    if ((is_small(file) || holds_weights(file)) && fs::is_regular_file(file, ignored))
      files.push_back(identity_of_file(file));
  }
  std::ranges::sort(files);
  std::string all;
  for (const std::string& file : files)
    all += file + "\n";
  return all;
}

}  // namespace

std::string identity_of_models(const comm::Communicator& world,
                               const std::vector<fs::path>& folders) {
  return world.broadcast_text(comm::agree(world, [&] {
    std::string all;
    if (!world.is_root()) return all;
    for (const fs::path& folder : folders)
      all += (folder.empty() ? "" : identity_of_folder(folder)) + "\n";
    return core::fingerprint(all);
  }));
}

}  // namespace finetune::app
