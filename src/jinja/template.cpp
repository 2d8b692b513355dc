// SPDX-License-Identifier: Apache-2.0
#include "jinja/template.hpp"

#include <fmt/format.h>

#include "jinja/detail/nodes.hpp"
#include "jinja/detail/parser.hpp"

namespace finetune::jinja {
namespace {

/// What `run` wrote, with elements in the place of its turns.
Rendered rendered_by(detail::Run& run) {
  run.out.change_origins([&](Origin& origin) { origin.turn = run.element_of(origin.turn); });
  auto [text, pieces] = std::move(run.out).take();
  Rendered rendered{.text = std::move(text), .pieces = std::move(pieces)};
  std::size_t begin = 0;
  for (const auto& [end, origin] : rendered.pieces) {
    auto& generations = rendered.generations;
    if (origin.is_generation && !generations.empty() && generations.back().second == begin)
      generations.back().second = end;
    else if (origin.is_generation)
      generations.emplace_back(begin, end);
    begin = end;
  }
  return rendered;
}

}  // namespace

Template Template::parse(std::string_view text, const Settings& settings) {
  Template made;
  made.when_undefined_ = settings.when_undefined;
  made.parsed_ = detail::parse(tokens_of(text, settings));
  return made;
}

bool Template::has_generation() const {
  return parsed_->has_generation;
}

bool Template::reads(const std::string& name) const {
  return parsed_->symbols.find(name) != nullptr;
}

std::vector<std::string> Template::names() const {
  return parsed_->symbols.sorted();
}

Rendered Template::render(const Mapping& names, std::int64_t now_s, const Limits& limits) const {
  detail::Run run{.symbols = parsed_->symbols,
                  .budget = Budget(limits.most_steps, limits.most_bytes, when_undefined_),
                  .now_s = now_s};
  const auto scope = std::make_shared<detail::Scope>();
  for (const auto& [name, value] : names.items)
    if (const detail::Symbol symbol = parsed_->symbols.find(name.string()))
      scope->set(symbol, value);
  try {
    parsed_->body.execute(run, scope);
  } catch (const Refusal&) {
    throw;
  } catch (const UndefinedProblem& problem) {
    throw UndefinedProblem(problem.name(), fmt::format("line {}: ", run.line));
  } catch (const Problem& problem) {
    throw Problem(fmt::format("line {}: {}", run.line, problem.what()));
  }
  return rendered_by(run);
}

}  // namespace finetune::jinja
