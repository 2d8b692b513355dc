// SPDX-License-Identifier: Apache-2.0
#include "train/input/input.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/peft_weights.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "deck/value.hpp"
#include "model/fp8.hpp"
#include "train/input/described_model.hpp"

namespace finetune::train {
namespace {

constexpr std::int64_t largest_deck_bytes = std::int64_t{1} << 20;

std::vector<std::string> format_names(const Registry& registry) {
  std::vector<std::string> names;
  for (const data::Format& format : registry.formats)
    names.push_back(format.name);
  return names;
}

std::vector<std::string> template_names(const Registry& registry) {
  std::vector<std::string> names;
  for (const data::ChatTemplate& chat : registry.templates)
    names.push_back(chat.name);
  return names;
}

/// Every key of the program, in the order of the chain deck -> metrics.
void bind(deck::Deck& deck, Input& input, const Registry& registry) {
  const auto table = [&](const char* name, const char* sentence, auto& settings,
                         const auto&... more) {
    deck::Table bound = deck.table(name, sentence);
    settings.bind(bound, more...);
  };
  table("model", "The model to train.", input.model);
  table("data", "What the model is trained on.", input.data, format_names(registry),
        template_names(registry));
  table("adapter", "What is trained on top of frozen weights; the names are PEFT's.", input.adapter,
        registry.adapters);
  table("parallel", "How the model is spread over the ranks.", input.parallel);
  table("precision", "Number formats.", input.precision);
  table("optimizer", "How weights are updated, and the learning rate.", input.optimizer,
        registry.optimizers);
  table("train", "Batches, length and output of the run.", input.train);
  table("checkpoint", "When to save, what to keep, where to continue.", input.checkpoint);
  table("evaluate", "What the model is asked before, while and after it is trained.",
        input.evaluate);
  table("metrics", "What a run reports.", input.metrics);
  table("profile", "Which steps are recorded as Chrome traces; without active none.",
        input.profile);
  table("nccl",
        "Environment variables for NCCL, set before it starts. In addition to the keys below, any "
        "NCCL_* variable may be given, as it is or in lower case without the prefix: socket_ifname "
        "= \"eth0\".",
        input.nccl);
}

/// A resolved deck as it would be without train.max_seconds.
std::string without_time_limit(const std::string& resolved, const Registry& registry) {
  deck::Deck deck(resolved, "", {"train.max_seconds=0"});
  Input unused;
  bind(deck, unused, registry);
  return deck.resolved();
}

/// The names of the keys that only some adapters read, with their values.
std::vector<std::pair<std::string, std::string>> own_keys(const model::Adapter& kind,
                                                          const model::AdapterSettings& settings) {
  auto keys = model::own_values(kind, settings);
  for (auto& [key, value] : keys)
    key = key.substr(std::string_view("adapter.").size());
  if (kind.packs_weights) keys.emplace_back("double_quant", deck::to_toml(settings.double_quant));
  return keys;
}

/// The first adapter that reads all of `keys`, of those that are advised if there is one.
std::string adapter_that_reads(const std::vector<std::string>& keys, const Registry& registry) {
  std::string name;
  for (const model::Adapter& kind : registry.adapters) {
    const auto own = own_keys(kind, {});
    const bool fits = std::ranges::all_of(keys, [&](const std::string& key) {
      return std::ranges::find(own, key, &std::pair<std::string, std::string>::first) != own.end();
    });
    if (fits && kind.is_remedy) return kind.name;
    if (fits && name.empty()) name = kind.name;
  }
  return name;
}

/// Keys of an adapter, other than by default, where there is none: all weights would be trained
/// without a word. Not asked before the adapter's name is known to be fit.
void require_adapter_for_its_keys(const model::AdapterSettings& given, const Registry& registry,
                                  deck::Deck& deck) {
  if (given.exists()) return;
  const model::AdapterSettings usual;
  std::vector<std::string> keys;
  for (const model::Adapter& kind : registry.adapters) {
    const auto values = own_keys(kind, given), defaults = own_keys(kind, usual);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto& [key, value] = values[i];
      if (value != defaults[i].second && std::ranges::find(keys, key) == keys.end())
        keys.push_back(key);
    }
  }
  const std::string adapter = adapter_that_reads(keys, registry);
  if (given.path != usual.path) keys.emplace_back("path");
  if (given.target_modules != usual.target_modules) keys.emplace_back("target_modules");
  if (given.modules_to_save != usual.modules_to_save) keys.emplace_back("modules_to_save");
  if (keys.empty()) return;
  const bool is_one = keys.size() == 1;
  const std::string removing = is_one ? "the key" : "these keys";
  deck.table("adapter", "")
      .problem(keys.front(),
               fmt::format("adapter.{} {} given, but adapter.name = \"none\"",
                           fmt::join(keys, ", adapter."), is_one ? "is" : "are"),
               "all weights would be trained, and nothing of an adapter",
               adapter.empty()
                   ? fmt::format("No adapter reads all of them: remove {}.", removing)
                   : fmt::format("Set adapter.name = \"{}\", or remove {}.", adapter, removing));
}

/// Of the key alone: "auto" chooses no more than there are.
void require_blocks(const Input& input) {
  const std::int64_t blocks = input.architecture.num_layers;
  const std::int64_t recomputed = input.train.recomputed_blocks;
  if (recomputed > blocks)
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(),
                fmt::format("train.recomputed_blocks = {}, and the model has {} block{}",
                            recomputed, blocks, blocks == 1 ? "" : "s"),
                "they are counted from the first",
                fmt::format("Use at most {}, or activation_checkpointing = \"full\".", blocks)});
  const std::int64_t kept = recomputed == blocks ? blocks : blocks - recomputed;
  if (input.train.offloaded_blocks > kept)
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(),
                fmt::format("train.offloaded_blocks = {}, and the model has {} block{}{}",
                            input.train.offloaded_blocks, kept, kept == 1 ? "" : "s",
                            kept < blocks ? " that are not recomputed" : ""),
                "each is offloaded once", fmt::format("Use at most {}.", kept)});
}

