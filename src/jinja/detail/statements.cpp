// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "jinja/detail/library.hpp"
#include "jinja/detail/nodes.hpp"

namespace finetune::jinja::detail {
namespace {

constexpr int deepest = 100;

ScopePtr inside(const ScopePtr& scope) {
  return std::make_shared<Scope>(scope);
}

/// What a body knows as `loop`.
struct Round {
  Budget& budget;
  std::vector<Value> items = {};
  std::size_t index = 0;
  std::optional<Value> last_changed = {};
  std::int64_t depth0 = 0;  ///< of a recursive loop, how often it is called within itself

  std::int64_t number() const { return static_cast<std::int64_t>(index); }
  std::int64_t length() const { return static_cast<std::int64_t>(items.size()); }
};

std::optional<Value> field_of(const std::shared_ptr<Round>& round, const std::string& name) {
  const std::int64_t i = round->number(), n = round->length();
  if (name == "index") return i + 1;
  if (name == "index0") return i;
  if (name == "revindex") return n - i;
  if (name == "revindex0") return n - i - 1;
  if (name == "first") return i == 0;
  if (name == "last") return i + 1 == n;
  if (name == "length") return n;
  if (name == "depth") return round->depth0 + 1;
  if (name == "depth0") return round->depth0;
  if (name == "previtem")
    return i > 0 ? round->items[round->index - 1] : round->budget.undefined("loop.previtem");
  if (name == "nextitem")
    return i + 1 < n ? round->items[round->index + 1] : round->budget.undefined("loop.nextitem");
  if (name == "cycle")
    return Callable{"loop.cycle", [round](const Arguments& arguments) -> Value {
                      if (arguments.positional.empty()) throw Problem("loop.cycle has no values");
                      return arguments.positional[round->index % arguments.positional.size()];
                    }};
  if (name == "changed")
    return Callable{"loop.changed", [round](const Arguments& arguments) -> Value {
                      Value now = Value::tuple(arguments.positional);
                      const bool is_new = !round->last_changed || !(*round->last_changed == now);
                      round->last_changed = std::move(now);
                      return is_new;
                    }};
  return std::nullopt;
}

Value loop_object(const std::shared_ptr<Round>& round,
                  std::function<Value(const Arguments&)> called) {
  return Callable{"loop", std::move(called),
                  [round](const std::string& name) { return field_of(round, name); }};
}

Value refuse_call(const Arguments&) {
  throw Problem("loop is called, but it is of a {% for %} without \"recursive\" at its end");
}

/// Macros and blocks in each other, counted.
class Deeper {
 public:
  explicit Deeper(Run& run) : run_(run) {
    if (++run_.depth > deepest) throw Problem("macros or loops call each other without end");
  }
  ~Deeper() { --run_.depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Run& run_;
};

/// For as long as it lives, another turn is in force, which is about what is reached in it.
class TurnOf {
 public:
  explicit TurnOf(Run& run, Symbol index = nullptr) : run_(run), outer_(run.turn) {
    run.turn = static_cast<std::int32_t>(run.turns.size());
    run.turns.push_back({.outer = outer_, .index = index});
  }
  ~TurnOf() { run_.turn = outer_; }
  TurnOf(const TurnOf&) = delete;
  TurnOf& operator=(const TurnOf&) = delete;

