#pragma once
// SPDX-License-Identifier: Apache-2.0
// Chat templates: the markup that a model expects around the messages of a conversation.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/conversation.hpp"
#include "data/text/format.hpp"
#include "data/tokens/detail/options.hpp"

namespace finetune::data {

class ModelChat;

/// A template as its file says it (modules/README.md has the language). Texts may hold {bos} and
/// {eos}, which stand for the tokenizer's begin and end tokens.
struct ChatTemplate {
  /// What goes around one message, and whether white space at the ends of its text is dropped.
  struct Markup {
    bool is_known = false;
    std::string before;
    std::string after;
    std::string strip = "none";
  };

  std::string name;
  std::string text;  ///< of the file: decides tokens, so it belongs to what is compared and hashed
  std::string begin;
  std::string stop;  ///< the token that ends an answer
  bool alternates = false;

  Markup system;
  std::string system_place = "message";  ///< or "first_user", "last_user"
  std::string system_default;            ///< the text of a conversation without a system message
  std::string system_prefix;             ///< before the text, whatever it is
  bool system_always = false;            ///< also around no text at all
  Markup later_system;                   ///< a system message that is not the first message

  Markup user;
  Markup assistant;
  std::string prompt;  ///< what a model is given to begin its answer

  bool thinks = false;  ///< reasoning goes in front of the answers after the last question
  std::string think_open;
  std::string think_close;

  Markup call;  ///< a called function: before, name, `call_middle`, arguments, after
  std::string call_middle;
  std::string call_separator;
  Markup tool;  ///< a function's result; several in a row share `tools_open` and `tools_close`
  std::string tool_run_before;
  std::string tool_run_after;
  Markup offer;  ///< the functions on offer, at the end of the system message
  std::string offer_separator;
  std::string offer_each;

  /// How the template is known among `chat_template`s of models: all of these occur in its text,
  /// and none of those; or its fingerprint is one of `known`.
  std::vector<std::string> marks;
  std::vector<std::string> other_marks;
  std::vector<std::string> known;

  /// The model's own, which none of these stands for: it writes conversations, and all of the above
  /// but name, text (its Jinja) and stop means nothing.
  std::shared_ptr<const ModelChat> model = nullptr;

  /// Throws: ErrorKind::deck for a file that is not a template.
  static ChatTemplate parse(std::string name, std::string text);

  /// The same with {bos} and {eos} in their places.
  ChatTemplate with_tokens(std::string_view bos, std::string_view eos) const;
};

struct Rendered {
  std::vector<Segment> segments;
  std::uint32_t oddities = 0;  ///< bits of Oddity
};

/// The conversation with its markup. What an assistant says is trained, with its markup up to and
/// including the token that ends its turn; an answer that is empty or that the data exclude is not.
/// Messages after the last answer are left out: nothing could be learned from them.
/// Throws: ErrorKind::input beginning with `where` for what the template cannot write: turns that
/// do not alternate where they must, tools that it does not know, no message at all.
Rendered render(const ChatTemplate& chat, const Conversation& conversation, TrainOn train_on,
                const std::string& where);

/// The conversation with its markup, up to where the model begins to answer.
std::vector<Segment> render_prompt(const ChatTemplate& chat, const Conversation& conversation,
                                   const std::string& where);

}  // namespace finetune::data