/// A head of the model's files that the deck does not name.
void require_meant_head(const Input& input) {
  const model::Outputs& outputs = input.architecture.outputs;
  if (!outputs.are_of_texts()) return;
  if (input.model.problem_type == model::HeadKind::next_token)
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(), "model.problem_type = \"causal_lm\"",
                fmt::format("{} is a model for {}", input.model_folder.string(),
                            model::problem_type(outputs.kind)),
                fmt::format("Set model.problem_type = \"{}\" and model.labels.",
                            model::problem_type(outputs.kind))});
  if (outputs.kind == model::HeadKind::reward && input.parallel.cp > 1)
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(), fmt::format("parallel.cp = {}", input.parallel.cp),
                "the rewards of two texts are compared on one rank", "Set parallel.cp = 1."});
  if (input.evaluate.has_tasks())
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(), "evaluate.tasks asks a model that continues no text",
                "model.problem_type = \"" + model::problem_type(outputs.kind) + "\"",
                "Validate on data.validation_path instead."});
}

/// PEFT trains the head of such a model whole, beside the adapter.
void save_head(Input& input) {
  if (!input.architecture.outputs.are_of_texts() || !input.adapter.exists()) return;
  auto& saved = input.adapter.modules_to_save;
  if (std::ranges::find(saved, "score") == saved.end()) saved.emplace_back("score");
}

/// What no single table can see.
void require_consistent(const Input& input) {
  if (input.train.determinism == plan::Determinism::topology &&
      input.parallel.reduce_dtype != core::DType::f32) {
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(),
                fmt::format("parallel.reduce_dtype = \"{}\" contradicts train.determinism = "
                            "\"topology\"",
                            plan::name_of_reduce(input.parallel.reduce_dtype)),
                "its gradients travel as 64-bit fixed point", "Remove one of them."});
  }
}

