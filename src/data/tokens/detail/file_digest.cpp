// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/file_digest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <sstream>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/file_identity.hpp"
#include "core/hash.hpp"
#include "core/host.hpp"
#include "data/tokens/detail/digest_memo.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t block_bytes = std::int64_t{8} << 20;

/// What the first rank of each node says, by node. Collective on the world.
std::vector<std::string> of_nodes(const DataRanks& ranks, const std::string& text) {
  std::vector<std::string> texts;
  for (std::string& one : ranks.world.all_gather_text(ranks.node.is_root() ? "." + text : "")) {
    if (!one.empty()) texts.push_back(one.substr(1));
  }
  return texts;
}

bool all_equal(const std::vector<std::string>& texts) {
  return std::ranges::adjacent_find(texts, std::not_equal_to<>()) == texts.end();
}

struct Block {
  std::size_t file;
  std::int64_t begin;
  std::int64_t bytes;
};

std::vector<Block> blocks_of(const std::vector<std::int64_t>& sizes) {
  std::vector<Block> blocks;
  for (std::size_t file = 0; file < sizes.size(); ++file) {
    for (std::int64_t begin = 0; begin < sizes[file]; begin += block_bytes)
      blocks.push_back({file, begin, std::min(block_bytes, sizes[file] - begin)});
  }
  return blocks;
}

std::vector<core::Digest> digest_blocks(std::span<const fs::path> files,
                                        std::span<const Block> blocks) {
  std::vector<core::Digest> digests;
  std::vector<std::byte> buffer(static_cast<std::size_t>(block_bytes));
  for (const Block& block : blocks) {
    const core::File file(files[block.file], core::File::Mode::read);
    const auto bytes = std::span(buffer).first(static_cast<std::size_t>(block.bytes));
    file.read_at(block.begin, bytes);
    digests.push_back(core::digest(bytes));
  }
  return digests;
}

/// The files' digests, each block read by one rank of `readers`. Collective on `readers`, whose
/// errors are agreed on over the world.
std::vector<std::string> digest_together(const DataRanks& ranks, const comm::Communicator& readers,
                                         std::span<const fs::path> files) {
  const auto sizes = comm::agree(ranks.world, [&] {
    std::vector<std::int64_t> result;
    for (const fs::path& file : files)
      result.push_back(core::File(file, core::File::Mode::read).size_bytes());
    return result;
  });
  const std::vector<Block> blocks = blocks_of(sizes);
  const auto bound = [&](int rank) {
    return blocks.size() * static_cast<std::size_t>(rank) /
           static_cast<std::size_t>(readers.size());
  };
  const auto own = comm::agree(ranks.world, [&] {
    const std::size_t first = bound(readers.rank());
    return digest_blocks(files,
                         std::span(blocks).subspan(first, bound(readers.rank() + 1) - first));
  });
  std::vector<std::string> texts(files.size());
  std::size_t next = 0;
  for (const auto& part : readers.all_gather_bytes(std::as_bytes(std::span(own)))) {
    for (std::size_t at = 0; at < part.size(); at += sizeof(core::Digest)) {
      core::Digest digest;
      std::memcpy(&digest, &part[at], sizeof(digest));
      texts[blocks.at(next++).file] += core::to_string(digest);
    }
  }
  core::check(next == blocks.size(), "every block of the data files is read once");
  for (std::size_t file = 0; file < files.size(); ++file)
    texts[file] = fmt::format("{} {}", sizes[file], core::fingerprint(texts[file]));
  return texts;
}

/// Of files that all see, with what the root remembers of them. Collective on the world.
std::vector<std::string> digest_shared(const DataRanks& ranks, std::span<const fs::path> files,
                                       const fs::path& memo, bool keeps) {
  if (memo.empty()) return digest_together(ranks, ranks.world, files);
  std::string remembered;
  if (ranks.world.is_root())
    remembered = fmt::format("{}", fmt::join(recall_digests(memo, files), "\n"));
  std::istringstream lines(ranks.world.broadcast_text(remembered));
  std::vector<std::string> digests(files.size());
  std::vector<std::size_t> places;
  std::vector<fs::path> unknown;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::getline(lines, digests[i]);
    if (!digests[i].empty()) continue;
    places.push_back(i);
    unknown.push_back(files[i]);
  }
  if (unknown.empty()) return digests;
  const auto found = digest_together(ranks, ranks.world, unknown);
  for (std::size_t k = 0; k < places.size(); ++k)
    digests[places[k]] = found[k];
  if (keeps && ranks.world.is_root()) keep_digests(memo, unknown, found);
  return digests;
}

/// Throws if nodes differ. Collective on the world.
void require_same_on_nodes(const DataRanks& ranks, std::span<const fs::path> files,
                           const std::vector<std::string>& digests) {
  const std::string host = core::host_name();
  const auto all = of_nodes(ranks, fmt::format("{}\n{}", host, fmt::join(digests, "\n")));
  comm::agree_all(ranks.world, [&] {
    const auto lines = [](const std::string& text) {
      std::vector<std::string> result = {""};
      for (const char c : text) {
        if (c == '\n') {
          result.emplace_back();
        } else {
          result.back() += c;
        }
      }
      return result;
    };
    const std::vector<std::string> expected = lines(all.front());
    for (const std::string& text : all) {
      const std::vector<std::string> other = lines(text);
      const auto differs = std::mismatch(expected.begin() + 1, expected.end(), other.begin() + 1);
      if (differs.first == expected.end()) continue;
      const auto file = static_cast<std::size_t>(differs.first - expected.begin() - 1);
      core::fail(core::ErrorKind::input,
                 {files[file].string(),
                  fmt::format("is not the same on {} and on {}", expected[0], other[0]),
                  fmt::format("size and hash are {} and {}", *differs.first, *differs.second),
                  "Copy the data to every node again, or put them on a shared file system."});
    }
  });
}

}  // namespace

std::vector<std::string> digest_files(const DataRanks& ranks, std::span<const fs::path> files,
                                      const fs::path& memo, bool keeps) {
  comm::require_equal(ranks.world, "number of data files", std::to_string(files.size()));
  std::string identities;
  for (const fs::path& file : files)
    identities += core::file_identity(file) + "\n";
  if (all_equal(of_nodes(ranks, core::fingerprint(identities))))
    return digest_shared(ranks, files, memo, keeps);
  std::vector<std::string> digests = digest_together(ranks, ranks.node, files);
  require_same_on_nodes(ranks, files, digests);
  return digests;
}

bool is_same_everywhere(const DataRanks& ranks, const fs::path& path) {
  const auto identities = of_nodes(ranks, core::file_identity(path));
  return all_equal(identities) && !identities.front().empty();
}

}  // namespace finetune::data
