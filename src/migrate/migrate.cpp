// SPDX-License-Identifier: Apache-2.0
#include "migrate/migrate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"
#include "migrate/detail/settle.hpp"
#include "migrate/detail/source.hpp"

namespace finetune::migrate {
namespace {

const Source& source_of(const Node& root, const std::string& where, const std::string& from) {
  const auto is_named = [&](const Source* source) { return source->name == from; };
  const auto known = sources();
  const auto found = std::ranges::find_if(known, [&](const Source* source) {
    return from.empty() ? is_from(*source, root) : is_named(source);
  });
  if (found != known.end()) return **found;
  const std::string names = fmt::format("{}", fmt::join(source_names(), ", "));
  if (!from.empty())
    core::fail(core::ErrorKind::command_line,
               {"finetune import", "--from " + from, "no such program is known",
                "Use one of " + names + "."});
  std::vector<std::string> keys;
  for (const auto& [key, value] : root.entries)
    if (keys.size() < 6) keys.push_back(core::one_line(key));
  core::fail(core::ErrorKind::deck, {where, "it is not clear whose configuration this is",
                                     fmt::format("its keys are {}", fmt::join(keys, ", ")),
                                     fmt::format("Say it with --from: {}.", names)});
}

/// The DeepSpeed configuration that the file names, or has in it.
void read_deepspeed(const std::string& where, Draft& draft) {
  const Fact* fact = draft.fact("deepspeed");
  if (fact == nullptr || fact->value.is_off()) return;
  if (fact->value.is_map()) {
    translate(deepspeed, Node(fact->value), "deepspeed.", draft);
    return;
  }
  const std::string path = fact->value.text;
  const auto text = draft.options().read_named ? draft.options().read_named(path) : std::nullopt;
  if (text) {
    const Node root = yaml::read(*text, fmt::format("{} ({})", path, where));
    translate(deepspeed, root, "deepspeed.", draft);
    return;
  }
  Node stage{.kind = Node::Kind::text};
  for (const char* number : {"0", "1", "2", "3"}) {
    if (path.find(std::string("zero") + number) != std::string::npos ||
        path.find(std::string("z") + number) != std::string::npos)
      stage.text = number;
  }
  if (!stage.text.empty()) draft.remember("zero_stage", fact->name, stage);
  if (path.find("offload") != std::string::npos)
    draft.remember("offload", fact->name, Node{.kind = Node::Kind::text, .text = "true"});
  draft.note(Kind::differs, fmt::format("{} = {}", fact->name, fact->value.shown()),
             stage.text.empty() ? "the file is not here: nothing of it is kept"
                                : "the file is not here: its name says what is kept of it");
}

}  // namespace

std::vector<std::string> source_names() {
  std::vector<std::string> names;
  for (const Source* source : sources())
    names.emplace_back(source->name);
  std::ranges::sort(names);
  return names;
}

std::string make_deck(std::string_view text, const std::string& where, const Options& options) {
  Node root = yaml::read(text, where);
  interpolate(root);
  const Source& source = source_of(root, where, options.from);
  Draft draft(where, std::string(source.title), options);
  translate(source, root, "", draft);
  read_deepspeed(where, draft);
  if (source.read != nullptr) source.read(root, draft);
  settle(source, draft);
  draft.say(
      fmt::format("How it fits, and what is trained: finetune plan DECK.toml --ranks {}, and "
                  "with --data.",
                  draft.ranks));
  draft.finish();
  return draft.deck();
}

}  // namespace finetune::migrate