/// The model's tables with each adapter that could be put beside it, as remedies. Empty where there
/// is one.
std::vector<plan::OtherTable> with_adapters(const Input& input, const Registry& registry) {
  std::vector<plan::OtherTable> tables;
  if (input.adapter.exists()) return tables;
  for (const model::Adapter& adapter : registry.adapters) {
    if (!adapter.is_remedy) continue;
    model::AdapterSettings settings;
    settings.name = adapter.name;
    settings.target_modules = adapter.usual_targets;
    tables.push_back({fmt::format("adapter.name = \"{}\"", adapter.name),
                      [settings, &adapter, table = input.parameters, fp8 = input.numbers().fp8] {
                        model::ParameterTable changed = table;
                        model::put_on(adapter, settings, "", changed);
                        if (fp8) model::keep_in_fp8(*fp8, changed);
                        return changed;
                      }});
  }
  return tables;
}

void require_adapter(const Input& input) {
  const std::string deck = input.deck_path.string();
  if (input.adapter.exists()) return;
  if (!input.quantization.packing.is_dense())
    core::fail(core::ErrorKind::deck, {deck, "adapter.name = \"none\" would train all weights",
                                       (input.model_folder / "config.json").string() +
                                           " says that they are kept in 4 bits",
                                       "Set adapter.name = \"lora\"."});
}

/// Puts the adapter's rows into the table; one that is gone on from has settings of its own.
/// Collective on `world`.
void adapt(const comm::Communicator& world, const Registry& registry, Input& input) {
  comm::agree_all(world, [&] { require_adapter(input); });
  save_head(input);
  if (!input.adapter.exists()) return;
  const std::string deck = input.deck_path.string();
  if (input.adapter.path.empty()) {
    comm::agree_all(world, [&] { rewrite_for(input.adapter, deck, registry, input.parameters); });
    return;
  }
  input.adapter_folder = resolve(input.adapter.path, input.deck_path);
  const auto adapter = weights::PeftAdapter::open(world, input.adapter_folder, registry.adapters);
  comm::agree_all(world, [&] {
    input.adapter = base::take_settings(input.adapter, adapter, deck);
    save_head(input);
    base::update_fixed(input.adapter, input.fixed_values);
    rewrite_for(input.adapter, (input.adapter_folder / weights::peft_config_name).string(),
                registry, input.parameters);
    adapter.require_fits(input.parameters);
  });
}

}  // namespace

std::filesystem::path resolve(const std::filesystem::path& path,
                              const std::filesystem::path& deck_path) {
  std::error_code ignored;
  if (path.is_absolute() || std::filesystem::exists(path, ignored)) return path;
  const std::filesystem::path beside = deck_path.parent_path() / path;
  if (!std::filesystem::exists(beside, ignored)) return path;
  // "decks/../data" reads better as "data", if that is the same place: links may differ.
  const std::filesystem::path normal = beside.lexically_normal();
  return std::filesystem::equivalent(normal, beside, ignored) ? normal : beside;
}

const data::Format& format_named(const std::string& name, const Registry& registry) {
  const auto found = std::find_if(registry.formats.begin(), registry.formats.end(),
                                  [&](const data::Format& format) { return format.name == name; });
  core::check(found != registry.formats.end(), "the deck's choices are the registry's formats");
  return *found;
}

namespace {

/// Bits of packed matrices are read from files; nobody draws them.
void require_drawable(const Input& input) {
  const bool is_packed = std::ranges::any_of(
      input.parameters.rows, [](const model::Parameter& row) { return row.packing.in_files; });
  if (input.model.init != InitialWeights::random || !is_packed) return;
  core::fail(
      core::ErrorKind::deck,
      {input.deck_path.string(), "model.init = \"random\", but the model is packed in 4 bits",
       "packed weights are only read, from the model's files",
       "Set model.init = \"pretrained\", or name the family's model that is not packed."});
}

}  // namespace

