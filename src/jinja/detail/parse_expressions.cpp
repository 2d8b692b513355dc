// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "jinja/detail/library.hpp"
#include "jinja/detail/parser.hpp"

namespace finetune::jinja::detail {

/// Ends texts that nest without end, before the stack does.
class ExpressionParser::Deeper {
 public:
  explicit Deeper(ExpressionParser& parser) : parser_(parser) {
    constexpr int deepest = 200;
    if (++parser_.depth_ > deepest) parser_.reader_.fail("expressions are nested too deeply");
  }
  ~Deeper() { --parser_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  ExpressionParser& parser_;
};

/// An expression, which counts its links if it is in no other.
class ExpressionParser::Whole {
 public:
  explicit Whole(ExpressionParser& parser) : parser_(parser) {
    if (parser_.whole_++ == 0) parser_.links_ = 0;
  }
  ~Whole() { --parser_.whole_; }
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;

 private:
  ExpressionParser& parser_;
};

void ExpressionParser::link() {
  constexpr int most = 500;  // Each is a level of the tree, which is evaluated from the top.
  if (++links_ > most)
    reader_.fail(fmt::format("an expression has more than {} parts in a row", most));
}

namespace {

/// `Node`: with left and right.
template <typename Node>
std::unique_ptr<Node> between(ExpressionPtr left, ExpressionPtr right) {
  auto node = std::make_unique<Node>();
  node->left = std::move(left);
  node->right = std::move(right);
  return node;
}

ExpressionPtr binary(Operation operation, ExpressionPtr left, ExpressionPtr right) {
  auto node = between<Binary>(std::move(left), std::move(right));
  node->operation = operation;
  return node;
}

}  // namespace

ExpressionPtr ExpressionParser::expression() {
  const Whole whole(*this);
  const Deeper deeper(*this);
  ExpressionPtr value = either();
  while (reader_.take_name("if")) {
    link();
    auto node = std::make_unique<Conditional>();
    node->then = std::move(value);
    node->condition = either();
    if (reader_.take_name("else")) node->otherwise = expression();
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::tuple(bool has_condition) {
  const Whole whole(*this);
  const auto one = [&] { return has_condition ? expression() : either(); };
  ExpressionPtr first = one();
  if (!reader_.now().is_sign(",")) return first;
  auto node = std::make_unique<SequenceDisplay>();
  node->is_tuple = true;
  node->items.push_back(std::move(first));
  while (reader_.take_sign(",")) {
    const Token& now = reader_.now();
    if (now.is_sign(")") || now.kind == Token::Kind::block_end ||
        now.kind == Token::Kind::variable_end)
      break;
    node->items.push_back(one());
  }
  return node;
}

ExpressionPtr ExpressionParser::either() {
  ExpressionPtr left = both();
  while (reader_.take_name("or")) {
    link();
    left = between<Logic>(std::move(left), both());
  }
  return left;
}

ExpressionPtr ExpressionParser::both() {
  ExpressionPtr left = negation();
  while (reader_.take_name("and")) {
    link();
    auto node = between<Logic>(std::move(left), negation());
    node->is_and = true;
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!reader_.take_name("not")) return comparison();
  const Deeper deeper(*this);
  auto node = std::make_unique<Unary>();
  node->of = negation();
  return node;
}

std::optional<Relation> ExpressionParser::take_relation() {
  constexpr std::array<std::pair<const char*, Relation>, 6> signs = {{{"==", Relation::equal},
                                                                      {"!=", Relation::unequal},
                                                                      {"<=", Relation::at_most},
                                                                      {">=", Relation::at_least},
                                                                      {"<", Relation::less},
                                                                      {">", Relation::greater}}};
  for (const auto& [sign, relation] : signs)
    if (reader_.take_sign(sign)) return relation;
  if (reader_.take_name("in")) return Relation::in;
  if (!reader_.now().is_name("not") || !reader_.next().is_name("in")) return std::nullopt;
  reader_.take();
  reader_.take();
  return Relation::not_in;
}

ExpressionPtr ExpressionParser::comparison() {
  ExpressionPtr first = sum();
  auto node = std::make_unique<Comparison>();
  while (const auto relation = take_relation())
    node->rest.emplace_back(*relation, sum());
  if (node->rest.empty()) return first;
  node->first = std::move(first);
  return node;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (reader_.now().is_sign("+") || reader_.now().is_sign("-")) {
    link();
    const bool is_plus = reader_.take().text == "+";
    left = binary(is_plus ? Operation::add : Operation::subtract, std::move(left), concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr left = product();
  while (reader_.take_sign("~")) {
    link();
    left = between<Concatenation>(std::move(left), product());
  }
  return left;
}

ExpressionPtr ExpressionParser::product() {
  constexpr std::array<std::pair<const char*, Operation>, 4> signs = {
      {{"*", Operation::multiply},
       {"/", Operation::divide},
       {"//", Operation::floor_divide},
       {"%", Operation::remainder}}};
  ExpressionPtr left = power();
  for (;;) {
    const auto found = std::ranges::find_if(
        signs, [&](const auto& sign) { return reader_.now().is_sign(sign.first); });
    if (found == signs.end()) return left;
    link();
    reader_.take();
    left = binary(found->second, std::move(left), power());
  }
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary();
  while (reader_.take_sign("**")) {
    link();
    left = binary(Operation::power, std::move(left), unary());
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Deeper deeper(*this);
  ExpressionPtr value;
  if (reader_.now().is_sign("-") || reader_.now().is_sign("+")) {
    auto node = std::make_unique<Unary>();
    node->sign = reader_.take().text == "-" ? Unary::Sign::minus : Unary::Sign::plus;
    node->of = unary(false);
    value = std::move(node);
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : std::move(value);
}

std::int64_t ExpressionParser::integer(const std::string& text) const {
  const bool has_base = text.size() > 1 && text[0] == '0' && text[1] > '9';
  const char kind = has_base ? static_cast<char>(text[1] | 0x20) : ' ';
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + (has_base ? 2 : 0), end, number, base);
  if (read.ec != std::errc() || read.ptr != end) reader_.fail(text + " is no number of 64 bits");
  return number;
}

ExpressionPtr ExpressionParser::primary() {
  const Token token = reader_.now();
  switch (token.kind) {
    case Token::Kind::name:
      reader_.take();
      if (token.text == "true" || token.text == "True") return std::make_unique<Literal>(true);
      if (token.text == "false" || token.text == "False") return std::make_unique<Literal>(false);
      if (token.text == "none" || token.text == "None") return std::make_unique<Literal>(Value());
      reader_.note(token.text);
      return std::make_unique<Name>(reader_.symbol(token.text));
    case Token::Kind::string: {
      std::string text;
      while (reader_.now().kind == Token::Kind::string)
        text += reader_.take().text;
      return std::make_unique<Literal>(std::move(text));
    }
    case Token::Kind::integer:
      reader_.take();
      return std::make_unique<Literal>(integer(token.text));
    case Token::Kind::real:
      reader_.take();
      return std::make_unique<Literal>(std::strtod(token.text.c_str(), nullptr));
    default:
      break;
  }
  if (token.is_sign("[")) return list();
  if (token.is_sign("{")) return dict();
  if (!reader_.take_sign("(")) reader_.fail_unexpected("a value");
  if (reader_.take_sign(")")) {
    auto empty = std::make_unique<SequenceDisplay>();
    empty->is_tuple = true;
    return empty;
  }
  ExpressionPtr inner = tuple();
  reader_.expect_sign(")");
  return inner;
}

ExpressionPtr ExpressionParser::list() {
  reader_.expect_sign("[");
  auto node = std::make_unique<SequenceDisplay>();
  while (!reader_.now().is_sign("]")) {
    if (!node->items.empty()) reader_.expect_sign(",");
    if (reader_.now().is_sign("]")) break;
    node->items.push_back(expression());
  }
  reader_.expect_sign("]");
  return node;
}

ExpressionPtr ExpressionParser::dict() {
  reader_.expect_sign("{");
  auto node = std::make_unique<DictDisplay>();
  while (!reader_.now().is_sign("}")) {
    if (!node->items.empty()) reader_.expect_sign(",");
    if (reader_.now().is_sign("}")) break;
    ExpressionPtr key = expression();
    reader_.expect_sign(":");
    node->items.emplace_back(std::move(key), expression());
  }
  reader_.expect_sign("}");
  return node;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr of) {
  for (;;) {
    if (reader_.now().is_sign(".") || reader_.now().is_sign("[")) {
      of = subscript(std::move(of));
    } else if (reader_.now().is_sign("(")) {
      link();
      auto node = std::make_unique<Call>();
      node->callee = std::move(of);
      node->arguments = arguments();
      of = std::move(node);
    } else {
      return of;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr of) {
  link();
  if (reader_.take_sign("[")) return element(std::move(of));
  reader_.expect_sign(".");
  const Token token = reader_.take();
  if (token.kind == Token::Kind::integer) {
    return std::make_unique<Item>(std::move(of), std::make_unique<Literal>(integer(token.text)));
  }
  if (token.kind != Token::Kind::name) reader_.fail("a name is expected behind \".\"");
  return std::make_unique<Attribute>(std::move(of), token.text);
}

/// Behind [: a key, or a slice.
ExpressionPtr ExpressionParser::element(ExpressionPtr of) {
  ExpressionPtr start;
  if (!reader_.now().is_sign(":")) start = expression();
  if (!reader_.now().is_sign(":")) {
    reader_.expect_sign("]");
    return std::make_unique<Item>(std::move(of), std::move(start));
  }
  auto node = std::make_unique<Slice>();
  node->of = std::move(of);
  node->start = std::move(start);
  const auto is_left_out = [&] { return reader_.now().is_sign(":") || reader_.now().is_sign("]"); };
  reader_.take();
  if (!is_left_out()) node->stop = expression();
  if (reader_.take_sign(":") && !is_left_out()) node->step = expression();
  reader_.expect_sign("]");
  return node;
}

CallArguments ExpressionParser::arguments() {
  const Whole whole(*this);
  CallArguments all;
  reader_.expect_sign("(");
  for (bool is_first = true; !reader_.now().is_sign(")"); is_first = false) {
    if (!is_first) reader_.expect_sign(",");
    if (reader_.now().is_sign(")")) break;
    if (reader_.take_sign("**")) {
      all.more_named = expression();
    } else if (reader_.take_sign("*")) {
      all.more_positional = expression();
    } else if (reader_.now().kind == Token::Kind::name && reader_.next().is_sign("=")) {
      std::string name = reader_.take().text;
      reader_.take();
      all.named.emplace_back(std::move(name), expression());
    } else {
      if (!all.named.empty())
        reader_.fail("an argument without a name stands behind one with a name");
      all.positional.push_back(expression());
    }
  }
  reader_.expect_sign(")");
  return all;
}

std::unique_ptr<Filter> ExpressionParser::filter(ExpressionPtr of) {
  const Whole whole(*this);
  link();
  std::unique_ptr<Filter> node;
  try {
    node = std::make_unique<Filter>(reader_.expect_any_name("the name of a filter"));
  } catch (const Problem& problem) {
    reader_.fail(problem.what());
  }
  node->of = std::move(of);
  if (reader_.now().is_sign("(")) node->arguments = arguments();
  return node;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr of) {
  for (;;) {
    if (reader_.take_sign("|")) {
      of = filter(std::move(of));
    } else if (reader_.now().is_name("is")) {
      of = test(std::move(of));
    } else if (reader_.now().is_sign("(")) {
      of = postfix(std::move(of));
    } else {
      return of;
    }
  }
}

ExpressionPtr ExpressionParser::test(ExpressionPtr of) {
  link();
  reader_.expect_name("is");
  const bool is_negated = reader_.take_name("not");
  const std::string name = reader_.expect_any_name("the name of a test");
  if (!question_of(name)) reader_.fail("there is no test \"" + name + "\"");
  auto node = std::make_unique<Test>(name);
  node->is_negated = is_negated;
  node->of = std::move(of);
  const Token& now = reader_.now();
  const bool begins_value = now.kind == Token::Kind::string || now.kind == Token::Kind::integer ||
                            now.kind == Token::Kind::real || now.is_sign("[") || now.is_sign("{");
  const bool is_word = now.kind == Token::Kind::name;
  const bool goes_on =
      is_word && (now.text == "else" || now.text == "or" || now.text == "and" || now.text == "is" ||
                  now.text == "if" || now.text == "in" || now.text == "not");
  if (now.is_sign("("))
    node->arguments = arguments();
  else if (begins_value || (is_word && !goes_on))
    node->arguments.positional.push_back(postfix(primary()));
  return node;
}

}  // namespace finetune::jinja::detail
