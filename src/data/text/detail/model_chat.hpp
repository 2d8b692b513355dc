#pragma once
// SPDX-License-Identifier: Apache-2.0
// Conversations written by the Jinja template that a model brings: for those that none of the
// templates of this program stands for.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/conversation.hpp"
#include "data/text/format.hpp"
#include "jinja/template.hpp"

namespace finetune::data {

/// Immutable: ranks' threads may render at the same time.
class ModelChat {
 public:
  /// `bos`, `eos`: the tokenizer's begin and end tokens as text, which templates know by
  /// bos_token and eos_token; empty: it has none. `for_tools`: the template of conversations with
  /// tools; empty: the same. Throws: jinja::Problem.
  ModelChat(std::string_view jinja, std::string bos, std::string eos,
            std::string_view for_tools = {});

  /// What ends an answer: the text from behind it to `end` of the special token that follows.
  /// `is_special(text)`: whether it holds the name of a special token.
  template <typename F>
  std::string stop(const F& is_special) const {
    const std::string after = behind_an_answer();
    for (std::size_t end = 1; end <= after.size(); ++end) {
      if (!is_special(std::string_view(after).substr(0, end))) continue;
      std::size_t begin = 0;
      while (begin + 1 < end &&
             is_special(std::string_view(after).substr(begin + 1, end - begin - 1)))
        ++begin;
      return after.substr(begin, end - begin);
    }
    return eos_;
  }

  /// See data::render. `stop`: the token that ends an answer. What an answer adds to the prompt for
  /// it is trained, up to and including that token; or what the template marks
  /// ({% generation %}). Templates that write the day always write the same. Throws:
  /// ErrorKind::input beginning with `where` if the template refuses the conversation, or if it
  /// writes what came before an answer differently once there is one.
  std::vector<Segment> render(const Conversation& conversation, const std::string& stop,
                              const std::string& where) const;

  /// See data::render_prompt. Templates that write the day write today's.
  std::vector<Segment> prompt(const Conversation& conversation, const std::string& where) const;

 private:
  enum class Prompt { none, for_answer };

  jinja::Rendered written(const Conversation& conversation, std::size_t num_messages, Prompt prompt,
                          bool marks, std::int64_t now_s, const std::string& where) const;
  std::string behind_an_answer() const;
  const jinja::Template& template_of(const Conversation& conversation) const;

  jinja::Template template_;
  std::optional<jinja::Template> for_tools_;
  std::string bos_, eos_;
};

}  // namespace finetune::data
