#pragma once
// SPDX-License-Identifier: Apache-2.0
// Chat templates: the markup that a model expects around the messages of a conversation, in Jinja.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/text/conversation.hpp"
#include "data/text/format.hpp"
#include "data/tokens/detail/options.hpp"

namespace finetune::data {

class ChatWriter;

/// A template by its text: one of this program (modules/templates), or a model's own. It writes
/// conversations once it knows a tokenizer (choose_template).
struct ChatTemplate {
  std::string name;
  std::string text;            ///< Jinja: decides tokens, so it is compared and hashed
  std::string for_tools = {};  ///< of conversations with functions on offer; empty: the same
  std::string stop = {};       ///< the token that ends an answer; empty: it writes none
  std::vector<std::int32_t> ends = {};  ///< end generation: data::end_tokens, and `stop`
  /// The file that it was read from, of a model or an adapter; empty: it is one of this program.
  std::string file = {};
  std::string tools_file = {};  ///< that for_tools was read from
  std::string own_name = {};    ///< of several of a model's own; empty: its standard one
  std::shared_ptr<const ChatWriter> writer = nullptr;
  /// Names that it is given where the conversation itself has none of them. An object, or null.
  core::OrderedJson kwargs = {};
};

struct Rendered {
  std::vector<Segment> segments;
  std::uint32_t oddities = 0;  ///< bits of Oddity
};

/// The conversation with its markup, by `chat.writer`. What an assistant says is trained, with its
/// markup from behind the prompt up to and including the tokens that end its turn; or what the
/// template marks by {% generation %}. Of an empty answer only what ends it is trained, of one that
/// the data exclude nothing.
/// Messages after the last answer are left out: nothing could be learned from them.
/// Throws: ErrorKind::input beginning with `where` for what the template cannot write: turns that
/// do not alternate where they must, tools that it does not know, no message at all; and where it
/// is not clear what of its text an answer is.
Rendered render(const ChatTemplate& chat, const Conversation& conversation, TrainOn train_on,
                const std::string& where);

/// Gives `chat` the roles of a conversation that is to be written whole as it knows them: those of
/// other names (developer, ipython) as the data say them or as what they stand for. Throws:
/// ErrorKind::input beginning with `where` if the template refuses the conversation, or would leave
/// a message out; `why` says what that message is needed for, `remedy` what to do about it.
void settle_whole(const ChatTemplate& chat, const std::string& where, const std::string& why,
                  const std::string& remedy, Conversation& conversation);

/// A turn of a conversation as it was written, up to byte `end` of the text.
struct WrittenTurn {
  std::string role;  ///< name_of(ChatRole); "template": what stands in no turn
  std::size_t end = 0;
};

/// The turns of what `render` writes. Throws: see render.
std::vector<WrittenTurn> render_turns(const ChatTemplate& chat, const Conversation& conversation,
                                      TrainOn train_on, const std::string& where);

/// Its name and where it comes from: "the template \"qwen3\" of this program", "the model's own
/// template, tiny/chat_template.jinja". Of several, which.
std::string in_words(const ChatTemplate& chat);

/// Of names in `kwargs` (an object, or null) that `chat` does not read, in words, with what was
/// probably meant: they change nothing.
std::vector<std::string> unread_names(const ChatTemplate& chat, const core::OrderedJson& kwargs);

/// The conversation with its markup, up to where the model begins to answer.
std::vector<Segment> render_prompt(const ChatTemplate& chat, const Conversation& conversation,
                                   const std::string& where);

/// `text` for other programs, some of which do not know {% generation %}: comments take the place
/// of the marks, so that white space stays as it is.
std::string without_marks(std::string text);

/// `text` with the names of `kwargs` that it reads as defaults: it writes what it would if it were
/// given them, and those that it is given come over them. For programs that are not told what a run
/// was. `kwargs`: an object without null in it, or null. A template that cannot be read stays.
std::string with_defaults(const std::string& text, const core::OrderedJson& kwargs);

}  // namespace finetune::data
