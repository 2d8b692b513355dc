// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/megatron_records.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "data/records/detail/binary.hpp"
#include "data/records/detail/json_index.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view megatron_magic("MMIDIDX\0\0", 9);
constexpr std::int64_t megatron_header = 9 + 8 + 1 + 8 + 8;

/// By their codes, from 1; 6 and 7 are floating-point numbers.
constexpr std::array<int, 9> megatron_widths = {0, 1, 1, 2, 4, 8, 0, 0, 2};

bool is_regular(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

core::File open_tokens(const fs::path& index) {
  fs::path path = index;
  path.replace_extension(".bin");
  if (!is_regular(path))
    fail_binary(index.string(), "there is no " + path.filename().string() + " beside it",
                "the index alone has no tokens", "Copy both files.");
  return core::File(path, core::File::Mode::read);
}

template <typename T>
void add_ids(std::span<const std::byte> bytes, OrderedJson& ids) {
  for (; !bytes.empty(); bytes = bytes.subspan(sizeof(T)))
    ids.push_back(number_in<T>(bytes));
}

}  // namespace

fs::path index_of_megatron(const fs::path& named) {
  if (is_regular(named) && named.extension() == ".bin") {
    fs::path index = named;
    index.replace_extension(".idx");
    return is_regular(index) ? index : named;
  }
  std::error_code ignored;
  if (fs::exists(named, ignored) || named.filename().empty()) return named;
  const fs::path index = named.string() + ".idx";
  return is_regular(index) ? index : named;
}

MegatronRecords::MegatronRecords(const fs::path& index)
    : MegatronRecords(core::File(index, core::File::Mode::read), open_tokens(index)) {
  require_no_more_tokens();
}

MegatronRecords::MegatronRecords(core::File index_file, core::File tokens)
    : index_(std::move(index_file)), tokens_(std::move(tokens)) {
  const fs::path& index = index_.path();
  const std::int64_t bytes = index_.size_bytes();
  std::array<char, megatron_magic.size()> begin{};
  if (bytes >= megatron_header) index_.read_at(0, std::as_writable_bytes(std::span(begin)));
  if (std::string_view(begin.data(), begin.size()) != megatron_magic)
    fail_binary(index.string(), "is no index of Megatron-LM", "it does not begin as one (MMIDIDX)");
  const auto version = number_at<std::uint64_t>(index_, 9);
  if (version != 1)
    fail_binary(index.string(), fmt::format("is of version {}", version), "only 1 is known",
                "Make it with a released Megatron-LM.");
  dtype_ = number_at<std::uint8_t>(index_, 17);
  if (static_cast<std::size_t>(dtype_) >= megatron_widths.size() ||
      megatron_widths[static_cast<std::size_t>(dtype_)] == 0)
    fail_binary(index.string(), fmt::format("has numbers of the code {}", dtype_),
                "token ids are whole numbers, of the codes 1 to 5 and 8");
  const auto sequences = number_at<std::uint64_t>(index_, 18);
  const auto entries = number_at<std::uint64_t>(index_, 26);
  // Below these a product does not overflow.
  const auto most = static_cast<std::uint64_t>(bytes);
  const bool fits = sequences <= most && entries <= most;
  num_sequences_ = fits ? static_cast<std::int64_t>(sequences) : 0;
  num_documents_ = fits ? static_cast<std::int64_t>(entries) - 1 : 0;
  lengths_at_ = megatron_header;
  places_at_ = lengths_at_ + 4 * num_sequences_;
  documents_at_ = places_at_ + 8 * num_sequences_;
  const std::int64_t end = documents_at_ + 8 * (num_documents_ + 1);
  if (!fits || (bytes != end && bytes != end + num_sequences_))
    fail_binary(
        index.string(), fmt::format("has {} bytes", bytes),
        fits ? fmt::format("{} sequences and {} documents take {}", sequences, num_documents_, end)
             : "its counts are larger than the file");
  if (num_documents_ <= 0)
    fail_binary(index.string(), "has no document", "it holds no record", "Is it the right file?");
}

/// Sequences follow each other: what lies behind the last one is of another index.
void MegatronRecords::require_no_more_tokens() const {
  const std::int64_t last = num_sequences_ - 1;
  const auto length = last < 0 ? 0 : number_at<std::int32_t>(index_, lengths_at_ + 4 * last);
  const auto place = last < 0 ? 0 : number_at<std::int64_t>(index_, places_at_ + 8 * last);
  const int width = megatron_widths.at(static_cast<std::size_t>(dtype_));
  const std::int64_t all = tokens_.size_bytes();
  // A sequence that leads out of the file is for whoever reads it to refuse.
  if (length < 0 || place < 0 || place >= all || all - place <= std::int64_t{length} * width)
    return;
  fail_binary(tokens_.path().string(), fmt::format("has {} bytes", all),
              fmt::format("the last sequence of {} ends at byte {}, so the rest would be left out",
                          index_.path().filename().string(), place + std::int64_t{length} * width),
              "Copy both files again, or write the index again from the tokens.");
}

void MegatronRecords::add_sequence(std::int64_t sequence, OrderedJson& ids,
                                   const std::string& where) const {
  const auto length = number_at<std::int32_t>(index_, lengths_at_ + 4 * sequence);
  const auto place = number_at<std::int64_t>(index_, places_at_ + 8 * sequence);
  const int width = megatron_widths.at(static_cast<std::size_t>(dtype_));
  const std::int64_t bytes = std::int64_t{length} * width;
  const std::int64_t all = tokens_.size_bytes();
  if (length < 0 || place < 0 || place > all || bytes > all - place)
    fail_binary(where, fmt::format("a sequence of {} tokens begins at byte {}", length, place),
                fmt::format("{} has {} bytes", tokens_.path().filename().string(), all));
  if (bytes > longest_entry_bytes || std::ssize(ids) > longest_entry_bytes / width)
    fail_binary(where, "is longer than any document", "the index is damaged");
  std::vector<std::byte> read(static_cast<std::size_t>(bytes));
  tokens_.read_at(place, read);
  switch (dtype_) {
    case 1:
      return add_ids<std::uint8_t>(read, ids);
    case 2:
      return add_ids<std::int8_t>(read, ids);
    case 3:
      return add_ids<std::int16_t>(read, ids);
    case 4:
      return add_ids<std::int32_t>(read, ids);
    case 5:
      return add_ids<std::int64_t>(read, ids);
    default:
      return add_ids<std::uint16_t>(read, ids);
  }
}

OrderedJson MegatronRecords::object(std::int64_t i) const {
  const auto begin = number_at<std::int64_t>(index_, documents_at_ + 8 * i);
  const auto end = number_at<std::int64_t>(index_, documents_at_ + 8 * (i + 1));
  if (begin < 0 || end < begin || end > num_sequences_)
    fail_binary(where(i), fmt::format("its sequences are {} to {}", begin, end),
                fmt::format("there are {}", num_sequences_));
  OrderedJson ids = OrderedJson::array();
  for (std::int64_t s = begin; s < end; ++s)
    add_sequence(s, ids, where(i));
  return {{"input_ids", std::move(ids)}};
}

std::string MegatronRecords::where(std::int64_t i) const {
  return fmt::format("{}: document {}", index_.path().string(), i + 1);
}

}  // namespace finetune::data
