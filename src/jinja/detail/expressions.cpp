// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "jinja/detail/library.hpp"
#include "jinja/detail/nodes.hpp"

namespace finetune::jinja::detail {
namespace {

Value value_or_none(const ExpressionPtr& expression, Run& run, const ScopePtr& scope) {
  return expression ? expression->value(run, scope) : Value();
}

/// "message.content.split", where the text says it so.
std::string name_of(const Expression& expression) {
  if (const auto* name = dynamic_cast<const Name*>(&expression)) return name->name;
  if (const auto* attribute = dynamic_cast<const Attribute*>(&expression))
    return name_of(*attribute->of) + "." + attribute->name;
  return "what is called";
}

bool holds(const std::string& sign, const Value& a, const Value& b) {
  if (sign == "==") return a == b;
  if (sign == "!=") return !(a == b);
  if (sign == "in" || sign == "not in") return contains(b, a) == (sign == "in");
  require_defined(a);
  require_defined(b);
  const int order = compare(a, b);
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  return sign == ">" ? order > 0 : order >= 0;
}

}  // namespace

Scope::~Scope() {
  for (auto& [mapping, value] : emptied_at_end_) {
    const auto items = std::exchange(value.shared_mapping().items, {});
  }
}

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get())
    for (const auto& [own, value] : scope->own_)
      if (own == name) return &value;
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [own, held] : own_) {
    if (own != name) continue;
    held = std::move(value);
    return;
  }
  own_.emplace_back(name, std::move(value));
}

void Scope::set_field(const Value& of, const std::string& field, Value value) {
  Scope* outermost = this;
  while (outermost->outer_)
    outermost = outermost->outer_.get();
  outermost->emptied_at_end_.try_emplace(&of.mapping(), of);
  of.shared_mapping().set(field, std::move(value));
}

Arguments CallArguments::values(Run& run, const ScopePtr& scope) const {
  Arguments all;
  for (const ExpressionPtr& argument : positional)
    all.positional.push_back(argument->value(run, scope));
  if (more_positional)
    for (Value& value : elements_of(more_positional->value(run, scope)))
      all.positional.push_back(std::move(value));
  for (const auto& [name, argument] : named)
    all.named.emplace_back(name, argument->value(run, scope));
  if (!more_named) return all;
  const Value more = more_named->value(run, scope);
  if (!more.is_mapping()) throw Problem("** asks for a dict, not " + more.type_name());
  for (const auto& [name, value] : more.mapping().items)
    all.named.emplace_back(to_text(name), value);
  return all;
}

Value Literal::value(Run& run, const ScopePtr&) const {
  run.budget.spend();
  return held;
}

Value Name::value(Run& run, const ScopePtr& scope) const {
  run.budget.spend();
  if (const Value* found = scope->find(name)) return *found;
  if (auto known = global(name, run.now_s, run.budget)) return *known;
  return run.budget.undefined(name);
}

Value SequenceDisplay::value(Run& run, const ScopePtr& scope) const {
  std::vector<Value> values;
  for (const ExpressionPtr& item : items)
    values.push_back(item->value(run, scope));
  return Sequence{std::move(values), is_tuple};
}

Value DictDisplay::value(Run& run, const ScopePtr& scope) const {
  Mapping mapping;
  for (const auto& [key, item] : items) {
    const Value name = key->value(run, scope);
    mapping.set(name, item->value(run, scope));
  }
  return mapping;
}

Value Attribute::value(Run& run, const ScopePtr& scope) const {
  const Value held = of->value(run, scope);
  run.budget.spend();
  return attribute_of(held, name, run.budget);
}

Value Item::value(Run& run, const ScopePtr& scope) const {
  const Value held = of->value(run, scope);
  run.budget.spend();
  return item_of(held, key->value(run, scope), run.budget);
}

Value Slice::value(Run& run, const ScopePtr& scope) const {
  const Value held = of->value(run, scope);
  const Value from = value_or_none(start, run, scope), to = value_or_none(stop, run, scope);
  return slice_of(held, from, to, value_or_none(step, run, scope), run.budget);
}

Value Call::value(Run& run, const ScopePtr& scope) const {
  const Value called = callee->value(run, scope);
  const Arguments values = arguments.values(run, scope);
  run.budget.spend();
  return call(called, values, name_of(*callee));
}

Value Filter::value(Run& run, const ScopePtr& scope) const {
  return apply(of->value(run, scope), run, scope);
}

Value Filter::apply(const Value& to, Run& run, const ScopePtr& scope) const {
  const Arguments values = arguments.values(run, scope);
  run.budget.spend();
  return filtered(name, to, values, run.budget);
}

Value Test::value(Run& run, const ScopePtr& scope) const {
  const Value held = of->value(run, scope);
  run.budget.spend();
  return tested(name, held, arguments.values(run, scope)) != is_negated;
}

Value Unary::value(Run& run, const ScopePtr& scope) const {
  const Value held = of->value(run, scope);
  run.budget.spend();
  if (sign == "not") return !held.is_true();
  require_defined(held);
  if (!held.is_number())
    throw Problem(fmt::format("{} asks for a number, not {}", sign, held.type_name()));
  return compute(sign, Value(0), held, run.budget);
}

Value Binary::value(Run& run, const ScopePtr& scope) const {
  const Value a = left->value(run, scope);
  run.budget.spend();
  if (sign == "and") return a.is_true() ? right->value(run, scope) : a;
  if (sign == "or") return a.is_true() ? a : right->value(run, scope);
  const Value b = right->value(run, scope);
  if (sign != "~") return compute(sign, a, b, run.budget);
  std::string text = to_text(a) + to_text(b);
  run.budget.spend_bytes(static_cast<std::int64_t>(text.size()));
  return text;
}

Value Comparison::value(Run& run, const ScopePtr& scope) const {
  Value left = first->value(run, scope);
  for (const auto& [sign, expression] : rest) {
    Value right = expression->value(run, scope);
    run.budget.spend();
    if (!holds(sign, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Conditional::value(Run& run, const ScopePtr& scope) const {
  run.budget.spend();
  if (condition->value(run, scope).is_true()) return then->value(run, scope);
  // Not even a strict template ends by this, as in Jinja.
  return otherwise ? otherwise->value(run, scope)
                   : Value(Value::Undefined{"the value of an if without else"});
}

}  // namespace finetune::jinja::detail
