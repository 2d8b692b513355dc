// SPDX-License-Identifier: Apache-2.0
// A chat template: no template, or one that writes a conversation, refuses it or ends with a
// problem, within its limits; what it marks lies in what it wrote.

#include "fuzz/fuzz.hpp"
#include "jinja/template.hpp"

using namespace finetune;

namespace {

jinja::Mapping conversation() {
  const auto json = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "system", "content": " s\n"}, {"role": "user", "content": "é 日"},)"
      R"( {"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f",)"
      R"( "arguments": {"z": 1, "a": [1.5, null, true]}}}]}], "tools": [{"name": "f"}],)"
      R"( "bos_token": "<s>", "add_generation_prompt": true})");
  return jinja::Value::from_json(json).mapping();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const jinja::Mapping names = conversation();
  constexpr jinja::Limits few = {.most_steps = 20'000, .most_bytes = 1 << 18};
  try {
    const jinja::Rendered made =
        jinja::Template::parse(fuzz::text_of(data, size)).render(names, 0, few);
    for (const auto& [begin, end] : made.generations)
      fuzz::require(begin <= end && end <= made.text.size(), "what is marked was written");
  } catch (const jinja::Problem&) {
  }
  return 0;
}
