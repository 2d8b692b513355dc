// SPDX-License-Identifier: Apache-2.0
// A data file, JSONL or a JSON array: every entry is an object or refused with file and line.

#include "data/records/detail/json_records.hpp"
#include "data/records/fields.hpp"
#include "fuzz/fuzz.hpp"

using namespace finetune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  const std::string path = file.path().string();
  fuzz::accepts(path + ":", [&] {
    const data::JsonRecords records(file.path());
    fuzz::require(records.size() > 0, "a file without entries is refused");
    for (std::int64_t i = 0; i < records.size(); ++i) {
      fuzz::accepts(path + ":", [&] {
        const core::Json object = records.object(i);
        fuzz::require(object.is_object(), "a sample is an object");
        data::optional_text_field(object, {"input", ""}, records.where(i));
        data::text_field(object, {"instruction", ""}, records.where(i));
      });
    }
  });
  return 0;
}
