#pragma once
// SPDX-License-Identifier: Apache-2.0
// A configuration of another program: YAML or JSON, read into plain values.

#include "yaml/node.hpp"

namespace finetune::migrate {

using Node = yaml::Node;

/// Replaces "${a.b}" by the value of that key, as OmegaConf does. What names no key stays.
void interpolate(Node& root);

}  // namespace finetune::migrate
