#pragma once
// SPDX-License-Identifier: Apache-2.0
// Errors that name keys of a deck, in the words of a command that has no deck.

#include <string>
#include <string_view>

namespace finetune::app {

/// A message with the command's options where keys of a deck are: --device, and for data.template
/// what `chat_template` says.
std::string with_options(std::string message, std::string_view chat_template);

}  // namespace finetune::app
