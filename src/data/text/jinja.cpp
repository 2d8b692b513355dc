// SPDX-License-Identifier: Apache-2.0
#include "data/text/jinja.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

namespace finetune::data {
namespace {

/// A constant of Jinja.
std::string jinja_constant(std::string_view text) {
  std::string constant = "'";
  for (const char c : text) {
    if (c == '\n') {
      constant += "\\n";
    } else {
      if (c == '\'' || c == '\\') constant += '\\';
      constant += c;
    }
  }
  return constant + "'";
}

/// The text of a template's file as an expression: {bos} and {eos} are the tokenizer's.
std::string jinja_expression(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> names = {
      {{"{bos}", "(bos_token or '')"}, {"{eos}", "(eos_token or '')"}}};
  std::string terms;
  const auto add = [&](std::string_view term) {
    terms += fmt::format("{}{}", terms.empty() ? "" : " + ", term);
  };
  std::string_view plain = text;
  while (!plain.empty()) {
    std::size_t first = plain.size();
    const std::pair<std::string_view, std::string_view>* found = nullptr;
    for (const auto& name : names) {
      const std::size_t at = plain.find(name.first);
      if (at >= first) continue;
      first = at;
      found = &name;
    }
    if (first > 0) add(jinja_constant(plain.substr(0, first)));
    plain.remove_prefix(first);
    if (found == nullptr) break;
    add(found->second);
    plain.remove_prefix(found->first.size());
  }
  return terms.empty() ? "''" : terms;
}

std::string jinja_stripped(const std::string& value, const std::string& how) {
  return how == "both" ? fmt::format("({} | trim)", value) : value;
}

/// Lines that write nothing by themselves: each begins with a tag that takes the line end before
/// it away.
class JinjaText {
 public:
  explicit JinjaText(const ChatTemplate& chat) : chat_(chat) {}

  std::string write() {
    functions();
    places();
    say(chat_.begin);
    if (chat_.system_place == "message") system();
    messages();
    if (!chat_.prompt.empty()) {
      tag("if add_generation_prompt");
      say(chat_.prompt);
      tag("endif");
    }
    // Nor does the last line end.
    text_.insert(text_.size() - 3, "-");
    text_.pop_back();
    return std::move(text_);
  }

 private:
  void tag(const std::string& statement) { text_ += "{%- " + statement + " %}\n"; }
  void value(const std::string& terms) { text_ += "{{- " + terms + " }}\n"; }
  void say(const std::string& constant) {
    if (!constant.empty()) value(jinja_expression(constant));
  }
  void raise(const std::string& why) {
    value(fmt::format("raise_exception({})", jinja_constant(why)));
  }

  /// Content is a text, parts of text, or nothing.
  void functions() {
    text_ +=
        "{%- macro text_of(content) -%}\n"
        "{%- if content is string -%}\n"
        "{{- content -}}\n"
        "{%- elif content -%}\n"
        "{%- for part in content -%}\n"
        "{%- if part is string -%}\n"
        "{{- part -}}\n"
        "{%- elif part.type in ['text', 'input_text', 'output_text'] -%}\n"
        "{{- part.text -}}\n"
        "{%- else -%}\n"
        "{{- raise_exception('only text can be written') -}}\n"
        "{%- endif -%}\n"
        "{%- endfor -%}\n"
        "{%- endif -%}\n"
        "{%- endmacro -%}\n";
  }

  void places() {
    tag("set has_system = messages[0].role == 'system'");
    tag("if has_system");
    tag("set system = " + jinja_stripped("text_of(messages[0].content)", chat_.system.strip));
    tag("else");
    tag("set system = " + jinja_constant(chat_.system_default));
    tag("endif");
    if (chat_.offer.is_known) return query_places();
    tag("if tools");
    raise("this chat template has no markup for functions");
    tag("endif");
    query_places();
  }

  void query_places() {
    if (chat_.system_place == "message" && !chat_.thinks) return;
    tag("set at = namespace(first_user=-1, last_user=-1, last_query=-1)");
    tag("for message in messages");
    tag("if message.role == 'user'");
    tag("if at.first_user < 0");
    tag("set at.first_user = loop.index0");
    tag("endif");
    tag("set at.last_user = loop.index0");
    tag("set text = text_of(message.content)");
    tag("if not (text.startswith('<tool_response>') and text.endswith('</tool_response>'))");
    tag("set at.last_query = loop.index0");
    tag("endif");
    tag("endif");
    tag("endfor");
  }

  bool writes_default() const { return !chat_.system_default.empty(); }

  void system() {
    const bool is_always = chat_.system_always || writes_default();
    const char* or_tools = chat_.offer.is_known ? " or tools" : "";
    if (!is_always) tag(fmt::format("if has_system{}", or_tools));
    value(jinja_expression(chat_.system.before + chat_.system_prefix) + " + system");
    if (chat_.offer.is_known) offer();
    say(chat_.system.after);
    if (!is_always) tag("endif");
  }

