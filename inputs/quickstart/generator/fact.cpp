// SPDX-License-Identifier: Apache-2.0
#include "generator/fact.hpp"

#include "core/error.hpp"
#include "core/hash.hpp"

namespace finetune::quickstart {
namespace {

/// In all texts S stands for the subject, V for the value and E for the extra.
struct RelationText {
  std::string_view statement;
  std::vector<std::string_view> tellings;
  std::vector<std::string_view> questions;
};

const RelationText& text_of(Relation relation) {
  static const std::vector<RelationText> texts = {
      // place
      {"The $S is in the $V.",
       {"The $S is in the $V.", "Somebody left the $S in the $V.", "You can see the $S in the $V."},
       {"Where is the $S?", "Tell me where the $S is.", "In which place is the $S?",
        "What is in the $V?", "Which thing is in the $V?"}},
      // holder
      {"$S has the $V.",
       {"$S has the $V.", "$S took the $V.", "$S found the $V."},
       {"Who has the $V?", "Tell me who has the $V.", "Which person has the $V?",
        "What does $S have?", "Which thing does $S have?"}},
      // colour
      {"The $S is $V.",
       {"The $S is $V.", "Somebody painted the $S $V.", "The colour of the $S is $V."},
       {"What colour is the $S?", "Tell me the colour of the $S.", "Which colour does the $S have?",
        "Which thing is $V?"}},
      // home
      {"The $S lives in the $V.",
       {"The $S lives in the $V.", "The home of the $S is the $V.", "The $S sleeps in the $V."},
       {"Where does the $S live?", "Tell me where the $S lives.",
        "In which place does the $S live?", "Which animal lives in the $V?"}},
      // count
      {"$S has $V $E.",
       {"$S has $V $E.", "$S bought $V $E.", "$S picked $V $E."},
       {"How many $E does $S have?", "Tell me how many $E $S has.", "Count the $E of $S."}},
      // job
      {"$S is the $V.",
       {"$S is the $V.", "$S works as the $V.", "The work of the $V is done by $S."},
       {"What is the work of $S?", "Tell me the work of $S.", "Who is the $V?",
        "Which person is the $V?"}},
      // gift
      {"$S gave the $E to $V.",
       {"$S gave the $E to $V.", "$S brought the $E to $V.", "$S sent the $E to $V."},
       {"To whom did $S give the $E?", "Who got the $E?", "Tell me who got the $E.",
        "What did $S give to $V?"}},
  };
  return texts[static_cast<std::size_t>(relation)];
}

std::string filled(std::string_view text, const Fact& fact) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      out += text[i];
      continue;
    }
    const char which = text[++i];
    out += which == 'S' ? fact.subject : which == 'V' ? fact.value : fact.extra;
  }
  return out;
}

}  // namespace

std::string statement(const Fact& fact) {
  return filled(text_of(fact.relation).statement, fact);
}

std::string telling(const Fact& fact, Dice& dice) {
  const RelationText& text = text_of(fact.relation);
  return filled(dice.chance(30) ? text.statement : dice.pick(text.tellings), fact);
}

std::string question(const Fact& fact, Dice& dice) {
  return filled(dice.pick(text_of(fact.relation).questions), fact);
}

Split split_of(std::string_view name, int held_out_sixteenths) {
  const char digit = core::fingerprint(name).front();
  const int sixteenth = digit <= '9' ? digit - '0' : digit - 'a' + 10;
  return sixteenth < held_out_sixteenths ? Split::held_out : Split::shown;
}

Split split_of(const Fact& fact) {
  return split_of(statement(fact), 2);
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] -= 'a' - 'A';
  return text;
}

}  // namespace finetune::quickstart
