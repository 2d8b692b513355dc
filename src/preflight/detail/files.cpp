// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <system_error>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/file_identity.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "preflight/detail/facts.hpp"

namespace finetune::preflight {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SeenFile, path, size_bytes, identity, hash)

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t block_bytes = 64 << 10;
constexpr std::int64_t num_blocks = 32;
/// The quick check reads less of files that nodes have copies of.
constexpr std::int64_t quick_whole_bytes = 1 << 20;

void add_file(const fs::path& path, std::vector<SeenFile>& files) {
  SeenFile& file = files.emplace_back();
  file.path = path.string();
  file.identity = core::file_identity(path);
  std::error_code failed;
  const auto size_bytes = fs::file_size(path, failed);
  if (!failed) file.size_bytes = static_cast<std::int64_t>(size_bytes);
}

std::string to_text(const std::vector<SeenFile>& files) {
  return core::Json(files).dump(-1, ' ', false, core::Json::error_handler_t::replace);
}

std::vector<SeenFile> seen_from_text(const std::string& text) {
  return core::Json::parse(text).get<std::vector<SeenFile>>();
}

template <typename Field>
std::string fingerprint(const std::vector<SeenFile>& files, const Field& field) {
  std::string text;
  for (const SeenFile& file : files)
    text += fmt::format("{} {} {}\n", file.path, file.size_bytes, field(file));
  return core::fingerprint(text);
}

void hash_all(std::vector<SeenFile>& files, std::int64_t whole_bytes) {
  for (SeenFile& file : files) {
    try {
      file.hash = sampled_hash(file.path, whole_bytes);
    } catch (const std::exception&) {
      file.size_bytes = -1;
    }
  }
}

std::string size_of(const SeenFile& file) {
  return core::with_commas(file.size_bytes) + " bytes";
}

/// "12 files, 140 GiB"
std::string amount(const std::vector<SeenFile>& files) {
  std::int64_t bytes = 0;
  for (const SeenFile& file : files)
    bytes += std::max<std::int64_t>(0, file.size_bytes);
  return fmt::format("{} model and data file{}, {}", files.size(), files.size() == 1 ? "" : "s",
                     core::human_bytes(bytes));
}

/// Hands rank 0 what the odd nodes see, and what a usual one does.
void tell_differences(const comm::Communicator& leaders, const std::vector<std::string>& names,
                      const Minority& odd, const std::vector<SeenFile>& own, Finding& finding) {
  const auto rank = static_cast<std::size_t>(leaders.rank());
  const auto first_odd = std::span(odd.odd).first(std::min<std::size_t>(odd.odd.size(), most_told));
  const bool tells = rank == odd.usual || std::ranges::find(first_odd, rank) != first_odd.end();
  const auto texts = leaders.gather_text(tells ? to_text(own) : "");
  if (!leaders.is_root()) return;
  const auto usual = seen_from_text(texts[odd.usual]);
  for (const std::size_t node : first_odd) {
    auto problems = compare(usual, names[odd.usual], seen_from_text(texts[node]), names[node]);
    std::ranges::move(problems, std::back_inserter(finding.problems));
  }
  shorten(finding);
  if (odd.odd.size() > first_odd.size()) {
    finding.fail({"files", fmt::format("{} nodes differ from {}", odd.odd.size(), names[odd.usual]),
                  "the first are named above", "Give all nodes the same files."});
  }
}

/// Which nodes have another `value`; the same answer on every rank.
Minority compare_texts(const comm::Communicator& leaders, const std::string& value) {
  std::vector<std::string> values = leaders.gather_text(value);
  std::string packed;
  if (leaders.is_root()) packed = core::Json(values).dump();
  // All need to know who is odd; at a hash a node that is a short text.
  return odd_ones(
      core::Json::parse(leaders.broadcast_text(packed)).get<std::vector<std::string>>());
}

}  // namespace

std::string sampled_hash(const fs::path& path, std::int64_t whole_bytes) {
  const core::File file(path, core::File::Mode::read);
  const std::int64_t size = file.size_bytes();
  const bool is_whole = size <= std::max(whole_bytes, num_blocks * block_bytes);
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(is_whole ? size : num_blocks * block_bytes));
  if (is_whole) {
    file.read_at(0, bytes);
  } else {
    const std::int64_t last = size - block_bytes;
    for (std::int64_t i = 0; i < num_blocks; ++i) {
      // Parts of the quotient first: the product may exceed 64 bits.
      const std::int64_t begin =
          last / (num_blocks - 1) * i + last % (num_blocks - 1) * i / (num_blocks - 1);
      file.read_at(begin, std::span(bytes).subspan(static_cast<std::size_t>(i * block_bytes),
                                                   static_cast<std::size_t>(block_bytes)));
    }
  }
  return core::fingerprint(fmt::format("{} {}", size, core::fingerprint(bytes)));
}

