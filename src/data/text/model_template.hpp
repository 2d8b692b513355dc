#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which of the known chat templates a model was published with.

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "data/text/chat_template.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::data {

/// The Jinja text of a model's chat template: chat_template.jinja of its folder, else
/// "chat_template" of tokenizer_config.json or chat_template.json (of several there the one called
/// "default"). Nothing if there is none. `key` is where a template can be named instead.
std::optional<std::string> model_template_text(const std::filesystem::path& model_folder,
                                               const std::string& key = "data.template");

/// The one of `templates` that a Jinja text stands for, by its fingerprint or its marks; nullptr if
/// none does, or more than one; also what to_jinja wrote. White space, kinds of quotes and ways to
/// write a field do not matter.
const ChatTemplate* recognise(std::string_view jinja, std::span<const ChatTemplate> templates);

/// Fingerprint of a Jinja text as `recognise` compares it: for `known` in a template's file.
std::string template_fingerprint(std::string_view jinja);

/// The template named `name`, or the model's if `name` is "model", with the tokenizer's begin and
/// end tokens in it. Throws: ErrorKind::input if the model has none or none that is known (with the
/// list of those that are), or if the token that ends an answer is not one token of the tokenizer.
/// Messages tell users to choose another by `key`: of the deck, or "--template" of a command.
ChatTemplate choose_template(const std::string& name, const std::filesystem::path& model_folder,
                             const tokenizer::Tokenizer& tokenizer,
                             std::span<const ChatTemplate> templates,
                             const std::string& key = "data.template");

}  // namespace finetune::data
