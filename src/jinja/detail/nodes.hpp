#pragma once
// SPDX-License-Identifier: Apache-2.0
// A parsed template: expressions, which have values, and statements, which write text.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "jinja/detail/library.hpp"
#include "jinja/template.hpp"
#include "jinja/value.hpp"

namespace finetune::jinja::detail {

/// A name that a template uses, the same pointer wherever it does.
using Symbol = const std::string*;

class Symbols {
 public:
  Symbol of(const std::string& name) { return &*all_.insert(name).first; }
  /// Null: the template does not use it.
  Symbol find(const std::string& name) const {
    const auto found = all_.find(name);
    return found == all_.end() ? nullptr : &*found;
  }
  std::vector<std::string> sorted() const {
    std::vector<std::string> names(all_.begin(), all_.end());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::unordered_set<std::string> all_;

 public:
  // What statements set by themselves.
  const Symbol loop = of("loop"), caller = of("caller"), varargs = of("varargs"),
               kwargs = of("kwargs");
};

/// Names that are known at a place, inner ones first.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> outer = nullptr) : outer_(std::move(outer)) {
    own_.reserve(8);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();

  /// Null: nobody has set it.
  const Value* find(Symbol name) const;
  void set(Symbol name, Value value);
  /// Forgets its own names, for another round of a loop.
  void clear() { own_.clear(); }
  /// Of a namespace's field. The outermost scope empties that namespace when it ends: one that was
  /// given itself would never be freed.
  void set_field(const Value& of, const std::string& field, Value value);

 private:
  std::shared_ptr<Scope> outer_;
  std::vector<std::pair<Symbol, Value>> own_;
  std::unordered_map<const Mapping*, Value> emptied_at_end_;
};

/// How a turn came to be an element's: the strongest counts, of equals the first.
enum class Reach : std::uint8_t { none, named, written, indexed, looped };

/// A round of a loop, or a call of a macro: what is written in it is of the turn of the element
/// that it is about. It may show only later which one that is, so text refers to the turn.
struct Turn {
  std::int32_t outer = Origin::none;
  std::int32_t element = Origin::none;  ///< none: that of `outer`
  Reach reach = Reach::none;
  Symbol index = nullptr;  ///< of a loop or a macro: what may count the elements
};

/// One rendering.
struct Run {
  const Symbols& symbols;
  Budget budget;
  std::int64_t now_s = 0;
  int line = 1;   ///< of what is computed, for messages
  int depth = 0;  ///< of macros and blocks in each other
  Text out = {};
  std::vector<Turn> turns = {};
  std::int32_t turn = Origin::none;  ///< the one in force; in `out`, turns are these places

  /// In the turn in force, but for what was written in another before.
  void write(const Text& text);
  void write(std::string_view markup);
  /// That the turn in force, or the one whose index `index` is, is about an element.
  void reach(std::int32_t element, Reach how, Symbol index = nullptr);
  /// The element of the turn; none: of no element.
  std::int32_t element_of(std::int32_t turn) const;
};

using ScopePtr = std::shared_ptr<Scope>;

struct Expression {
  virtual ~Expression() = default;
  virtual Value value(Run& run, const ScopePtr& scope) const = 0;
  /// The same, not copied where it is held: good until anything else is evaluated. `made` has room
  /// for one that is not.
  virtual const Value& look(Run& run, const ScopePtr& scope, Value& made) const {
    return made = value(run, scope);
  }
};
using ExpressionPtr = std::unique_ptr<const Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
  ExpressionPtr more_positional = nullptr;  ///< *list
  ExpressionPtr more_named = nullptr;       ///< **dict

  bool is_empty() const {
    return positional.empty() && named.empty() && !more_positional && !more_named;
  }
  Arguments values(Run& run, const ScopePtr& scope) const;
};

