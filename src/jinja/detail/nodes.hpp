#pragma once
// SPDX-License-Identifier: Apache-2.0
// A parsed template: expressions, which have values, and statements, which write text.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/template.hpp"
#include "jinja/value.hpp"

namespace finetune::jinja::detail {

/// Names that are known at a place, inner ones first.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> outer = nullptr) : outer_(std::move(outer)) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();

  /// Null: nobody has set it.
  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);
  /// Of a namespace's field. The outermost scope empties that namespace when it ends: one that was
  /// given itself would never be freed.
  void set_field(const Value& of, const std::string& field, Value value);

 private:
  std::shared_ptr<Scope> outer_;
  std::vector<std::pair<std::string, Value>> own_;
  std::unordered_map<const Mapping*, Value> emptied_at_end_;
};

/// One rendering.
struct Run {
  Budget budget;
  std::int64_t now_s = 0;
  int line = 1;   ///< of what is computed, for messages
  int depth = 0;  ///< of macros and blocks in each other
  std::string out = {};
  bool is_captured = false;  ///< what is written goes into a value
  std::vector<std::pair<std::size_t, std::size_t>> generations = {};

  void write(const std::string& text);
};

using ScopePtr = std::shared_ptr<Scope>;

struct Expression {
  virtual ~Expression() = default;
  virtual Value value(Run& run, const ScopePtr& scope) const = 0;
};
using ExpressionPtr = std::unique_ptr<const Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
  ExpressionPtr more_positional = nullptr;  ///< *list
  ExpressionPtr more_named = nullptr;       ///< **dict

  Arguments values(Run& run, const ScopePtr& scope) const;
};

struct Literal : Expression {
  explicit Literal(Value v) : held(std::move(v)) {}
  Value value(Run& run, const ScopePtr& scope) const override;
  Value held;
};

struct Name : Expression {
  explicit Name(std::string n) : name(std::move(n)) {}
  Value value(Run& run, const ScopePtr& scope) const override;
  std::string name;
};

struct SequenceDisplay : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
};

struct DictDisplay : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};

struct Attribute : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr of;
  std::string name;
};

struct Item : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr of, key;
};

struct Slice : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr of, start, stop, step;  ///< null: left out
};

struct Call : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr callee;
  CallArguments arguments;
};

struct Filter : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr of;  ///< null: of a filter block, whose text is given to `apply`
  std::string name;
  CallArguments arguments;

  Value apply(const Value& to, Run& run, const ScopePtr& scope) const;
};

struct Test : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr of;
  std::string name;
  CallArguments arguments;
  bool is_negated = false;
};

struct Unary : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  std::string sign;  ///< "-", "+" or "not"
  ExpressionPtr of;
};

struct Binary : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  std::string sign;  ///< also "and", "or" and "~"
  ExpressionPtr left, right;
};

/// a < b <= c.
struct Comparison : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr first;
  std::vector<std::pair<std::string, ExpressionPtr>> rest;  ///< also "in" and "not in"
};

struct Conditional : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr condition, then, otherwise;  ///< `otherwise` null: undefined
};

enum class Flow { next, stop_loop, next_round };

struct Statement {
  explicit Statement(int of_line) : line(of_line) {}
  virtual ~Statement() = default;
  virtual Flow execute(Run& run, const ScopePtr& scope) const = 0;
  int line;
};

struct Body {
  std::vector<std::unique_ptr<const Statement>> statements;

  Flow execute(Run& run, const ScopePtr& scope) const;
  /// What it writes, as text.
  std::string capture(Run& run, const ScopePtr& scope) const;
};

/// What is assigned to: a name, a field of a namespace, or several of them.
struct Target {
  std::string name = {};
  std::string field = {};          ///< of a namespace
  std::vector<Target> parts = {};  ///< not empty: those that a value is taken apart into

  void assign(const Value& value, const ScopePtr& scope) const;
};

struct Text : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  std::string text;
};

struct Output : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr value;
};

struct If : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};

struct For : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  Target target;
  ExpressionPtr over, condition;  ///< `condition` null: none
  Body body, otherwise;
};

struct Set : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  Target target;
  ExpressionPtr value;  ///< null: what `body` writes, through `filters`
  std::vector<std::unique_ptr<const Filter>> filters;
  Body body;
};

struct Macro : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  /// As a function that sees `scope`. It lives as long as the run.
  Value function(Run& run, const ScopePtr& scope) const;
  void bind(const Arguments& arguments, Run& run, const ScopePtr& own) const;
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  ///< with defaults, or null
  bool takes_varargs = false, takes_kwargs = false;  ///< reads them, so more may be given
  Body body;
};

/// {% call(...) macro(...) %}.
struct CallBlock : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  std::unique_ptr<const Call> call;
  Macro caller{0};
};

struct FilterBlock : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  std::vector<std::unique_ptr<const Filter>> filters;  ///< in the order in which they apply
  Body body;
};

struct With : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  std::vector<std::pair<Target, ExpressionPtr>> names;
  Body body;
};

struct Generation : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  Body body;
};

struct LoopControl : Statement {
  using Statement::Statement;
  Flow execute(Run&, const ScopePtr&) const override { return flow; }
  Flow flow = Flow::next;
};

}  // namespace finetune::jinja::detail
