// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

#include "formats/alpaca/alpaca.hpp"
#include "formats/text/text.hpp"
#include "models/llama/llama.hpp"

namespace finetune::modules {

// Alphabetical, one line a module. A list and not self-registration: it is the same on every rank.
const train::Registry& registry() {
  static const train::Registry all{.families =
                                       {
                                           models::llama::family(),
                                       },
                                   .formats = {
                                       formats::alpaca::format(),
                                       formats::text::format(),
                                   }};
  return all;
}

}  // namespace finetune::modules
