#pragma once
// SPDX-License-Identifier: Apache-2.0
// Conversations written by a template in Jinja.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/chat_template.hpp"
#include "data/text/conversation.hpp"
#include "data/text/detail/answer_places.hpp"
#include "data/text/format.hpp"
#include "jinja/template.hpp"

namespace finetune::data {

/// Immutable: ranks' threads may render at the same time.
class ChatWriter {
 public:
  /// What a template is given beside the conversation. Texts are empty where there is none.
  struct Names {
    std::string bos, eos;  ///< begin and end token, which templates know by bos_token and eos_token
    EndNames ends;
    bool is_known = false;    ///< of this program: what it refuses is said as it says it
    std::string own = {};     ///< the model's own template, which one of this program may advise
    OrderedJson others = {};  ///< further special tokens by name ("pad_token"): texts, or lists
  };

  /// `for_tools`: the template of conversations with tools; empty: the same. Throws:
  /// jinja::Problem.
  ChatWriter(std::string_view jinja, Names names, std::string_view for_tools = {});

  /// The token that ends an answer in a short conversation; the tokenizer's end token where the
  /// template wants another conversation or writes no end. Of a template of this program: the text
  /// that it marks behind an answer, whether the tokenizer has such a token or not.
  std::string stop() const;

  /// See data::render. An answer is trained from behind what its prompt writes up to the tokens
  /// that end it, where a token that begins the next turn may be the end (answer_places.hpp); or
  /// what the template marks ({% generation %}). Templates that write the day always write the
  /// same. Throws: ErrorKind::input beginning with `where` if the template refuses the
  /// conversation, or if it writes an answer into the turns of others.
  Rendered render(const Conversation& conversation, const std::string& where) const;

  /// See data::render_turns.
  std::vector<WrittenTurn> turns(const Conversation& conversation, const std::string& where) const;

  /// See data::render_prompt. Templates that write the day write today's.
  std::vector<Segment> prompt(const Conversation& conversation, const std::string& where) const;

  /// The text of `render` with the origin of each piece. Throws: as `render` for what the template
  /// refuses.
  jinja::Rendered written(const Conversation& conversation, const std::string& where) const;
  bool is_known() const { return names_.is_known; }

  /// The names in the template, in that of conversations with tools, too.
  std::vector<std::string> names() const;

 private:
  class Writing;

  const jinja::Template& template_of(const Conversation& conversation) const;

  jinja::Template template_;
  std::optional<jinja::Template> for_tools_;
  Names names_;
};

}  // namespace finetune::data
