#pragma once
// SPDX-License-Identifier: Apache-2.0
// What modules/ offers, handed to the run by the program; src/ never includes modules/.

#include <string>
#include <vector>

#include "data/text/chat_template.hpp"
#include "data/text/format.hpp"
#include "model/adapter.hpp"
#include "model/family.hpp"
#include "optim/kind.hpp"

namespace finetune::train {

struct Registry {
  std::vector<model::Adapter> adapters = {};
  std::vector<model::ModelFamily> families;
  std::vector<data::Format> formats;
  std::vector<optim::Kind> optimizers = {};
  std::vector<data::ChatTemplate> templates = {};

  /// All names in order: ranks compare it, and checkpoints carry it.
  std::string names() const {
    std::string text;
    for (const auto& adapter : adapters)
      text += "adapter " + adapter.name + "; ";
    for (const auto& family : families)
      text += "model " + family.name + "; ";
    for (const auto& format : formats)
      text += "format " + format.name + "; ";
    for (const auto& optimizer : optimizers)
      text += "optimizer " + optimizer.name() + "; ";
    for (const auto& chat : templates)
      text += "template " + chat.name + "; ";
    return text;
  }
};

}  // namespace finetune::train
