// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "jinja/detail/filters.hpp"
#include "jinja/detail/library.hpp"
#include "jinja/detail/nodes.hpp"

namespace finetune::jinja::detail {
namespace {

Value value_or_none(const ExpressionPtr& expression, Run& run, const ScopePtr& scope) {
  return expression ? expression->value(run, scope) : Value();
}

/// "message.content.split", where the text says it so.
std::string name_of(const Expression& expression) {
  if (const auto* name = dynamic_cast<const Name*>(&expression)) return *name->name;
  if (const auto* attribute = dynamic_cast<const Attribute*>(&expression))
    return name_of(*attribute->of) + "." + attribute->name;
  return "what is called";
}

bool holds(Relation relation, const Value& a, const Value& b) {
  switch (relation) {
    case Relation::equal:
      return a == b;
    case Relation::unequal:
      return !(a == b);
    case Relation::in:
      return contains(b, a);
    case Relation::not_in:
      return !contains(b, a);
    default:
      break;
  }
  require_defined(a);
  require_defined(b);
  const int order = compare(a, b);
  if (relation == Relation::less) return order < 0;
  if (relation == Relation::at_most) return order <= 0;
  return relation == Relation::greater ? order > 0 : order >= 0;
}

}  // namespace

Scope::~Scope() {
  for (auto& [mapping, value] : emptied_at_end_) {
    const auto items = std::exchange(value.shared_mapping().items, {});
  }
}

const Value* Scope::find(Symbol name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get())
    for (const auto& [own, value] : scope->own_)
      if (own == name) return &value;
  return nullptr;
}

void Scope::set(Symbol name, Value value) {
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
  if (!more.is_mapping()) throw Problem(std::string("** asks for a dict, not ") + more.type_name());
  for (const auto& [name, value] : more.mapping().items)
    all.named.emplace_back(to_text(name), value);
  return all;
}

Value Literal::value(Run& run, const ScopePtr&) const {
  run.budget.spend();
  return held;
}

const Value& Literal::look(Run& run, const ScopePtr&, Value&) const {
  run.budget.spend();
  return held;
}

Value Name::value(Run& run, const ScopePtr& scope) const {
  Value made;
  return look(run, scope, made);
}

const Value& Name::look(Run& run, const ScopePtr& scope, Value& made) const {
  run.budget.spend();
  if (const Value* found = scope->find(name)) return *found;
  auto known = global(*name, run.now_s, run.budget);
  return made = known ? *std::move(known) : run.budget.undefined(*name);
}

Value SequenceDisplay::value(Run& run, const ScopePtr& scope) const {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExpressionPtr& item : items)
    values.push_back(item->value(run, scope));
  return Sequence{std::move(values), is_tuple};
}

/// A message that the template makes anew is part of the element that it quotes.
Value DictDisplay::value(Run& run, const ScopePtr& scope) const {
  Mapping mapping;
  mapping.element = run.element_of(run.turn);
  for (const auto& [key, item] : items) {
    const Value name = key->value(run, scope);
    Value held = item->value(run, scope);
    if (held.is_string())
      if (const Origin said = held.text().data_origin(); said.element != Origin::none)
        mapping.element = said.element;
    mapping.set(name, std::move(held));
  }
  return mapping;
}

Attribute::Attribute(ExpressionPtr whole, std::string n)
    : of(std::move(whole)),
      name(std::move(n)),
      is_key(!is_method_of_mapping(name) && !name.starts_with("__")) {}

Value Attribute::value(Run& run, const ScopePtr& scope) const {
  Value made;
  return look(run, scope, made);
}

const Value& Attribute::look(Run& run, const ScopePtr& scope, Value& made) const {
  Value room;
  const Value& held = of->look(run, scope, room);
  run.budget.spend();
  if (!is_key || !held.is_mapping()) return made = attribute_of(held, name, run.budget);
  const Value* found = held.mapping().named(name);
  if (found == nullptr) return made = run.budget.undefined(name, held.type_name());
  // What lies in `room` goes with it.
  return &held == &room ? (made = *found) : *found;
}

