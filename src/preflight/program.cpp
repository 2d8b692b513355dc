// SPDX-License-Identifier: Apache-2.0
#include "preflight/program.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "core/hash.hpp"
#include "preflight/files.hpp"
#include "preflight/report.hpp"

namespace finetune::preflight {
namespace {

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

/// The build id in a segment of notes, in hex; nothing if there is none.
std::string build_id(const char* note, std::size_t bytes) {
  const auto padded = [](std::size_t size) { return (size + 3) / 4 * 4; };
  for (std::size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note + at, sizeof(header));
    const std::size_t name = at + sizeof(header);
    const std::size_t description = name + padded(header.n_namesz);
    const std::size_t end = description + padded(header.n_descsz);
    if (end > bytes) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == sizeof(ELF_NOTE_GNU) &&
        std::memcmp(note + name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) == 0)
      return to_hex({note + description, header.n_descsz});
    at = end;
  }
  return {};
}

int add_library(dl_phdr_info* info, std::size_t, void* libraries) {
  std::string line = std::filesystem::path(info->dlpi_name).filename().string();
  // The kernel's own, and the program itself, which has a hash of its own.
  if (line.empty() || line.starts_with("linux-vdso")) return 0;
  line += ' ';
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_NOTE)
      line += build_id(reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr),
                       segment.p_memsz);
  }
  static_cast<std::set<std::string>*>(libraries)->insert(line);
  return 0;
}

}  // namespace

std::string program_hash() {
  try {
    return sampled_hash("/proc/self/exe", whole_file_bytes);
  } catch (const std::exception&) {
    return {};
  }
}

std::vector<std::string> libraries() {
  std::set<std::string> found;
  ::dl_iterate_phdr(add_library, &found);
  return {found.begin(), found.end()};
}

std::string libraries_hash() {
  std::string text;
  for (const std::string& library : libraries())
    text += library + "\n";
  return core::fingerprint(text);
}

std::string library_differences(const std::vector<std::string>& here,
                                const std::vector<std::string>& there) {
  const auto by_name = [](const std::vector<std::string>& lines) {
    std::map<std::string, std::set<std::string>> builds;
    for (const std::string& line : lines) {
      const std::size_t space = std::min(line.rfind(' '), line.size());
      builds[line.substr(0, space)].insert(line.substr(space));
    }
    return builds;
  };
  const auto own = by_name(here), usual = by_name(there);
  std::vector<std::string> differences;
  for (const auto& [name, builds] : own) {
    const auto other = usual.find(name);
    if (other == usual.end()) {
      differences.push_back(name + " only here");
    } else if (other->second != builds) {
      differences.push_back(name + " in another build");
    }
  }
  for (const auto& [name, builds] : usual)
    if (!own.contains(name)) differences.push_back(name + " only there");
  return differences.empty() ? "" : some_of(differences);
}

}  // namespace finetune::preflight