std::vector<SeenFile> list_files(const std::vector<fs::path>& paths) {
  std::vector<SeenFile> files;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      add_file(path, files);
      continue;
    }
    std::vector<fs::path> entries;
    for (fs::directory_iterator i(path, error), end; !error && i != end; i.increment(error)) {
      std::error_code ignored;
      if (!i->path().filename().string().starts_with(".") && i->is_regular_file(ignored))
        entries.push_back(i->path());
    }
    std::sort(entries.begin(), entries.end());
    for (const fs::path& entry : entries)
      add_file(entry, files);
  }
  return files;
}

std::vector<CheckProblem> compare(const std::vector<SeenFile>& usual, const std::string& usual_name,
                                  const std::vector<SeenFile>& odd, const std::string& odd_name) {
  std::vector<CheckProblem> problems;
  const auto add = [&](const SeenFile& file, const std::string& problem, const std::string& why) {
    problems.push_back(
        {Grade::bad,
         {fmt::format("{}: {}", odd_name, core::one_line(file.path)), problem, why,
          "Copy it to this node again, or use a file system that all nodes share."}});
  };
  std::map<std::string, const SeenFile*> theirs;
  for (const SeenFile& file : odd)
    theirs[file.path] = &file;
  for (const SeenFile& file : usual) {
    const auto found = theirs.find(file.path);
    const SeenFile* other = found == theirs.end() ? nullptr : found->second;
    if (found != theirs.end()) theirs.erase(found);
    if (file.size_bytes < 0 && (other == nullptr || other->size_bytes < 0)) continue;
    if (other == nullptr || other->size_bytes < 0) {
      add(file, "cannot be read there", fmt::format("{} has {}", usual_name, size_of(file)));
    } else if (other->size_bytes != file.size_bytes) {
      add(file, fmt::format("has {}", size_of(*other)),
          fmt::format("{} has {}", usual_name, size_of(file)));
    } else if (other->hash != file.hash) {
      add(file, "has another content",
          fmt::format("its hash is {}, on {} it is {}", other->hash, usual_name, file.hash));
    }
  }
  for (const auto& [path, file] : theirs)
    add(*file, "is there", fmt::format("{} has no such file", usual_name));
  return problems;
}

Finding check_files(const comm::Communicator& leaders, const std::vector<std::string>& names,
                    std::vector<fs::path> paths, bool is_quick) {
  // A node on which something is missing might look for it elsewhere.
  core::Json roots = core::Json::array();
  for (const fs::path& path : paths)
    roots.push_back(path.string());
  roots = core::Json::parse(
      leaders.broadcast_text(roots.dump(-1, ' ', false, core::Json::error_handler_t::replace)));
  paths.clear();
  for (const core::Json& path : roots)
    paths.emplace_back(path.get<std::string>());

  std::vector<SeenFile> files = list_files(paths);
  const bool is_shared =
      compare_texts(leaders, fingerprint(files, [](const SeenFile& file) { return file.identity; }))
          .odd.empty();
  Finding finding{.subject = "files", .text = amount(files)};
  if (is_shared && (is_quick || leaders.size() == 1)) {
    if (leaders.size() > 1) finding.text += ", one and the same on all nodes";
    return finding;
  }
  hash_all(files, is_quick ? quick_whole_bytes : whole_file_bytes);
  const auto content = [](const SeenFile& file) { return file.hash; };
  const Minority odd = compare_texts(leaders, fingerprint(files, content));
  finding.text +=
      odd.odd.empty()
          ? fmt::format(
                ", the same on {} nodes (hashes; of files beyond {}, of blocks "
                "at the same positions)",
                names.size(),
                core::human_bytes(is_quick ? num_blocks * block_bytes : whole_file_bytes))
          : fmt::format(", not the same on {} of {} nodes", odd.odd.size(), names.size());
  if (!odd.odd.empty()) tell_differences(leaders, names, odd, files, finding);
  return finding;
}

}  // namespace finetune::preflight
