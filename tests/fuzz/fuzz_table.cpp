// SPDX-License-Identifier: Apache-2.0
// A table of text, CSV or (behind a first byte of 9) TSV: every row is an object of its columns, or
// refused with its line.

#include "data/records/detail/csv_records.hpp"
#include "fuzz/fuzz.hpp"

using namespace finetune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const bool has_tabs = size > 0 && data[0] == '\t';
  const fuzz::MemoryFile file(fuzz::text_of(data, size).substr(has_tabs ? 1 : 0));
  const std::string path = file.path().string();
  fuzz::accepts(path + ":", [&] {
    const data::CsvRecords records(data::PlainFile(core::File(file.path(), core::File::Mode::read)),
                                   has_tabs ? '\t' : ',');
    fuzz::require(records.size() > 0, "a table without rows is refused");
    std::size_t num_columns = 0;
    for (std::int64_t i = 0; i < records.size(); ++i) {
      fuzz::accepts(path + ":", [&] {
        const core::Json object = records.object(i);
        fuzz::require(object.is_object(), "a row is an object");
        if (num_columns == 0) num_columns = object.size();
        fuzz::require(object.size() == num_columns, "rows have the same columns");
      });
    }
  });
  return 0;
}
