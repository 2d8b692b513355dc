// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/installed_gpus.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

namespace finetune::comm {
namespace {

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

/// "nvidia0", not "nvidiactl".
bool is_gpu(const std::string& name) {
  const std::string prefix = "nvidia";
  return name.size() > prefix.size() && name.starts_with(prefix) &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                     is_digit);
}

/// The first word of a line that is numbers and at least one dot.
std::string version_in(const std::string& line) {
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const bool is_version =
        is_digit(word.front()) && word.find('.') != std::string::npos &&
        std::ranges::all_of(word, [](char c) { return is_digit(c) || c == '.'; });
    if (is_version) return word;
  }
  return "";
}

}  // namespace

InstalledGpus installed_gpus(const std::filesystem::path& root) {
  InstalledGpus found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root / "dev", ignored))
    if (is_gpu(entry.path().filename().string())) found.devices.push_back(entry.path());
  std::ranges::sort(found.devices);
  std::ifstream file(root / "proc/driver/nvidia/version");
  std::string line;
  if (std::getline(file, line)) found.driver = version_in(line);
  return found;
}

OpenGpus open_gpus(std::span<const std::filesystem::path> devices,
                   const std::function<int(const std::filesystem::path&)>& open) {
  OpenGpus result;
  for (const auto& device : devices) {
    const int error = open(device);
    if (error == EPERM || error == EACCES) {
      ++result.denied;
    } else if (error != 0) {
      result.broken.push_back(device.string() + ": " + std::generic_category().message(error));
    }
  }
  return result;
}

OpenGpus open_gpus(std::span<const std::filesystem::path> devices) {
  return open_gpus(devices, [](const std::filesystem::path& device) {
    const int descriptor = ::open(device.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return errno;
    ::close(descriptor);
    return 0;
  });
}

}  // namespace finetune::comm
