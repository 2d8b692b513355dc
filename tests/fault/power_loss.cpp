// SPDX-License-Identifier: Apache-2.0
#include "fault/power_loss.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;
using Inode = std::uint64_t;

/// A write or a change of a folder, as long as no sync has covered it.
struct Write {
  std::int64_t noted_at;  ///< position in the log
  std::int64_t offset;
};

struct Entry {
  enum class Kind { made, renamed, replaced, exchanged } kind;
  std::int64_t noted_at;
  Inode folder;  ///< where its name is now
  std::string name;
  Inode from_folder = 0;  ///< of renames
  std::string from_name;
  Inode inode = 0;  ///< of what was made
};

struct Pending {
  std::map<Inode, std::vector<Write>> writes;
  std::vector<Entry> entries;
};

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, '\t');)
    fields.push_back(field);
  return fields;
}

void add(Pending& pending, const std::vector<std::string>& f, std::int64_t position) {
  const auto number = [&](std::size_t i) { return std::stoull(f.at(i)); };
  if (f.at(0) == "W") {
    pending.writes[number(1)].push_back({position, std::stoll(f.at(2))});
  } else if (f.at(0) == "S") {
    const std::int64_t begin = std::stoll(f.at(2));
    std::erase_if(pending.writes[number(1)],
                  [&](const Write& write) { return write.noted_at < begin; });
    std::erase_if(pending.entries, [&](const Entry& entry) {
      return entry.folder == number(1) && entry.noted_at < begin;
    });
  } else if (f.at(0) == "C" || f.at(0) == "M") {
    pending.writes.erase(number(3));  // the number of a file that is gone, used again
    pending.entries.push_back({Entry::Kind::made, position, number(1), f.at(2), 0, "", number(3)});
  } else if (f.at(0) == "R") {
    const Entry::Kind kinds[] = {Entry::Kind::renamed, Entry::Kind::replaced,
                                 Entry::Kind::exchanged};
    pending.entries.push_back(
        {kinds[number(5)], position, number(3), f.at(4), number(1), f.at(2), 0});
  } else {
    throw std::runtime_error("the shim's log has a line " + f.at(0));
  }
}

/// A kill may have torn the last line.
Pending read_log(const fs::path& log) {
  std::ostringstream whole;
  whole << std::ifstream(log, std::ios::binary).rdbuf();
  std::istringstream lines(whole.str().substr(0, whole.str().rfind('\n') + 1));
  Pending pending;
  std::int64_t position = 0;
  for (std::string line; std::getline(lines, line);) {
    add(pending, split(line), position);
    position += static_cast<std::int64_t>(line.size()) + 1;
  }
  if (position == 0) throw std::runtime_error(log.string() + " is empty");
  return pending;
}

Inode inode_of(const fs::path& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

/// Where the folder `inode` is now; empty if nowhere.
fs::path folder_at(const fs::path& root, Inode inode) {
  if (inode_of(root) == inode) return root;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_directory() && inode_of(entry.path()) == inode) return entry.path();
  }
  return {};
}

bool undo(const fs::path& root, const Entry& entry) {
  const fs::path folder = folder_at(root, entry.folder);
  if (folder.empty()) return false;
  const fs::path path = folder / entry.name;
  if (entry.kind == Entry::Kind::made) {
    if (inode_of(path) != entry.inode) return false;
    return fs::remove_all(path) > 0;
  }
  const fs::path from_folder = folder_at(root, entry.from_folder);
  // What the rename replaced is gone, so that it cannot be undone.
  if (from_folder.empty() || entry.kind == Entry::Kind::replaced) return false;
  const unsigned flags = entry.kind == Entry::Kind::exchanged ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  return ::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, (from_folder / entry.from_name).c_str(),
                     flags) == 0;
}

/// Takes away all of `path` from `begin` on; half of the time its length survives.
void lose_from(const fs::path& path, std::int64_t begin, bool keeps_length) {
  const auto size = fs::file_size(path);
  fs::resize_file(path, std::min(size, static_cast<std::uintmax_t>(begin)));
  if (keeps_length) fs::resize_file(path, size);
}

}  // namespace

PowerLoss lose_power(const fs::path& root, const fs::path& log, std::mt19937_64& random) {
  const Pending pending = read_log(log);
  PowerLoss loss;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    const auto found = pending.writes.find(inode_of(entry.path()));
    if (found == pending.writes.end() || found->second.empty()) continue;
    const auto first = std::ranges::min(found->second, {}, &Write::offset);
    lose_from(entry.path(), first.offset, random() % 2 == 0);
    ++loss.files_cut;
  }
  const std::size_t kept = random() % (pending.entries.size() + 1);
  for (std::size_t i = pending.entries.size(); i > kept; --i)
    loss.entries_undone += static_cast<int>(undo(root, pending.entries[i - 1]));
  return loss;
}

}  // namespace finetune::tests
