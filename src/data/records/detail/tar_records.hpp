#pragma once
// SPDX-License-Identifier: Apache-2.0
// Samples in an archive, as WebDataset keeps them: members of the same name but for their endings.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "data/records/detail/plain_file.hpp"
#include "data/records/records.hpp"

namespace finetune::data {

/// A file in an archive: bytes [offset, offset + length).
struct TarMember {
  std::string name;
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

/// The files of a tar archive (POSIX ustar and pax, GNU), in its order; folders, links and the like
/// are left out. Stops after `most_members`. Throws: ErrorKind::input for what is no archive, is
/// truncated or damaged.
std::vector<TarMember> index_tar(
    const core::File& file, std::size_t most_members = std::numeric_limits<std::size_t>::max());

/// Neighbouring members a/0001.json, a/0001.txt, ... are a sample, which has the key "a/0001" (what
/// stands before the first point of the last name): the fields of the object in its .json, and
/// each member that ends in .txt or .cls as a text of that name. Others (pictures, sound) are left
/// out, and so are members that are hidden.
class TarRecords final : public Records {
 public:
  /// Throws: ErrorKind::input as index_tar, for an archive without samples, or for a sample that
  /// is there twice.
  explicit TarRecords(PlainFile file,
                      std::size_t most_records = std::numeric_limits<std::size_t>::max());

  std::int64_t size() const override { return std::ssize(samples_); }
  /// Throws: ErrorKind::input naming the member, for broken JSON, or a field that a member of the
  /// sample has, too.
  OrderedJson object(std::int64_t i) const override;
  /// "file: 0001".
  std::string where(std::int64_t i) const override;
  const std::filesystem::path& path() const override { return file_.path(); }

 private:
  struct Sample {
    std::string key;
    std::vector<TarMember> members;
  };
  std::string text_of(const TarMember& member) const;
  /// Of a member in JSON.
  OrderedJson fields_of(const TarMember& member) const;

  PlainFile plain_;
  const core::File& file_;
  std::vector<Sample> samples_;
};

}  // namespace finetune::data
