// SPDX-License-Identifier: Apache-2.0
// Renders templates: {"template": "...", "names": {...}} a line, and as much in answer.
#include <string>

#include "jinja/template.hpp"
#include "support/json_lines.hpp"

namespace {

using Json = nlohmann::ordered_json;
namespace jinja = finetune::jinja;

Json answer(const Json& question) {
  try {
    const auto made = jinja::Template::parse(question.at("template").get<std::string>());
    const jinja::Value names = jinja::Value::from_json(question.at("names"));
    return {{"text", made.render(names.mapping(), 0).text}};
  } catch (const jinja::Refusal& refusal) {
    return {{"refusal", refusal.what()}};
  }
}

}  // namespace

int main() {
  finetune::tests::answer_lines(answer);
}
