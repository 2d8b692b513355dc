// SPDX-License-Identifier: Apache-2.0
#include "data/text/chat_template.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/error.hpp"
#include "deck/deck.hpp"

namespace finetune::data {
namespace {

using deck::Restart;

/// A key of a template file: these are no keys of a run, so restarts do not matter.
deck::Key key(std::string_view name, std::string_view sentence, bool required = false) {
  return {.name = name, .restart = Restart::fixed, .sentence = sentence, .required = required};
}

void bind_markup(deck::Table& table, ChatTemplate::Markup& markup) {
  table.text(key("before", "Written before the text."), markup.before);
  table.text(key("after", "Written after the text."), markup.after);
  table.choice(key("strip", "White space dropped at the ends of the text."), markup.strip,
               {"none", "both"});
  markup.is_known = !markup.before.empty() || !markup.after.empty();
}

void bind_ends(deck::Deck& deck, ChatTemplate& chat) {
  deck::Table table = deck.table("template", "The conversation as a whole.");
  table.text(key("begin", "Written once, before everything."), chat.begin);
  table.text(key("stop", "The token that ends an answer.", true), chat.stop);
  table.boolean(key("alternates", "Whether users and assistants must take turns."),
                chat.alternates);
  deck::Table marks = deck.table("recognise", "How it is known among the templates of models.");
  marks.texts(key("all", "All of these occur in it."), chat.marks);
  marks.texts(key("none", "None of these occur in it."), chat.other_marks);
  marks.texts(key("known", "Fingerprints of texts that mean the same."), chat.known);
}

void bind_roles(deck::Deck& deck, ChatTemplate& chat) {
  deck::Table system = deck.table("system", "The first message, if it is the system's.");
  bind_markup(system, chat.system);
  system.choice(key("place", "A message of its own, or the start of a user's."), chat.system_place,
                {"message", "first_user", "last_user"});
  system.text(key("default", "Its text where there is none."), chat.system_default);
  system.text(key("prefix", "Written before its text."), chat.system_prefix);
  system.boolean(key("always", "Whether it is written without text, too."), chat.system_always);
  deck::Table later = deck.table("later_system", "System messages further on.");
  bind_markup(later, chat.later_system);
  deck::Table user = deck.table("user", "What a user says.");
  bind_markup(user, chat.user);
  deck::Table assistant = deck.table("assistant", "What the model says.");
  bind_markup(assistant, chat.assistant);
  assistant.text(key("prompt", "What the model is given to begin with."), chat.prompt);
  deck::Table thinking = deck.table("thinking", "What the model thinks before it says something.");
  thinking.text(key("open", "Written before it."), chat.think_open);
  thinking.text(key("close", "Written after it."), chat.think_close);
  chat.thinks = !chat.think_open.empty();
}

void bind_tools(deck::Deck& deck, ChatTemplate& chat) {
  deck::Table offer = deck.table("offer", "The functions on offer, at the end of the system's.");
  bind_markup(offer, chat.offer);
  offer.text(key("separator", "Between the system's text and the offer."), chat.offer_separator);
  offer.text(key("each", "Before each function."), chat.offer_each);
  deck::Table call = deck.table("call", "A function that the model calls.");
  bind_markup(call, chat.call);
  call.text(key("middle", "Between its name and its arguments."), chat.call_middle);
  call.text(key("separator", "Between two calls, and between a text and a call."),
            chat.call_separator);
  deck::Table tool = deck.table("tool", "What a function returned.");
  bind_markup(tool, chat.tool);
  tool.text(key("run_before", "Before the first of several in a row."), chat.tool_run_before);
  tool.text(key("run_after", "After the last of several in a row."), chat.tool_run_after);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string name, std::string text) {
  ChatTemplate chat;
  deck::Deck deck(text, name + ".toml", {});
  chat.name = std::move(name);
  bind_ends(deck, chat);
  bind_roles(deck, chat);
  bind_tools(deck, chat);
  if (chat.assistant.after.find(chat.stop) == std::string::npos) {
    deck.table("assistant", "")
        .problem("after", "does not hold template.stop", "an answer ends with that token",
                 "Add it.");
  }
  deck.finish();
  chat.text = std::move(text);
  return chat;
}

ChatTemplate ChatTemplate::with_tokens(std::string_view bos, std::string_view eos) const {
  ChatTemplate bound = *this;
  for (std::string* text :
       {&bound.begin, &bound.stop, &bound.prompt, &bound.system.before, &bound.system.after,
        &bound.system_prefix, &bound.later_system.before, &bound.later_system.after,
        &bound.user.before, &bound.user.after, &bound.assistant.before, &bound.assistant.after,
        &bound.call.before, &bound.call.after, &bound.tool.before, &bound.tool.after,
        &bound.tool_run_before, &bound.tool_run_after}) {
    replace_all(*text, "{bos}", bos);
    replace_all(*text, "{eos}", eos);
  }
  return bound;
}

}  // namespace finetune::data
