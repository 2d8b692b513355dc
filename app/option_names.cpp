// SPDX-License-Identifier: Apache-2.0
#include "option_names.hpp"

#include <array>
#include <utility>

namespace finetune::app {

std::string with_options(std::string message, std::string_view chat_template) {
  // The longest first: they hold the others.
  const std::array<std::pair<std::string_view, std::string_view>, 5> words = {
      {{"set train.device = \"cpu\" (generate: --device cpu)", "use --device cpu"},
       {"train.device = \"cpu\"", "--device cpu"},
       {"train.device = \"gpu\"", "--device gpu"},
       {"train.device", "--device"},
       {"data.template", chat_template}}};
  for (const auto& [key, option] : words)
    for (std::size_t at = message.find(key); at != std::string::npos;
         at = message.find(key, at + option.size()))
      message.replace(at, key.size(), option);
  return message;
}

}  // namespace finetune::app
