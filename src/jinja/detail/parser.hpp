#pragma once
// SPDX-License-Identifier: Apache-2.0
// From tokens to statements and expressions.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/detail/lexer.hpp"
#include "jinja/detail/nodes.hpp"

namespace finetune::jinja::detail {

/// Where the parser stands among the tokens, and what both halves of it ask.
class Reader {
 public:
  Reader(std::vector<Token> tokens, Symbols& symbols)
      : tokens_(std::move(tokens)), symbols_(symbols) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  /// Whether `name` was read as a variable since the last call, for those that macros look for.
  struct Asked {
    bool varargs = false, kwargs = false;
  };
  void note(std::string_view name);
  Symbol symbol(const std::string& name) { return symbols_.of(name); }
  Asked asked() { return std::exchange(asked_, {}); }
  void set_asked(Asked asked) { asked_ = asked; }
  bool take_sign(std::string_view sign);
  bool take_name(std::string_view name);
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  void expect(Token::Kind kind, const char* what);
  std::string expect_any_name(const char* what);
  [[noreturn]] void fail(const std::string& problem) const;
  [[noreturn]] void fail_unexpected(const std::string& wanted) const;

 private:
  std::vector<Token> tokens_;
  Symbols& symbols_;
  std::size_t at_ = 0;
  Asked asked_;
};

/// One expression each.
class ExpressionParser {
 public:
  explicit ExpressionParser(Reader& reader) : reader_(reader) {}

  ExpressionPtr expression();
  /// Several, between commas, are a tuple. `has_condition`: "a if b" belongs to it.
  ExpressionPtr tuple(bool has_condition = true);
  CallArguments arguments();
  /// "| name(...)" behind `of`.
  ExpressionPtr filters(ExpressionPtr of);
  std::unique_ptr<Filter> filter(ExpressionPtr of);

 private:
  class Deeper;
  class Whole;
  /// Counts another node on top of those before it, as in a.b.c or a + b + c.
  void link();
  std::optional<Relation> take_relation();
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters = true);
  ExpressionPtr primary();
  std::int64_t integer(const std::string& text) const;
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr of);
  ExpressionPtr subscript(ExpressionPtr of);
  ExpressionPtr element(ExpressionPtr of);
  ExpressionPtr test(ExpressionPtr of);

  Reader& reader_;
  int depth_ = 0;
  int whole_ = 0;  ///< expressions within each other
  int links_ = 0;  ///< of the outermost
};

struct Parsed {
  Symbols symbols;
  Body body;
  bool has_generation = false;
};
/// Throws: Problem "line 3: ...".
std::shared_ptr<const Parsed> parse(std::vector<Token> tokens);

}  // namespace finetune::jinja::detail
