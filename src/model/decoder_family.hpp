#pragma once
// SPDX-License-Identifier: Apache-2.0
// A family that differs from others in its configuration and in the names of its tensors.

#include <string>

#include "model/family.hpp"
#include "model/layout.hpp"

namespace finetune::model {

/// As Llama's files have them.
inline TensorNames usual_names() {
  return {};
}

/// `type`: its name, and config.json's "model_type". `read`: see ModelFamily. `names`: of its
/// tensors.
template <TensorNames (*names)() = usual_names>
ModelFamily decoder_family(const std::string& type,
                           Architecture (*read)(const core::Json& config,
                                                const std::string& where)) {
  return {type,
          {type},
          read,
          [](const Architecture& a) { return lay_out(a, names()); },
          [](const Architecture& a) { return make_decoder(a, lay_out(a, names()).decoder); }};
}

}  // namespace finetune::model
