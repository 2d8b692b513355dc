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
  if (name == "depth") return 1;
  if (name == "depth0") return 0;
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

Value loop_object(const std::shared_ptr<Round>& round) {
  return Callable{
      "loop",
      [](const Arguments&) -> Value { throw Problem("recursive loops are not known here"); },
      [round](const std::string& name) { return field_of(round, name); }};
}

/// Macros and blocks in each other, counted.
class Deeper {
 public:
  explicit Deeper(Run& run) : run_(run) {
    if (++run_.depth > deepest) throw Problem("macros call each other without end");
  }
  ~Deeper() { --run_.depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Run& run_;
};

}  // namespace

void Run::write(const std::string& text) {
  budget.spend_bytes(static_cast<std::int64_t>(text.size()));
  out += text;
}

Flow Body::execute(Run& run, const ScopePtr& scope) const {
  for (const auto& statement : statements) {
    run.line = statement->line;
    run.budget.spend();
    if (const Flow flow = statement->execute(run, scope); flow != Flow::next) return flow;
  }
  return Flow::next;
}

std::string Body::capture(Run& run, const ScopePtr& scope) const {
  const Deeper deeper(run);
  std::string outside = std::exchange(run.out, {});
  const bool was_captured = std::exchange(run.is_captured, true);
  execute(run, scope);
  run.is_captured = was_captured;
  return std::exchange(run.out, std::move(outside));
}

void Target::assign(const Value& value, const ScopePtr& scope) const {
  if (!parts.empty()) {
    require_defined(value);
    const std::vector<Value> values = elements_of(value);
    if (values.size() != parts.size())
      throw Problem(fmt::format("{} names are given {} values", parts.size(), values.size()));
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i].assign(values[i], scope);
  } else if (field.empty()) {
    scope->set(name, value);
  } else {
    const Value* held = scope->find(name);
    if (held == nullptr || !held->is_mapping() || !held->mapping().is_namespace)
      throw Problem(fmt::format("{} is no namespace: only fields of those can be set", name));
    scope->set_field(*held, field, value);
  }
}

Flow Text::execute(Run& run, const ScopePtr&) const {
  run.write(text);
  return Flow::next;
}

Flow Output::execute(Run& run, const ScopePtr& scope) const {
  run.write(to_text(value->value(run, scope)));
  return Flow::next;
}

Flow If::execute(Run& run, const ScopePtr& scope) const {
  for (const auto& [condition, body] : branches)
    if (condition->value(run, scope).is_true()) return body.execute(run, scope);
  return otherwise.execute(run, scope);
}

Flow For::execute(Run& run, const ScopePtr& scope) const {
  const Value all = over->value(run, scope);
  const auto round = std::make_shared<Round>(Round{run.budget});
  for (Value& item : elements_of(all)) {
    run.budget.spend();
    if (condition) {
      const ScopePtr tried = inside(scope);
      target.assign(item, tried);
      if (!condition->value(run, tried).is_true()) continue;
    }
    round->items.push_back(std::move(item));
  }
  if (round->items.empty()) return otherwise.execute(run, inside(scope));
  const Value loop = loop_object(round);
  for (; round->index < round->items.size(); ++round->index) {
    const ScopePtr own = inside(scope);
    own->set("loop", loop);
    target.assign(round->items[round->index], own);
    if (body.execute(run, own) == Flow::stop_loop) break;
  }
  return Flow::next;
}

Flow Set::execute(Run& run, const ScopePtr& scope) const {
  if (value) {
    target.assign(value->value(run, scope), scope);
    return Flow::next;
  }
  Value written = body.capture(run, inside(scope));
  for (const auto& filter : filters)
    written = filter->apply(written, run, scope);
  target.assign(written, scope);
  return Flow::next;
}

Flow Macro::execute(Run& run, const ScopePtr& scope) const {
  scope->set(name, function(run, scope));
  return Flow::next;
}

Value Macro::function(Run& run, const ScopePtr& scope) const {
  // A scope that holds its own macro would never be freed.
  const std::weak_ptr<Scope> defined_in = scope;
  return Callable{name, [this, &run, defined_in](const Arguments& arguments) -> Value {
                    const ScopePtr outer = defined_in.lock();
                    if (!outer) throw Problem(name + " is called outside of where it was defined");
                    const ScopePtr own = inside(outer);
                    const int line = run.line;
                    bind(arguments, run, own);
                    std::string text = body.capture(run, own);
                    run.line = line;
                    return text;
                  }};
}

/// Parameters, by place or by name, and what is given in addition.
void Macro::bind(const Arguments& arguments, Run& run, const ScopePtr& own) const {
  Mapping rest;
  for (const auto& [given, value] : arguments.named)
    rest.set(given, value);
  const auto take = [&](const std::string& wanted) -> std::optional<Value> {
    const auto found = std::ranges::find_if(
        rest.items, [&](const auto& item) { return item.first == Value(wanted); });
    if (found == rest.items.end()) return std::nullopt;
    Value value = found->second;
    rest.items.erase(found);
    return value;
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [parameter, fallback] = parameters[i];
    std::optional<Value> given =
        i < arguments.positional.size() ? std::optional(arguments.positional[i]) : take(parameter);
    if (!given)
      given = fallback
                  ? fallback->value(run, own)
                  : run.budget.undefined(fmt::format("\"{}\" of the macro {}", parameter, name));
    own->set(parameter, *given);
  }
  if (auto caller = take("caller")) own->set("caller", *caller);
  std::vector<Value> more;
  for (std::size_t i = parameters.size(); i < arguments.positional.size(); ++i)
    more.push_back(arguments.positional[i]);
  if (!more.empty() && !takes_varargs)
    throw Problem(fmt::format("macro {} takes at most {} arguments", name, parameters.size()));
  if (!rest.items.empty() && !takes_kwargs)
    throw Problem(fmt::format("macro {} has no argument {}", name, to_text(rest.items[0].first)));
  own->set("varargs", Value::tuple(std::move(more)));
  own->set("kwargs", std::move(rest));
}

Flow CallBlock::execute(Run& run, const ScopePtr& scope) const {
  const Value called = call->callee->value(run, scope);
  Arguments arguments = call->arguments.values(run, scope);
  arguments.named.emplace_back("caller", caller.function(run, scope));
  run.write(to_text(detail::call(called, arguments, "what {% call %} names")));
  return Flow::next;
}

Flow FilterBlock::execute(Run& run, const ScopePtr& scope) const {
  Value written = body.capture(run, inside(scope));
  for (const auto& filter : filters)
    written = filter->apply(written, run, scope);
  run.write(to_text(written));
  return Flow::next;
}

Flow With::execute(Run& run, const ScopePtr& scope) const {
  const ScopePtr own = inside(scope);
  for (const auto& [target, value] : names)
    target.assign(value->value(run, scope), own);
  return body.execute(run, own);
}

Flow Generation::execute(Run& run, const ScopePtr& scope) const {
  if (run.is_captured) throw Problem("a generation block stands inside of a macro or of a block");
  const std::size_t begin = run.out.size();
  const std::string text = body.capture(run, inside(scope));
  run.out += text;
  run.generations.emplace_back(begin, run.out.size());
  return Flow::next;
}

}  // namespace finetune::jinja::detail
