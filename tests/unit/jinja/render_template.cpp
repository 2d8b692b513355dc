// SPDX-License-Identifier: Apache-2.0
// Renders templates: {"template": "...", "names": {...}} a line, and as much in answer.
#include <exception>
#include <iostream>
#include <string>

#include "jinja/template.hpp"

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
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(Json::parse(line)).dump(-1, ' ', false, Json::error_handler_t::replace)
              << std::endl;
}