Input read(const comm::Communicator& world, const std::filesystem::path& deck_path,
           const std::vector<std::string>& overrides, const Registry& registry) {
  const std::string text = world.broadcast_text(comm::agree(world, [&] {
    return world.is_root() ? core::read_text(deck_path, largest_deck_bytes, core::ErrorKind::deck)
                           : std::string();
  }));

  Input input;
  input.deck_path = deck_path;
  // Not a key of the deck: nobody trains with it, tests on one GPU do.
  const char* asked = std::getenv("FINETUNE_COMMUNICATE_ALONE");
  const bool is_set = world.is_root() && std::string_view(asked == nullptr ? "" : asked) == "1";
  if (world.all_reduce(std::int64_t{is_set}, comm::Reduce::max) != 0)
    input.parallel.alone = plan::Alone::communicates;
  if (input.parallel.alone == plan::Alone::communicates)
    log::info("FINETUNE_COMMUNICATE_ALONE=1: a rank alone gathers and reduces as if it were not");
  comm::agree_all(world, [&] {
    deck::Deck deck(text, deck_path.string(), overrides);
    bind(deck, input, registry);
    deck.finish();
    require_adapter_for_its_keys(input.adapter, registry, deck);
    deck.finish();
    require_consistent(input);
    input.resolved_deck = deck.resolved();
    input.timeless_deck = without_time_limit(input.resolved_deck, registry);
    input.fixed_values = deck.fixed_values();
  });

  input.model_folder = resolve(input.model.path, deck_path);
  DescribedModel described = describe_model(world, input.model_folder, registry,
                                            {input.model.problem_type, input.model.labels});
  input.config_changes = described.changes;
  input.family = described.family;
  input.architecture = described.architecture;
  if (input.model.router_aux_loss_coef >= 0)
    input.architecture.experts.balance = input.model.router_aux_loss_coef;
  input.quantization = described.quantization;
  input.parameters = std::move(described.parameters);
  comm::agree_all(world, [&] { require_meant_head(input); });
  if (input.architecture.outputs.kind == model::HeadKind::reward) input.parallel.cp = 1;
  adapt(world, registry, input);
  if (const auto fp8 = input.numbers().fp8) model::keep_in_fp8(*fp8, input.parameters);
  comm::agree_all(world, [&] {
    input.other_tables = with_adapters(input, registry);
    if (const auto* lighter =
            optim::find_kind(registry.optimizers, input.optimizer.kind->in_less_memory))
      input.lighter_optimizer = lighter->footprint;
    require_blocks(input);
    if (input.data.max_seq_length > input.architecture.max_positions) {
      core::fail(core::ErrorKind::deck,
                 {deck_path.string(),
                  fmt::format("data.max_seq_length = {} exceeds the model's {} positions",
                              input.data.max_seq_length, input.architecture.max_positions),
                  "the model was never trained beyond them", "Lower data.max_seq_length."});
    }
    require_drawable(input);
    // Of small files, and by one rank: the others hear of it.
    if (world.is_root()) require_measured(input);
  });
  return input;
}

plan::Numbers Input::numbers() const {
  return precision.numbers(parallel.reduce_dtype, train.determinism);
}

plan::PlanInput Input::plan_input(const plan::Ranks& ranks) const {
  plan::PlanInput request;
  request.deck = deck_path.string();
  request.architecture = architecture;
  request.parallel = parallel;
  request.numbers = numbers();
  const Arithmetic computing =
      arithmetic ? *arithmetic : own_arithmetic(precision.cpu_products, request.numbers);
  request.numbers.widens = computing.widens;
  request.threads = computing.threads;
  request.activation_checkpointing = train.recomputation();
  request.recomputed_blocks = train.recomputed_blocks;
  request.offloaded_blocks = train.offloaded_blocks;
  request.chooses_activations = !train.activation_checkpointing;
  request.optimizer = optimizer.kind->footprint;
  request.lighter_optimizer = lighter_optimizer;
  request.offloads_optimizer = optimizer.offload;
  request.saves_beside_training =
      checkpoint.has_local_level() || (checkpoint.is_async && checkpoint.saves_while_training());
  request.has_partner_copies = checkpoint.has_local_level();
  request.ranks = ranks;
  request.global_batch = train.global_batch;
  request.micro_batch = std::max<std::int64_t>(1, train.micro_batch);
  request.chooses_micro_batch = train.micro_batch == 0;
  request.max_seq_length = data.max_seq_length;
  request.adapter_dropout = model::dropout_of(adapter);
  request.other_tables = other_tables;
  return request;
}

std::string reference_deck(const Registry& registry) {
  deck::Deck deck = deck::Deck::for_reference();
  Input input;
  bind(deck, input, registry);
  return deck.reference();
}

}  // namespace finetune::train
