// SPDX-License-Identifier: Apache-2.0
#include "support/messages_page.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

/// Holds the folder of pages while one of them is written.
class Lock {
 public:
  explicit Lock(const fs::path& folder) : file_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY)) {
    if (file_ < 0 || ::flock(file_, LOCK_EX) != 0)
      throw std::runtime_error(folder.string() + ": cannot be locked");
  }
  ~Lock() { ::close(file_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int file_;
};

}  // namespace

Sections read_page(const fs::path& path) {
  Sections sections;
  std::vector<std::string>* section = nullptr;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('[') && line.ends_with(']')) {
      section = &sections[line.substr(1, line.size() - 2)];
    } else if (section != nullptr && line.starts_with("- ")) {
      section->push_back(line.substr(2));
    } else if (section != nullptr && !section->empty() && line.starts_with("  ")) {
      section->back() += "\n" + line.substr(2);
    }
  }
  return sections;
}

std::string page_text(const Sections& sections) {
  std::string text;
  for (const auto& [name, messages] : sections) {
    if (messages.empty()) continue;
    text += (text.empty() ? "[" : "\n[") + name + "]\n";
    for (const std::string& message : messages) {
      text += "- ";
      for (const char c : message)
        text += c == '\n' ? "\n  " : std::string(1, c);
      text += '\n';
    }
  }
  return text;
}

std::string as_on_page(std::string_view message) {
  std::string text;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') text.erase(text.find_last_not_of(' ') + 1);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f)
      text += fmt::format("\\x{:02x}", byte);
    else
      text += c;
  }
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

void merge_page(const fs::path& path, const Sections& provoked, const std::set<std::string>& all,
                const std::set<std::string>& done) {
  fs::create_directories(path.parent_path());
  // Held until the new page is there.
  const Lock lock(path.parent_path());
  Sections merged;
  for (const auto& [name, messages] : read_page(path))
    if (all.contains(name) && !done.contains(name)) merged[name] = messages;
  for (const auto& [name, messages] : provoked)
    if (done.contains(name)) merged[name] = messages;
  const std::string text = page_text(merged);
  if (text.empty()) {
    fs::remove(path);
    return;
  }
  const fs::path fresh = path.string() + ".new";
  std::ofstream(fresh) << text;
  fs::rename(fresh, path);
}

}  // namespace finetune::tests
