// SPDX-License-Identifier: Apache-2.0
// What a template writes, and whose turn it is written in.
#include <algorithm>
#include <span>
#include <utility>

#include "jinja/detail/library.hpp"
#include "jinja/detail/nodes.hpp"

namespace finetune::jinja::detail {

void Run::write(const Text& text) {
  budget.spend_bytes(static_cast<std::int64_t>(text.size()));
  if (text.pieces().empty()) return out.append(text.bytes(), {.turn = turn});
  // What was kept from another turn stays of it if the template wrote some of it there. What data
  // say alone is only quoted here, as the name of a function with what it returned.
  const bool is_quote = std::ranges::none_of(text.pieces(), [](const Piece& piece) {
    return piece.origin.turn != Origin::none && !piece.origin.is_data();
  });
  std::size_t begin = 0;
  for (const auto& [end, origin] : text.pieces()) {
    Origin own = origin;
    const bool is_kept = own.turn != Origin::none && (!is_quote || turn == Origin::none);
    if (!is_kept) {
      own.turn = turn;
      if (origin.turn == Origin::none) reach(own.element, Reach::written);
    }
    out.append(std::string_view(text.bytes()).substr(begin, end - begin), own);
    begin = end;
  }
}

void Run::write(std::string_view markup) {
  budget.spend_bytes(static_cast<std::int64_t>(markup.size()));
  out.append(markup, {.turn = turn});
}

void Run::reach(std::int32_t element, Reach how, Symbol index) {
  if (element == Origin::none) return;
  std::int32_t which = turn;
  while (index != nullptr && which != Origin::none &&
         turns[static_cast<std::size_t>(which)].index != index)
    which = turns[static_cast<std::size_t>(which)].outer;
  if (which == Origin::none) return;
  Turn& reached = turns[static_cast<std::size_t>(which)];
  if (reached.reach >= how) return;
  reached.reach = how;
  reached.element = element;
}

std::int32_t Run::element_of(std::int32_t of) const {
  while (of != Origin::none && turns[static_cast<std::size_t>(of)].element == Origin::none)
    of = turns[static_cast<std::size_t>(of)].outer;
  return of == Origin::none ? Origin::none : turns[static_cast<std::size_t>(of)].element;
}

Flow Markup::execute(Run& run, const ScopePtr&) const {
  run.write(text);
  return Flow::next;
}

Output::Output(int of_line, ExpressionPtr what) : Statement(of_line), value(std::move(what)) {
  const Expression* left = value.get();
  while (const auto* sum = dynamic_cast<const Binary*>(left)) {
    if (sum->operation != Operation::add) break;
    summands.insert(summands.begin(), sum->right.get());
    left = sum->left.get();
  }
  if (!summands.empty()) summands.insert(summands.begin(), left);
}

void Output::write_sum(Run& run, const ScopePtr& scope) const {
  std::vector<Value> values;
  values.reserve(summands.size());
  for (const Expression* summand : summands)
    values.push_back(summand->value(run, scope));
  // What was kept from another turn counts by all of the sum: Run::write.
  const auto is_plain = [](const Value& each) {
    return each.is_string() && std::ranges::all_of(each.text().pieces(), [](const Piece& piece) {
             return piece.origin.turn == Origin::none;
           });
  };
  if (std::ranges::all_of(values, is_plain)) {
    for (const Value& each : values)
      run.write(each.text());
    return;
  }
  Value sum = values.front();
  for (const Value& each : std::span(values).subspan(1))
    sum = compute(Operation::add, sum, each, run.budget);
  run.write(to_written(sum));
}

Flow Output::execute(Run& run, const ScopePtr& scope) const {
  if (!summands.empty()) {
    write_sum(run, scope);
    return Flow::next;
  }
  Value room;
  const Value& made = value->look(run, scope, room);
  if (made.is_string())
    run.write(made.text());
  else
    run.write(to_written(made));
  return Flow::next;
}

}  // namespace finetune::jinja::detail
