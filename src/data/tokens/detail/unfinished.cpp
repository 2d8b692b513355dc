// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/unfinished.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <iterator>
#include <system_error>
#include <type_traits>
#include <utility>

#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/hash.hpp"
#include "core/host.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* mark = ".unfinished-";
constexpr std::uint64_t block_magic = 0x31304b4c42544e46;  // also tells the order of bytes
constexpr std::int64_t block_bytes = std::int64_t{1} << 20;

struct BlockHead {
  std::uint64_t magic;
  std::int64_t first;
  std::int64_t count;
  std::int64_t bytes;
  std::uint64_t crc;
};

struct SampleHead {
  core::Digest digest;
  std::uint32_t oddities;
  std::uint32_t has_turns;
  std::int64_t num_answers;
  std::int64_t num_tokens;
};

template <typename T>
void append(std::vector<std::byte>& bytes, std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto raw = std::as_bytes(values);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

/// Takes values off the front of what a file holds, which may be anything.
class Front {
 public:
  explicit Front(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  bool take(std::span<T> values) {
    if (values.size_bytes() > bytes_.size()) return false;
    std::ranges::copy(bytes_.first(values.size_bytes()), std::as_writable_bytes(values).begin());
    bytes_ = bytes_.subspan(values.size_bytes());
    return true;
  }
  template <typename T>
  bool take(std::int64_t count, std::vector<T>& values) {
    if (count < 0 || count > std::ssize(bytes_) / static_cast<std::int64_t>(sizeof(T)))
      return false;
    values.resize(static_cast<std::size_t>(count));
    return take(std::span(values));
  }

 private:
  std::span<const std::byte> bytes_;
};

bool is_allowed(const Made& made, const DatasetOptions& options) {
  return std::ranges::all_of(made.tokens, [&](PackedToken token) {
    const bool is_label = options.num_labels > 0 && token.trained();
    return token.id() < (is_label ? options.num_labels : options.vocab_size);
  });
}

std::optional<Made> read_sample(Front& front, const DatasetOptions& options) {
  SampleHead head = {};
  Made made;
  if (!front.take(std::span(&head, 1)) || !front.take(head.num_answers, made.answers) ||
      !front.take(head.num_tokens, made.tokens) || !is_allowed(made, options))
    return std::nullopt;
  made.digest = head.digest;
  made.oddities = head.oddities;
  made.has_turns = head.has_turns != 0;
  return made;
}

template <typename F>
void each_file(const fs::path& target, const F& f) {
  const std::string begin = target.stem().string() + mark;
  std::error_code error;
  for (fs::directory_iterator i(target.parent_path(), error), end; !error && i != end;
       i.increment(error))
    if (i->path().filename().string().starts_with(begin)) f(i->path());
}

}  // namespace

UnfinishedReader::UnfinishedReader(const fs::path& target, Share samples) {
  std::vector<fs::path> paths;
  each_file(target, [&](const fs::path& path) { paths.push_back(path); });
  std::ranges::sort(paths);
  for (const fs::path& path : paths) {
    try {
      add_blocks(path, samples);
    } catch (const core::Error&) {
      // Another user's, or a disk that cannot be read: tokenised again.
    }
  }
}

void UnfinishedReader::add_blocks(const fs::path& path, Share samples) {
  files_.emplace_back(path, core::File::Mode::read);
  const core::File& file = files_.back();
  const std::int64_t size = file.size_bytes();
  constexpr auto head_bytes = static_cast<std::int64_t>(sizeof(BlockHead));
  const std::size_t num_before = blocks_.size();
  for (std::int64_t at = 0; at + head_bytes <= size;) {
    BlockHead head = {};
    file.read_at(at, std::as_writable_bytes(std::span(&head, 1)));
    at += head_bytes;
    const bool is_sound = head.magic == block_magic && head.first >= 0 && head.count > 0 &&
                          head.bytes >= 0 && head.bytes <= size - at;
    if (!is_sound) break;
    if (head.first < samples.last && head.first + head.count > samples.first)
      blocks_.insert(
          {head.first,
           {head.count, files_.size() - 1, at, head.bytes, static_cast<std::uint32_t>(head.crc)}});
    at += head.bytes;
  }
  // Many ranks leave many files, and a process may not have so many open.
  if (blocks_.size() == num_before) files_.pop_back();
}

std::vector<Made> UnfinishedReader::take(std::int64_t i, std::int64_t end,
                                         const DatasetOptions& options) {
  const auto behind = blocks_.upper_bound(i);
  if (behind == blocks_.begin()) return {};
  const auto found = std::prev(behind);
  const auto& [first, block] = *found;
  if (i - first >= block.count) return {};
  std::vector<Made> samples;
  try {
    std::vector<std::byte> bytes(static_cast<std::size_t>(block.bytes));
    files_[block.file].read_at(block.offset, bytes);
    Front front(bytes);
    bool is_sound = core::crc32c(bytes) == block.crc;
    for (std::int64_t k = first; is_sound && k < std::min(end, first + block.count); ++k) {
      auto sample = read_sample(front, options);
      is_sound = sample.has_value();
      if (is_sound && k >= i) samples.push_back(*std::move(sample));
    }
    if (is_sound) return samples;
  } catch (const core::Error&) {
    // Tokenised again.
  }
  blocks_.erase(found);
  return {};
}

std::optional<std::int64_t> UnfinishedReader::next(std::int64_t i) const {
  const auto found = blocks_.upper_bound(i);
  return found == blocks_.end() ? std::nullopt : std::optional(found->first);
}

void UnfinishedWriter::add(std::int64_t first, std::span<const Made> samples) {
  if (target_.empty()) return;
  const bool is_begun = num_tokens_ >= after_tokens_;
  for (const Made& made : samples)
    num_tokens_ += std::ssize(made.tokens);
  if (!is_begun) return;
  if (first != first_ + count_) flush();
  if (count_ == 0) first_ = first;
  for (const Made& made : samples) {
    const SampleHead head{made.digest, made.oddities, made.has_turns ? 1U : 0U,
                          std::ssize(made.answers), std::ssize(made.tokens)};
    append(waiting_, std::span(&head, 1));
    append(waiting_, std::span(made.answers));
    append(waiting_, std::span(made.tokens));
    ++count_;
  }
  if (std::ssize(waiting_) >= block_bytes) flush();
}

void UnfinishedWriter::flush() {
  if (count_ == 0) return;
  const BlockHead head{block_magic, first_, count_, std::ssize(waiting_), core::crc32c(waiting_)};
  try {
    core::fault::hit("data.keep");
    if (!file_) open();
    std::vector<std::byte> block;
    block.reserve(sizeof head + waiting_.size());
    append(block, std::span(&head, 1));
    append(block, std::span<const std::byte>(waiting_));
    file_->write_at(size_bytes_, block);
    size_bytes_ += std::ssize(block);
    num_kept_ += count_;
  } catch (const core::Error&) {
    target_.clear();
    num_kept_ = 0;
    std::error_code ignored;
    if (file_) fs::remove(file_->path(), ignored);
    file_.reset();
  }
  count_ = 0;
  waiting_.clear();
}

void UnfinishedWriter::open() {
  // Another start may have had this process's number.
  static std::atomic<int> count = 0;
  const auto path = target_.parent_path() / fmt::format("{}{}{}-{}-{}-{}", target_.stem().string(),
                                                        mark, core::host_name(), ::getpid(),
                                                        std::time(nullptr), count++);
  file_.emplace(path, core::File::Mode::create_new, core::ErrorKind::create);
}

void remove_unfinished(const fs::path& target) {
  std::vector<fs::path> paths;
  each_file(target, [&](const fs::path& path) { paths.push_back(path); });
  std::error_code ignored;
  for (const fs::path& path : paths)
    fs::remove(path, ignored);
}

bool is_unfinished(const fs::path& path) {
  return path.filename().string().find(mark) != std::string::npos;
}

}  // namespace finetune::data
