// SPDX-License-Identifier: Apache-2.0
#include "model/detail/combinations.hpp"

#include "core/error.hpp"

namespace finetune::model {

void require_computed(const Architecture& a) {
  if (a.num_layers_with_experts() > 0) {
    const Norms norms = a.experts.are_beside_dense ? Norms::around : Norms::before;
    core::check(a.norms == norms, "experts have norms before them, beside a dense part around");
    core::check(!a.is_parallel, "experts are not computed next to attention");
    core::check(!a.experts.are_beside_dense || a.experts.d_shared == 0,
                "experts beside a dense part have no shared one");
  }
}

}  // namespace finetune::model
