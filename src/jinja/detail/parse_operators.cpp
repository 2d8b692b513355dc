// SPDX-License-Identifier: Apache-2.0
// Operators between two values, from those that bind least to those that bind most.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "jinja/detail/parser.hpp"

namespace finetune::jinja::detail {
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

}  // namespace finetune::jinja::detail
