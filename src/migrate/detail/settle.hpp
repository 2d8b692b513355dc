#pragma once
// SPDX-License-Identifier: Apache-2.0
// What several keys of theirs say together, the same for all programs.

#include "migrate/detail/source.hpp"

namespace finetune::migrate {

/// Everything below, in its order.
void settle(const Source& source, Draft& draft);

/// data.path and what is known of the data sets.
void settle_data(Draft& draft);
/// adapter.name, and whether the adapter's keys stay.
void settle_adapter(const Source& source, Draft& draft);
/// Matrices with an adapter: names, or a regular expression for them.
void settle_targets(Draft& draft);
/// What low-rank matrices begin with, and the learning rate of an embedding's.
void settle_starts(Draft& draft);
/// train.global_batch, micro_batch, epochs, max_steps.
void settle_batch(Draft& draft);
/// Warm-up, schedule, learning rates of some tensors.
void settle_schedule(Draft& draft);
/// precision.mode, parallel.sharding, axes, recomputation.
void settle_machine(Draft& draft);

/// Their names of split data, "train[:20%]": the split's name and the part of it.
struct Split {
  std::string name;
  double part = 1;
  bool is_understood = true;
};
Split parse_split(const std::string& text);

/// The items of a list of names, also of one that is a text with commas between them. An expression
/// stands alone.
std::vector<std::string> names_in(const Node& node);

/// Those names of matrices that the regular expression of a whole module name means; empty if it is
/// none, or means none.
std::vector<std::string> targets_of(const std::string& expression);

}  // namespace finetune::migrate
