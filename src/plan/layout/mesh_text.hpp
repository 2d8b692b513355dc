#pragma once
// SPDX-License-Identifier: Apache-2.0
// The mesh as a person reads it: where each node's ranks lie in it, and which form groups.

#include <string>

#include "plan/layout/mesh.hpp"

namespace finetune::plan {

/// A line per node, of many the first and the last, and a line per kind of group with the ranks of
/// the first such group. Without the last newline.
std::string layout_text(const Mesh& mesh, const Ranks& ranks);

}  // namespace finetune::plan
