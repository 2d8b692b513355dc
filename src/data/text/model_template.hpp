#pragma once
// SPDX-License-Identifier: Apache-2.0
// The chat template of a run: one of this program, or what the model was published with.

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "data/text/chat_template.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::data {

/// The chat templates that a model was published with, as Jinja texts.
struct ModelTemplates {
  std::optional<std::string> standard;       ///< the one that is called "default", or alone
  std::map<std::string, std::string> named;  ///< the others; "tool_use" is for those with tools
  std::filesystem::path file = {};           ///< of the standard one, and of a list
  std::filesystem::path folder = {};         ///< of the others, where they are files of their own
};

/// Those of a model's folder: chat_template.jinja and additional_chat_templates/NAME.jinja, else
/// "chat_template" of tokenizer_config.json or chat_template.json, a text or a list of named ones.
/// Where there is none, both are empty. `key` is where a template can be named instead. Throws:
/// ErrorKind::input.
ModelTemplates model_templates(const std::filesystem::path& model_folder,
                               const std::string& key = "data.template");

/// The template named `name`, or the model's if `name` is "model" (its default, and for
/// conversations with tools its "tool_use" if it has one) or "model:NAME" (the one of that name),
/// bound to the tokenizer. A model's own is never replaced by one of `templates`. Throws:
/// ErrorKind::input if the model has none, or none of that name, or if the token that ends an
/// answer is not one token of the tokenizer. Messages tell users to choose another by `key`: of the
/// deck, or "--template" of a command. `template_folder`: of an adapter, whose templates take the
/// place of the model's; empty: the model's.
ChatTemplate choose_template(const std::string& name, const std::filesystem::path& model_folder,
                             const tokenizer::Tokenizer& tokenizer,
                             std::span<const ChatTemplate> templates,
                             const std::string& key = "data.template",
                             const std::filesystem::path& template_folder = {});

}  // namespace finetune::data
