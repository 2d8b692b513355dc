// SPDX-License-Identifier: Apache-2.0
// A tar archive, whose sums are made to fit: every sample is an object, or refused with its name.

#include "data/records/detail/tar_records.hpp"
#include "fuzz/fuzz.hpp"

using namespace finetune;

namespace {

constexpr std::size_t block_bytes = 512;

/// Sums of all blocks that call themselves headers.
std::string with_sums(std::string bytes) {
  for (std::size_t at = 0; at + block_bytes <= bytes.size(); at += block_bytes) {
    if (bytes.compare(at + 257, 5, "ustar") != 0) continue;
    bytes.replace(at + 148, 8, 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = 0; i < block_bytes; ++i)
      sum += static_cast<unsigned char>(bytes[at + i]);
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    bytes.replace(at + 148, 7, digits, 7);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(with_sums(std::string(fuzz::text_of(data, size))));
  const std::string path = file.path().string();
  fuzz::accepts(path, [&] {
    const data::TarRecords records(
        data::PlainFile(core::File(file.path(), core::File::Mode::read)));
    fuzz::require(records.size() > 0, "an archive without samples is refused");
    for (std::int64_t i = 0; i < records.size(); ++i) {
      fuzz::accepts(path,
                    [&] { fuzz::require(records.object(i).is_object(), "a sample is an object"); });
    }
  });
  return 0;
}
