#pragma once
// SPDX-License-Identifier: Apache-2.0
// A chat template in Jinja, as other programs read it from a model's folder.

#include <string>

#include "data/text/chat_template.hpp"

namespace finetune::data {

/// The model's own text, where it wrote them; else Jinja text that writes conversations as `render`
/// and `render_prompt` do with `chat`, whose {bos} and {eos} become bos_token and eos_token. Where
/// `render` refuses a conversation it raises an exception, but for reasoning in a template without
/// thoughts, which it leaves out: chat clients send back what a server said.
std::string to_jinja(const ChatTemplate& chat);

}  // namespace finetune::data
