// SPDX-License-Identifier: Apache-2.0
// An Arrow IPC file or stream: every row is an object or refused with its number.

#include <algorithm>

#include "data/records/detail/arrow_records.hpp"
#include "fuzz/fuzz.hpp"

using namespace finetune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  const std::string path = file.path().string();
  // Rows without buffers cost nothing to claim.
  constexpr std::int64_t most_rows = 1000;
  fuzz::accepts(path + ":", [&] {
    const data::ArrowRecords records(core::File(file.path(), core::File::Mode::read));
    fuzz::require(records.size() > 0, "a file without rows is refused");
    for (std::int64_t i = 0; i < std::min(records.size(), most_rows); ++i)
      if (!fuzz::accepts(path + ":", [&] {
            fuzz::require(records.object(i).is_object(), "a row is an object");
          }))
        break;
  });
  return 0;
}