Item::Item(ExpressionPtr whole, ExpressionPtr k) : of(std::move(whole)), key(std::move(k)) {
  if (const auto* name = dynamic_cast<const Name*>(key.get())) index = name->name;
  const auto* attribute = dynamic_cast<const Attribute*>(key.get());
  counts = index != nullptr || (attribute != nullptr && attribute->name == "index0");
}

Value Item::value(Run& run, const ScopePtr& scope) const {
  Value made;
  return look(run, scope, made);
}

const Value& Item::look(Run& run, const ScopePtr& scope, Value& made) const {
  const Value held = of->value(run, scope);
  run.budget.spend();
  Value room;
  const Value& place = key->look(run, scope, room);
  made = item_of(held, place, run.budget);
  if (counts && made.is_mapping()) run.reach(made.mapping().element, Reach::indexed, index);
  return made;
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
  return call(called, values, called.is_callable() ? std::string() : name_of(*callee));
}

Filter::Filter(std::string n) : name(std::move(n)), function(filter_of(name)) {}

Value Filter::value(Run& run, const ScopePtr& scope) const {
  Value room;
  if (arguments.is_empty()) return apply(of->look(run, scope, room), run, scope);
  return apply(of->value(run, scope), run, scope);
}

Value Filter::apply(const Value& to, Run& run, const ScopePtr& scope) const {
  const Arguments values = arguments.values(run, scope);
  run.budget.spend();
  return function({to, values, name, run.budget});
}

Test::Test(std::string n) : name(std::move(n)), question(*question_of(name)) {}

Value Test::value(Run& run, const ScopePtr& scope) const {
  if (arguments.is_empty()) {
    Value room;
    const Value& held = of->look(run, scope, room);
    run.budget.spend();
    return tested(question, name, held, {}) != is_negated;
  }
  const Value held = of->value(run, scope);
  run.budget.spend();
  return tested(question, name, held, arguments.values(run, scope)) != is_negated;
}

Value Unary::value(Run& run, const ScopePtr& scope) const {
  Value room;
  const Value& held = of->look(run, scope, room);
  run.budget.spend();
  if (sign == Sign::negation) return !held.is_true();
  require_defined(held);
  const bool is_minus = sign == Sign::minus;
  if (!held.is_number())
    throw Problem(
        fmt::format("{} asks for a number, not {}", is_minus ? "-" : "+", held.type_name()));
  if (held.is_float()) return is_minus ? -held.number() : held.number();  // 0 keeps its sign
  return compute(is_minus ? Operation::subtract : Operation::add, Value(0), held, run.budget);
}

Value Binary::value(Run& run, const ScopePtr& scope) const {
  const Value a = left->value(run, scope);
  run.budget.spend();
  Value room;
  return compute(operation, a, right->look(run, scope, room), run.budget);
}

Value Logic::value(Run& run, const ScopePtr& scope) const {
  Value a = left->value(run, scope);
  run.budget.spend();
  return a.is_true() == is_and ? right->value(run, scope) : a;
}

Value Concatenation::value(Run& run, const ScopePtr& scope) const {
  Text text = to_written(left->value(run, scope));
  run.budget.spend();
  Value room;
  const Value& b = right->look(run, scope, room);
  text += b.is_string() ? b.text() : to_written(b);
  run.budget.spend_bytes(static_cast<std::int64_t>(text.size()));
  return text;
}

Value Comparison::value(Run& run, const ScopePtr& scope) const {
  Value left = first->value(run, scope);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    Value room;
    const Value& right = rest[i].second->look(run, scope, room);
    run.budget.spend();
    if (!holds(rest[i].first, left, right)) return false;
    if (i + 1 < rest.size()) left = Value(right);
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