struct Literal : Expression {
  explicit Literal(Value v) : held(std::move(v)) {}
  Value value(Run& run, const ScopePtr& scope) const override;
  const Value& look(Run& run, const ScopePtr& scope, Value& made) const override;
  Value held;
};

struct Name : Expression {
  explicit Name(Symbol n) : name(n) {}
  Value value(Run& run, const ScopePtr& scope) const override;
  const Value& look(Run& run, const ScopePtr& scope, Value& made) const override;
  Symbol name;
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
  Attribute(ExpressionPtr whole, std::string n);
  Value value(Run& run, const ScopePtr& scope) const override;
  const Value& look(Run& run, const ScopePtr& scope, Value& made) const override;
  ExpressionPtr of;
  std::string name;
  bool is_key = false;  ///< of dicts it is nothing else: no method
};

struct Item : Expression {
  Item(ExpressionPtr whole, ExpressionPtr k);
  Value value(Run& run, const ScopePtr& scope) const override;
  const Value& look(Run& run, const ScopePtr& scope, Value& made) const override;
  ExpressionPtr of, key;
  bool counts = false;     ///< the key is a name, or loop.index0
  Symbol index = nullptr;  ///< that name
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
  explicit Filter(std::string n);
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr of;  ///< null: of a filter block, whose text is given to `apply`
  std::string name;
  FilterFunction function;
  CallArguments arguments;

  Value apply(const Value& to, Run& run, const ScopePtr& scope) const;
};

struct Test : Expression {
  explicit Test(std::string n);
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr of;
  std::string name;
  Question question;
  CallArguments arguments;
  bool is_negated = false;
};

struct Unary : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  enum class Sign { minus, plus, negation } sign = Sign::negation;
  ExpressionPtr of;
};

struct Binary : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  Operation operation = Operation::add;
  ExpressionPtr left, right;
};

/// a and b, a or b.
struct Logic : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  bool is_and = false;
  ExpressionPtr left, right;
};

/// a ~ b.
struct Concatenation : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr left, right;
};

enum class Relation { equal, unequal, less, at_most, greater, at_least, in, not_in };

/// a < b <= c.
struct Comparison : Expression {
  Value value(Run& run, const ScopePtr& scope) const override;
  ExpressionPtr first;
  std::vector<std::pair<Relation, ExpressionPtr>> rest;
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
  Text capture(Run& run, const ScopePtr& scope) const;
};

/// What is assigned to: a name, a field of a namespace, or several of them.
struct Target {
  Symbol name = nullptr;
  std::string field = {};          ///< of a namespace
  std::vector<Target> parts = {};  ///< not empty: those that a value is taken apart into

  void assign(const Value& value, Run& run, const ScopePtr& scope) const;
};

struct Markup : Statement {
  using Statement::Statement;
  Flow execute(Run& run, const ScopePtr& scope) const override;
  std::string text;
};

struct Output : Statement {
  Output(int of_line, ExpressionPtr what);
  Flow execute(Run& run, const ScopePtr& scope) const override;
  /// Writes texts that are added without adding them up first.
  void write_sum(Run& run, const ScopePtr& scope) const;
  ExpressionPtr value;
  std::vector<const Expression*> summands = {};  ///< of `value`, if it is a sum
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
  bool is_recursive = false;  ///< `loop` can be called

 private:
  Flow iterate(const Value& all, std::int64_t depth0, Run& run, const ScopePtr& scope) const;
  std::function<Value(const Arguments&)> recursion(std::int64_t depth0, Run& run,
                                                   const ScopePtr& scope) const;
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
  Value call(const Arguments& arguments, Run& run, const ScopePtr& outer) const;
  void bind(const Arguments& arguments, Run& run, const ScopePtr& own) const;
  Symbol name = nullptr;
  std::vector<std::pair<Symbol, ExpressionPtr>> parameters;  ///< with defaults, or null
  bool takes_varargs = false, takes_kwargs = false;          ///< reads them, so more may be given
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