  void offer() {
    tag("if tools");
    if (!chat_.offer_separator.empty()) {
      if (!writes_default()) tag("if has_system");
      value(jinja_constant(chat_.offer_separator));
      if (!writes_default()) tag("endif");
    }
    value(jinja_constant(chat_.offer.before));
    tag("for tool in tools");
    value(jinja_constant(chat_.offer_each) + " + (tool | tojson)");
    tag("endfor");
    value(jinja_constant(chat_.offer.after));
    tag("endif");
  }

  void messages() {
    tag("for message in messages");
    tag("set text = text_of(message.content)");
    if (chat_.alternates) {
      tag("set turn = loop.index0 - (1 if has_system else 0)");
      tag("if turn >= 0 and (message.role == 'user') != (turn % 2 == 0)");
      raise("user and assistant take turns, the user first");
      tag("endif");
    }
    tag("if loop.first and has_system");
    tag("elif message.role == 'system'");
    known(chat_.later_system, "this chat template has one system message, at the start");
    tag("elif message.role == 'user'");
    user();
    tag("elif message.role == 'assistant'");
    assistant();
    tag("elif message.role == 'tool'");
    tool();
    tag("else");
    raise("a message is of the system, a user, the assistant or a tool");
    tag("endif");
    tag("endfor");
  }

  void known(const ChatTemplate::Markup& markup, const char* otherwise) {
    if (!markup.is_known) return raise(otherwise);
    plain(markup);
  }

  void plain(const ChatTemplate::Markup& markup) {
    value(fmt::format("{} + {} + {}", jinja_expression(markup.before),
                      jinja_stripped("text", markup.strip), jinja_expression(markup.after)));
  }

  void user() {
    if (chat_.system_place == "message") return plain(chat_.user);
    const char* place = chat_.system_place == "first_user" ? "first_user" : "last_user";
    const std::string condition = writes_default() ? "" : " and has_system";
    tag(fmt::format("if loop.index0 == at.{}{}", place, condition));
    const std::string inner =
        fmt::format("({} + system + {} + text)", jinja_expression(chat_.system.before),
                    jinja_expression(chat_.system.after));
    value(fmt::format("{} + {} + {}", jinja_expression(chat_.user.before),
                      jinja_stripped(inner, chat_.user.strip), jinja_expression(chat_.user.after)));
    tag("else");
    plain(chat_.user);
    tag("endif");
  }

  void assistant() {
    tag("set said = " + jinja_stripped("text", chat_.assistant.strip));
    say(chat_.prompt);
    say(chat_.assistant.before);
    if (chat_.thinks) thoughts();
    value("said");
    tag("if message.tool_calls");
    if (chat_.call.is_known) {
      calls();
    } else {
      raise("this chat template has no markup for called functions");
    }
    tag("endif");
    say(chat_.assistant.after);
  }

  void thoughts() {
    tag("set reasoning = message.reasoning_content or ''");
    tag("if not reasoning and '</think>' in said");
    tag("set reasoning = "
        "said.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')");
    tag("set said = said.split('</think>')[-1].lstrip('\\n')");
    tag("endif");
    tag("if at.last_query >= 0 and loop.index0 > at.last_query and (loop.last or reasoning)");
    value(fmt::format("{} + reasoning.strip('\\n') + {}", jinja_constant(chat_.think_open),
                      jinja_constant(chat_.think_close)));
    tag("set said = said.lstrip('\\n')");
    tag("endif");
  }

  void calls() {
    tag("for each in message.tool_calls");
    tag("set call = each.function or each");
    tag("if said or not loop.first");
    say(chat_.call_separator);
    tag("endif");
    value(fmt::format("{} + call.name + {}", jinja_expression(chat_.call.before),
                      jinja_constant(chat_.call_middle)));
    value("call.arguments if call.arguments is string else (call.arguments | tojson)");
    say(chat_.call.after);
    tag("endfor");
  }

  void tool() {
    if (!chat_.tool.is_known) return raise("this chat template has no markup for functions");
    if (!chat_.tool_run_before.empty()) {
      tag("if loop.first or messages[loop.index0 - 1].role != 'tool'");
      say(chat_.tool_run_before);
      tag("endif");
    }
    plain(chat_.tool);
    if (chat_.tool_run_after.empty()) return;
    tag("if loop.last or messages[loop.index0 + 1].role != 'tool'");
    say(chat_.tool_run_after);
    tag("endif");
  }

  const ChatTemplate& chat_;
  std::string text_;
};

}  // namespace

std::string to_jinja(const ChatTemplate& chat) {
  if (chat.model) return chat.text;
  return JinjaText(chat).write();
}

}  // namespace finetune::data
