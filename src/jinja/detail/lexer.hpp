#pragma once
// SPDX-License-Identifier: Apache-2.0
// A template's text as tokens, with white space around blocks kept or dropped as its settings say.

#include <string>
#include <string_view>
#include <vector>

#include "jinja/template.hpp"

namespace finetune::jinja {

struct Token {
  enum class Kind {
    data,            ///< text between blocks
    variable_begin,  ///< {{
    variable_end,
    block_begin,  ///< {%
    block_end,
    name,
    string,
    integer,
    real,
    sign,  ///< an operator or a bracket
    end,
  };

  Kind kind = Kind::end;
  std::string text;  ///< of strings without quotes, escapes resolved
  int line = 1;

  bool is(Kind other, std::string_view word) const { return kind == other && text == word; }
  bool is_sign(std::string_view word) const { return is(Kind::sign, word); }
  bool is_name(std::string_view word) const { return is(Kind::name, word); }
};

/// Throws: Problem naming the line of what is no template.
std::vector<Token> tokens_of(std::string_view text, const Settings& settings);

}  // namespace finetune::jinja
