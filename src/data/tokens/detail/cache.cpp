// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/cache.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <system_error>
#include <utility>
#include <vector>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file_lock.hpp"
#include "core/host.hpp"
#include "core/log.hpp"
#include "data/records/records.hpp"
#include "data/tokens/detail/file_digest.hpp"
#include "data/tokens/detail/unfinished.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* temporary_mark = ".h5.tmp-";
/// The key is part of a file's description, which has little room.
constexpr std::size_t longest_settings = 4096;

/// What the first rank of each node sees at `path`; the same on all ranks.
enum class Seen { nothing, damaged, file };

struct Sight {
  Seen seen = Seen::nothing;
  std::string text;  ///< the file's checksum, or what is wrong with it
};

Sight look(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  try {
    const CacheFile file = CacheFile::open(path);
    return {Seen::file, content_fingerprint(file.arrays, file.digests)};
  } catch (const std::exception& damage) {
    return {Seen::damaged, damage.what()};
  }
}

/// Whether all nodes see the same sound file. Collective on the world.
bool all_see_it(const DataRanks& ranks, const fs::path& path) {
  std::string own;
  if (ranks.node.is_root()) {
    const Sight sight = look(path);
    own = std::to_string(static_cast<int>(sight.seen)) + sight.text;
  }
  std::string first;
  bool all_same = true;
  for (const std::string& text : ranks.world.all_gather_text(own)) {
    if (text.empty()) continue;
    if (text[0] == '1') log::warn(fmt::format("the token cache is rebuilt: {}", text.substr(1)));
    if (first.empty()) first = text;
    all_same = all_same && text == first && text[0] == '2';
  }
  return all_same;
}

/// One behind each text, which has a token at least.
bool has_labels_where_they_belong(std::span<const PackedToken> sample, bool is_pair) {
  const auto is_label = [](PackedToken token) { return token.trained(); };
  if (std::ranges::count_if(sample, is_label) != (is_pair ? 2 : 1) || !sample.back().trained())
    return false;
  const auto first = std::ranges::find_if(sample, is_label) - sample.begin();
  return first > 0 && (!is_pair || first + 2 < std::ssize(sample));
}

/// That samples [first, last) lie inside the tokens, and their tokens inside the vocabulary. The
/// checksums are no secret, so they do not keep out who means harm.
void check_values(const fs::path& path, const TokenArrays& arrays, std::int64_t first,
                  std::int64_t last, const DatasetOptions& options) {
  const auto fail = [&](const char* problem) {
    core::fail(core::ErrorKind::input,
               {path.string(), problem, "", "Remove it; it is rebuilt from the data."});
  };
  for (std::int64_t i = first; i < last; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t begin = arrays.bounds[at];
    const std::int64_t end = arrays.bounds[at + 1] + arrays.overlap;
    if (begin < 0 || end <= begin || end > std::ssize(arrays.tokens))
      fail("has a sample outside its tokens");
    const auto sample = arrays.sample(i);
    const auto is_outside = [&](PackedToken token) {
      const bool is_label = options.num_labels > 0 && token.trained();
      return token.id() >= (is_label ? options.num_labels : options.vocab_size);
    };
    if (std::ranges::any_of(sample, is_outside)) fail("has a token outside the model's vocabulary");
    // A label in the midst of a text would be read as a token.
    if (options.num_labels > 0 && !has_labels_where_they_belong(sample, options.has_pairs))
      fail("has a label inside of a text");
    if (arrays.targets[at] != num_targets(sample)) fail("counts trained tokens that are not there");
  }
}

/// Nobody is to wait for longer than that in a queue and find nothing.
bool is_forgotten(const fs::path& path) {
  constexpr std::int64_t kept_s = 30 * 24 * 3600;
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && std::time(nullptr) - status.st_mtim.tv_sec > kept_s;
}

bool is_left_over(const fs::path& path) {
  constexpr std::int64_t while_locks_work_s = 600;
  constexpr std::int64_t without_locks_s = 24 * 3600;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  const std::int64_t age_s = std::time(nullptr) - status.st_mtim.tv_sec;
  if (age_s < while_locks_work_s) return false;
  const core::File file(path, core::File::Mode::write_existing, core::ErrorKind::io);
  const auto is_locked = core::is_locked_by_another(file);
  return is_locked ? !*is_locked : age_s >= without_locks_s;
}

}  // namespace

