// SPDX-License-Identifier: Apache-2.0
// A shard of MosaicML's streaming: every sample is an object or refused with its number.

#include "data/records/detail/mds_records.hpp"
#include "fuzz/fuzz.hpp"

using namespace finetune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  const std::string path = file.path().string();
  fuzz::accepts(path + ":", [&] {
    const data::MdsRecords records(
        data::PlainFile(core::File(file.path(), core::File::Mode::read)));
    fuzz::require(records.size() > 0, "a shard without samples is refused");
    for (std::int64_t i = 0; i < records.size(); ++i)
      fuzz::accepts(path + ": sample ",
                    [&] { fuzz::require(records.object(i).is_object(), "a sample is an object"); });
  });
  return 0;
}
