// SPDX-License-Identifier: Apache-2.0
// An index of Megatron-LM beside some tokens: every document is a list or refused with its number.

#include "data/records/detail/megatron_records.hpp"
#include "fuzz/fuzz.hpp"

using namespace finetune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The same bytes are the tokens: any place within them is one of some document.
  const fuzz::MemoryFile index(fuzz::text_of(data, size)), tokens(fuzz::text_of(data, size));
  const std::string path = index.path().string();
  fuzz::accepts(path + ":", [&] {
    const data::MegatronRecords records(core::File(index.path(), core::File::Mode::read),
                                        core::File(tokens.path(), core::File::Mode::read));
    fuzz::require(records.size() > 0, "an index without documents is refused");
    for (std::int64_t i = 0; i < records.size(); ++i)
      fuzz::accepts(path + ": document ", [&] {
        fuzz::require(records.object(i).at("input_ids").is_array(), "a document is a list");
      });
  });
  return 0;
}
