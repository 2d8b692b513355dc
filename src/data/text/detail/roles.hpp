#pragma once
// SPDX-License-Identifier: Apache-2.0
// Messages of roles that only some templates know.

#include <optional>
#include <string>

#include "data/text/chat_template.hpp"
#include "data/text/conversation.hpp"

namespace finetune::data {

/// Decides by which role, as a template sees it, each message goes to `chat`, and which are left
/// out, before `render`.
///
/// A model's own template is given each role as the data say it. What it refuses, or leaves out,
/// is given to it by the role that the name stands for (developer: system, ipython: tool); a
/// message whose name stands for none is left out where the template refuses the conversation with
/// it. Templates of this program are given their four roles alone. Behind a message that was left
/// out, or that changes nothing of the text, no answer is trained.
///
/// Returns: which message was left out, and why, without its place; nothing if none was.
/// Throws: ErrorKind::input beginning with `where` if the template refuses the conversation either
/// way, or if nothing of it is left.
std::optional<std::string> settle_roles(const ChatTemplate& chat, TrainOn train_on,
                                        const std::string& where, Conversation& conversation);

}  // namespace finetune::data