 private:
  Run& run_;
  std::int32_t outer_;
};

/// What `write` writes, as text.
template <typename F>
Text captured(Run& run, const F& write) {
  const Deeper deeper(run);
  Text outside = std::exchange(run.out, {});
  write();
  return std::exchange(run.out, std::move(outside));
}

bool is_true(const Expression& condition, Run& run, const ScopePtr& scope) {
  Value room;
  return condition.look(run, scope, room).is_true();
}

/// What a namespace keeps was written in the turn in which it was put there.
Value kept(const Value& value, std::int32_t turn) {
  if (turn == Origin::none) return value;
  if (value.is_sequence()) {
    Sequence all{{}, value.sequence().is_tuple};
    for (const Value& item : value.sequence().items)
      all.items.push_back(item.is_string() ? kept(item, turn) : item);
    return all;
  }
  if (!value.is_string() || value.structure_or_null() != nullptr) return value;
  Text text = value.text();
  text.set_turn(turn);
  return text;
}

}  // namespace

Flow Body::execute(Run& run, const ScopePtr& scope) const {
  for (const auto& statement : statements) {
    run.line = statement->line;
    run.budget.spend();
    if (const Flow flow = statement->execute(run, scope); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Text Body::capture(Run& run, const ScopePtr& scope) const {
  return captured(run, [&] { execute(run, scope); });
}

void Target::assign(const Value& value, Run& run, const ScopePtr& scope) const {
  if (!parts.empty()) {
    require_defined(value);
    const std::vector<Value> values = elements_of(value);
    if (values.size() != parts.size())
      throw Problem(fmt::format("{} names are given {} values", parts.size(), values.size()));
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i].assign(values[i], run, scope);
  } else if (field.empty()) {
    if (value.is_mapping()) run.reach(value.mapping().element, Reach::named);
    scope->set(name, value);
  } else {
    const Value* held = scope->find(name);
    if (held == nullptr || !held->is_mapping() || !held->mapping().is_namespace)
      throw Problem(fmt::format("{} is no namespace: only fields of those can be set", *name));
    scope->set_field(*held, field, kept(value, run.turn));
  }
}

Flow If::execute(Run& run, const ScopePtr& scope) const {
  for (const auto& [condition, body] : branches)
    if (is_true(*condition, run, scope)) return body.execute(run, scope);
  return otherwise.execute(run, scope);
}

Flow For::execute(Run& run, const ScopePtr& scope) const {
  return iterate(over->value(run, scope), 0, run, scope);
}

Flow For::iterate(const Value& all, std::int64_t depth0, Run& run, const ScopePtr& scope) const {
  const auto round = std::make_shared<Round>(Round{.budget = run.budget, .depth0 = depth0});
  round->items = all.is_sequence() ? all.sequence().items : elements_of(all);
  run.budget.spend(std::ssize(round->items));
  if (condition)
    std::erase_if(round->items, [&](const Value& item) {
      const TurnOf turn(run);
      const ScopePtr tried = inside(scope);
      target.assign(item, run, tried);
      return !is_true(*condition, run, tried);
    });
  if (round->items.empty()) return otherwise.execute(run, inside(scope));
  const Value loop = is_recursive ? loop_object(round, recursion(depth0 + 1, run, scope))
                                  : loop_object(round, refuse_call);
  // A round that is left in its midst is none to Jinja's {% else %}.
  bool is_without_rounds = true;
  ScopePtr own = inside(scope);
  for (; round->index < round->items.size(); ++round->index) {
    // A macro of the last round may still know its names.
    if (own.use_count() == 1)
      own->clear();
    else
      own = inside(scope);
    const Value& item = round->items[round->index];
    // A part of a message, such as a call, begins none where its message has none.
    const bool is_part = item.is_mapping() && item.mapping().is_part;
    std::optional<TurnOf> turn;
    if (!is_part || run.turn != Origin::none) turn.emplace(run, target.name);
    if (item.is_mapping()) run.reach(item.mapping().element, Reach::looped);
    own->set(run.symbols.loop, loop);
    target.assign(item, run, own);
    const Flow flow = body.execute(run, own);
    if (flow == Flow::next) is_without_rounds = false;
    if (flow == Flow::stop_loop) break;
  }
  return is_without_rounds ? otherwise.execute(run, inside(scope)) : Flow::next;
}

/// What `loop(...)` is in a recursive loop: another loop over what it is given, as text.
std::function<Value(const Arguments&)> For::recursion(std::int64_t depth0, Run& run,
                                                      const ScopePtr& scope) const {
  // A scope that holds its own loop would never be freed.
  const std::weak_ptr<Scope> looped_in = scope;
  return [this, &run, looped_in, depth0](const Arguments& arguments) -> Value {
    const ScopePtr outer = looped_in.lock();
    if (!outer) throw Problem("loop is called behind its {% endfor %}");
    arguments.require("loop", 1);
    if (arguments.positional.empty()) throw Problem("loop asks for what it is to loop over");
    const int line = run.line;
    Text text = captured(run, [&] { iterate(arguments.positional.front(), depth0, run, outer); });
    run.line = line;
    return text;
  };
}

Flow Set::execute(Run& run, const ScopePtr& scope) const {
  if (value) {
    target.assign(value->value(run, scope), run, scope);
    return Flow::next;
  }
  Value written = body.capture(run, inside(scope));
  for (const auto& filter : filters)
    written = filter->apply(written, run, scope);
  target.assign(written, run, scope);
  return Flow::next;
}

Flow Macro::execute(Run& run, const ScopePtr& scope) const {
  scope->set(name, function(run, scope));
  return Flow::next;
}

Value Macro::function(Run& run, const ScopePtr& scope) const {
  // A scope that holds its own macro would never be freed.
  const std::weak_ptr<Scope> defined_in = scope;
  return Callable{*name, [this, &run, defined_in](const Arguments& arguments) -> Value {
                    const ScopePtr outer = defined_in.lock();
                    if (!outer) throw Problem(*name + " is called outside of where it was defined");
                    return call(arguments, run, outer);
                  }};
}

/// What it writes is about the first element that it is given.
Value Macro::call(const Arguments& arguments, Run& run, const ScopePtr& outer) const {
  const ScopePtr own = inside(outer);
  const int line = run.line;
  const TurnOf turn(run, parameters.empty() ? nullptr : parameters.front().first);
  for (const Value& given : arguments.positional)
    if (given.is_mapping()) run.reach(given.mapping().element, Reach::looped);
  for (const auto& [parameter, given] : arguments.named)
    if (given.is_mapping()) run.reach(given.mapping().element, Reach::looped);
  bind(arguments, run, own);
  Text text = body.capture(run, own);
  run.line = line;
  return text;
}

/// Parameters, by place or by name, and what is given in addition.
void Macro::bind(const Arguments& arguments, Run& run, const ScopePtr& own) const {
  auto rest = arguments.named;
  const auto take = [&](const std::string& wanted) -> std::optional<Value> {
    const auto found =
        std::ranges::find_if(rest, [&](const auto& item) { return item.first == wanted; });
    if (found == rest.end()) return std::nullopt;
    Value value = std::move(found->second);
    rest.erase(found);
    return value;
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [parameter, fallback] = parameters[i];
    std::optional<Value> given =
        i < arguments.positional.size() ? std::optional(arguments.positional[i]) : take(*parameter);
    if (!given)
      given = fallback
                  ? fallback->value(run, own)
                  : run.budget.undefined(fmt::format("\"{}\" of the macro {}", *parameter, *name));
    own->set(parameter, *std::move(given));
  }
  if (auto caller = take("caller")) own->set(run.symbols.caller, *std::move(caller));
  std::vector<Value> more;
  for (std::size_t i = parameters.size(); i < arguments.positional.size(); ++i)
    more.push_back(arguments.positional[i]);
  if (!more.empty() && !takes_varargs)
    throw Problem(fmt::format("macro {} takes at most {} arguments", *name, parameters.size()));
  if (!rest.empty() && !takes_kwargs)
    throw Problem(fmt::format("macro {} has no argument {}", *name, rest.front().first));
  if (takes_varargs) own->set(run.symbols.varargs, Value::tuple(std::move(more)));
  if (!takes_kwargs) return;
  Mapping named;
  for (auto& [given, value] : rest)
    named.set(given, std::move(value));
  own->set(run.symbols.kwargs, std::move(named));
}

Flow CallBlock::execute(Run& run, const ScopePtr& scope) const {
  const Value called = call->callee->value(run, scope);
  Arguments arguments = call->arguments.values(run, scope);
  arguments.named.emplace_back("caller", caller.function(run, scope));
  run.write(to_written(detail::call(called, arguments, "what {% call %} names")));
  return Flow::next;
}

Flow FilterBlock::execute(Run& run, const ScopePtr& scope) const {
  Value written = body.capture(run, inside(scope));
  for (const auto& filter : filters)
    written = filter->apply(written, run, scope);
  run.write(to_written(written));
  return Flow::next;
}

Flow With::execute(Run& run, const ScopePtr& scope) const {
  const ScopePtr own = inside(scope);
  for (const auto& [target, value] : names)
    target.assign(value->value(run, scope), run, own);
  return body.execute(run, own);
}

Flow Generation::execute(Run& run, const ScopePtr& scope) const {
  Text text = body.capture(run, inside(scope));
  text.mark_generation();
  run.out += text;
  return Flow::next;
}

}  // namespace finetune::jinja::detail
