// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "jinja/detail/parser.hpp"

namespace finetune::jinja::detail {

void Reader::note(std::string_view name) {
  asked_.varargs = asked_.varargs || name == "varargs";
  asked_.kwargs = asked_.kwargs || name == "kwargs";
}

bool Reader::take_sign(std::string_view sign) {
  if (!now().is_sign(sign)) return false;
  take();
  return true;
}

bool Reader::take_name(std::string_view name) {
  if (!now().is_name(name)) return false;
  take();
  return true;
}

void Reader::expect_sign(std::string_view sign) {
  if (!take_sign(sign)) fail_unexpected(fmt::format("\"{}\"", sign));
}

void Reader::expect_name(std::string_view name) {
  if (!take_name(name)) fail_unexpected(fmt::format("\"{}\"", name));
}

void Reader::expect(Token::Kind kind, const char* what) {
  if (now().kind != kind) fail_unexpected(what);
  take();
}

std::string Reader::expect_any_name(const char* what) {
  if (now().kind != Token::Kind::name) fail_unexpected(what);
  return take().text;
}

void Reader::fail(const std::string& problem) const {
  throw Problem(fmt::format("line {}: {}", now().line, problem));
}

void Reader::fail_unexpected(const std::string& wanted) const {
  const auto text_of = [](const Token& token) -> std::string {
    switch (token.kind) {
      case Token::Kind::end:
        return "the end of the template";
      case Token::Kind::block_end:
        return "the end of the block";
      case Token::Kind::variable_end:
        return "}}";
      case Token::Kind::block_begin:
        return "{%";
      case Token::Kind::variable_begin:
        return "{{";
      default:
        return "\"" + token.text + "\"";
    }
  };
  fail(fmt::format("{} is expected, not {}", wanted, text_of(now())));
}

}  // namespace finetune::jinja::detail
