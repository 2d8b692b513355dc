#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether the ranks of a mesh can share what a model consists of.

#include "plan/plan.hpp"

namespace finetune::plan {

/// The mesh of `request`, whose ranks can share the matrices and experts of the family's table.
/// Throws: ErrorKind::deck if there is none, naming sizes that there are.
Mesh mesh_of(const PlanInput& request, const model::ParameterTable& table);

/// Whether there is one: whatever compares or suggests meshes leaves the others out.
bool has_mesh(const PlanInput& request, const model::ParameterTable& table);

}  // namespace finetune::plan
