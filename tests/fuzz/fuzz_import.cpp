// SPDX-License-Identifier: Apache-2.0
// A configuration of another program, in YAML or JSON: refused, or a deck whose TOML can be read.

#include "deck/deck.hpp"
#include "fuzz/fuzz.hpp"
#include "migrate/migrate.hpp"

using namespace finetune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  // Whatever the file names is the file itself.
  const migrate::Options options = {
      .ranks = 4, .read_named = [&](const std::string&) { return std::optional(text); }};
  std::string made;
  if (fuzz::accepts("config.yaml",
                    [&] { made = migrate::make_deck(text, "config.yaml", options); }))
    deck::Deck(made, "made.toml", {});
  return 0;
}
