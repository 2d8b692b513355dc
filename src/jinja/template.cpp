// SPDX-License-Identifier: Apache-2.0
#include "jinja/template.hpp"

#include <fmt/format.h>

#include "jinja/detail/nodes.hpp"
#include "jinja/detail/parser.hpp"

namespace finetune::jinja {

Template Template::parse(std::string_view text, const Settings& settings) {
  detail::Parsed parsed = detail::parse(tokens_of(text, settings));
  Template made;
  made.when_undefined_ = settings.when_undefined;
  made.has_generation_ = parsed.has_generation;
  made.body_ = std::make_shared<const detail::Body>(std::move(parsed.body));
  return made;
}

Rendered Template::render(const Mapping& names, std::int64_t now_s, const Limits& limits) const {
  detail::Run run{.budget = Budget(limits.most_steps, limits.most_bytes, when_undefined_),
                  .now_s = now_s};
  const auto scope = std::make_shared<detail::Scope>();
  for (const auto& [name, value] : names.items)
    scope->set(name.string(), value);
  try {
    body_->execute(run, scope);
  } catch (const Refusal&) {
    throw;
  } catch (const UndefinedProblem& problem) {
    throw UndefinedProblem(problem.name(), fmt::format("line {}: ", run.line));
  } catch (const Problem& problem) {
    throw Problem(fmt::format("line {}: {}", run.line, problem.what()));
  }
  return {std::move(run.out), std::move(run.generations)};
}

}  // namespace finetune::jinja
