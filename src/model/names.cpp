// SPDX-License-Identifier: Apache-2.0
#include "model/names.hpp"

#include <string_view>

namespace finetune::model {

std::string module_of(const std::string& tensor) {
  for (const std::string_view ending : {".weight", ".bias"})
    if (tensor.ends_with(ending)) return tensor.substr(0, tensor.size() - ending.size());
  return tensor;
}

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

}  // namespace finetune::model
