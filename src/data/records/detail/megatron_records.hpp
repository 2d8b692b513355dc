#pragma once
// SPDX-License-Identifier: Apache-2.0
// Documents of token ids as Megatron-LM keeps them: NAME.bin, and NAME.idx which says where they
// are.

#include <filesystem>
#include <vector>

#include "core/file.hpp"
#include "data/records/records.hpp"

namespace finetune::data {

/// What a user may call the two files: NAME.idx for NAME.bin and for NAME, where that lies beside
/// (NAME.bin alone: beside it). Any other path is what it is.
std::filesystem::path index_of_megatron(const std::filesystem::path& named);

/// Each document is a record {"input_ids": [...]}: its sequences, one after the other. Only places
/// are kept: of a document its part of the index is read when it is.
/// Source: megatron.core.datasets.indexed_dataset, version 1 (Megatron-LM core 0.16): the 9 bytes
/// "MMIDIDX\0\0", u64 version, u8 dtype, u64 sequences S, u64 entries of the document index D;
/// i32 lengths [S], i64 places in the .bin in bytes [S], i64 first sequences of documents, and S at
/// their end [D]; perhaps u8 modes [S], which are not read.
class MegatronRecords final : public Records {
 public:
  /// Throws: ErrorKind::input for a file that is no index, is truncated, is of another version, of
  /// numbers with a fraction, or without documents; without the .bin, or with a longer one.
  explicit MegatronRecords(const std::filesystem::path& index);
  MegatronRecords(core::File index, core::File tokens);

  std::int64_t size() const override { return num_documents_; }
  /// Throws: ErrorKind::input naming the document, where the index leads out of the files.
  OrderedJson object(std::int64_t i) const override;
  /// "file.idx: document 12", from 1.
  std::string where(std::int64_t i) const override;
  const std::filesystem::path& path() const override { return index_.path(); }
  std::vector<std::filesystem::path> files() const override {
    return {index_.path(), tokens_.path()};
  }
  bool are_documents() const override { return true; }

 private:
  void require_no_more_tokens() const;
  void add_sequence(std::int64_t sequence, OrderedJson& ids, const std::string& where) const;

  core::File index_;
  core::File tokens_;
  int dtype_ = 0;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_documents_ = 0;
  std::int64_t lengths_at_ = 0;
  std::int64_t places_at_ = 0;
  std::int64_t documents_at_ = 0;
};

}  // namespace finetune::data