core::Json describe_key(const DataRanks& ranks, const SampleSource& source, Layout layout,
                        const DatasetOptions& options, const CacheOptions& cache) {
  const auto files = source.files();
  std::vector<std::string> contents = digest_files(ranks, files, cache.folder, !cache.is_read_only);
  // The same bytes are records under one name and a document under another.
  for (std::size_t i = 0; i < contents.size(); ++i)
    contents[i] += fmt::format(" {}", record_ending(files[i]));
  const std::string settings = source.settings();
  return {
      {"version", cache_version},
      {"block_bytes", cache_block_bytes},
      {"num_files", contents.size()},
      {"files", core::fingerprint(fmt::format("{}", fmt::join(contents, "\n")))},
      {"settings", settings.size() <= longest_settings ? settings : core::fingerprint(settings)},
      {"layout", layout == Layout::separate ? "separate" : "continuous"},
      {"max_seq_length", options.max_seq_length},
      {"vocab_size", options.vocab_size},
      {"num_labels", options.num_labels},
      {"has_pairs", options.has_pairs},
      {"on_overlong", static_cast<int>(options.on_overlong)},
      {"on_masked", static_cast<int>(options.on_masked)}};
}

fs::path cache_path(const fs::path& folder, const core::Json& key) {
  return folder / (core::fingerprint(key.dump()) + ".h5");
}

std::optional<CacheFile> find_cached(const DataRanks& ranks, const fs::path& path,
                                     const DatasetOptions& options) {
  if (!all_see_it(ranks, path)) return std::nullopt;
  const comm::Communicator& readers = is_same_everywhere(ranks, path) ? ranks.world : ranks.node;
  try {
    return comm::agree(ranks.world, [&] {
      CacheFile file = CacheFile::open(path);
      const auto [first, last] = share_of(std::ssize(file.digests), readers);
      file.verify(path, first, last);
      const auto [begin, end] = share_of(file.layout.num_samples, readers);
      check_values(path, file.arrays, begin, end, options);
      return file;
    });
  } catch (const comm::AgreedError& error) {
    log::warn(fmt::format("the token cache is rebuilt: {}", error.what()));
    return std::nullopt;
  }
}

NewCacheFile::NewCacheFile(const DataRanks& ranks, fs::path target)
    : ranks_(ranks), target_(std::move(target)) {
  comm::agree_all(ranks.world, [&] {
    if (!ranks_.world.is_root()) return;
    remove_leftovers(target_.parent_path());
    path_ =
        target_.parent_path() / fmt::format("{}{}{}-{}-{}", target_.stem().string(), temporary_mark,
                                            core::host_name(), ::getpid(), std::time(nullptr));
    file_.emplace(path_, core::File::Mode::create_new, core::ErrorKind::create);
    // Without locks the file's age tells whether somebody still writes it.
    (void)core::try_lock(file_->descriptor(), core::Lock::exclusive);
  });
  // Each node looks into the folder of that name which it sees.
  path_ = target_.parent_path() / ranks.world.broadcast_text(path_.filename().string());
  try {
    comm::agree_all(ranks.world, [&] {
      std::error_code ignored;
      if (fs::exists(path_, ignored)) return;
      core::fail(core::ErrorKind::create,
                 {target_.parent_path().string(), "is not the same folder on " + core::host_name(),
                  "every node must see the token cache",
                  "Set data.cache_dir to a folder on a shared file system."});
    });
  } catch (...) {
    std::error_code ignored;
    if (file_) fs::remove(path_, ignored);
    throw;
  }
}

NewCacheFile::~NewCacheFile() {
  std::error_code ignored;
  if (file_) fs::remove(path_, ignored);
}

void NewCacheFile::publish() {
  comm::agree_all(ranks_.world, [&] {
    if (!file_) return;
    core::fault::hit("data.publish", path_.native());
    if (::rename(path_.c_str(), target_.c_str()) != 0) {
      core::fail(core::ErrorKind::io, {target_.string(), "cannot be renamed into place",
                                       core::system_reason(), "Look at the file system."});
    }
    core::sync_folder(target_.parent_path());
    file_.reset();
  });
}

void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const bool is_temporary =
        i->path().filename().string().find(temporary_mark) != std::string::npos;
    if (!is_temporary && !is_unfinished(i->path())) continue;
    try {
      std::error_code ignored;
      if (is_temporary ? is_left_over(i->path()) : is_forgotten(i->path()))
        fs::remove(i->path(), ignored);
    } catch (const core::Error&) {
      continue;  // another user's, or gone
    }
  }
}

}  // namespace finetune::data
