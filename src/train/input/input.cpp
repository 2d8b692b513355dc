// SPDX-License-Identifier: Apache-2.0
#include "train/input/input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "comm/activity.hpp"
#include "comm/agree.hpp"
#include "comm/watch/hang.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "core/problems.hpp"
#include "model/fp8.hpp"
#include "train/input/described_model.hpp"
#include "train/input/detail/adapter_input.hpp"
#include "train/input/detail/optimizer_groups.hpp"
#include "train/input/grown_model.hpp"
#include "train/input/readable.hpp"
#include "train/input/trained_tensors.hpp"
#include "weights/received.hpp"

namespace finetune::train {
namespace {

constexpr std::int64_t largest_deck_bytes = std::int64_t{1} << 20;

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
  table("data", "What the model is trained on.", input.data,
        std::span<const data::Format>(registry.formats), template_names(registry));
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

/// Whoever needs all gradients at once, or may have to leave the weights as they are.
void require_update_in_backward(const Input& input) {
  if (!input.optimizer.in_backward) return;
  const auto refuse = [&](const std::string& other, const char* why, const std::string& remedy) {
    core::fail(core::ErrorKind::deck, {input.deck_path.string(),
                                       "optimizer.in_backward = true and " + other, why, remedy});
  };
  const char* gone = "a gradient is gone once its block is updated";
  if (input.numbers().compute == core::DType::f16)
    refuse("precision.mode = \"16-mixed\"",
           "a step whose gradients overflow is skipped, and that shows when all are there",
           "Set precision.mode = \"bf16-mixed\", or in_backward = false.");
  if (input.train.micro_batch == 0)
    refuse("train.micro_batch = \"auto\"", "it may take several passes per step",
           "Set train.micro_batch to a number.");
  if (input.metrics.norms_steps > 0)
    refuse(fmt::format("metrics.norms_steps = {}", input.metrics.norms_steps), gone,
           "Set metrics.norms_steps = 0.");
  if (input.metrics.noise_steps > 0)
    refuse(fmt::format("metrics.noise_steps = {}", input.metrics.noise_steps), gone,
           "Set metrics.noise_steps = 0.");
}

/// What no single table can see.
void require_consistent(const Input& input) {
  require_update_in_backward(input);
  if (input.train.ema_decay > 0 && input.optimizer.kind->evaluated)
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(),
                fmt::format("train.ema_decay = {} with optimizer.name = \"{}\"",
                            input.train.ema_decay, input.optimizer.name),
                "the weights that it evaluates are a mean already", "Remove one of them."});
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

/// A folder of the Hugging Face cache stands for a version of its model; the root looks.
std::filesystem::path found_version(const comm::Communicator& world,
                                    const std::filesystem::path& folder) {
  return world.broadcast_text(comm::agree(world, [&] {
    return world.is_root() ? weights::version_in_cache(folder).string() : std::string();
  }));
}

/// Bits of packed matrices are read from files; nobody draws them.
void require_drawable(const Input& input) {
  const bool is_packed = std::ranges::any_of(
      input.parameters.rows, [](const model::Parameter& row) { return row.packing.in_files; });
  if (input.model.init != InitialWeights::random || !is_packed) return;
  core::fail(core::ErrorKind::deck,
             {input.deck_path.string(), "model.init = \"random\", but the model is packed",
              "packed weights are only read, from the model's files",
              "Set model.init = \"pretrained\", or name the family's model that is not packed."});
}

/// Everything that the deck itself tells, into what `input.deck_path` names in messages.
void read_keys(const std::string& text, const std::vector<std::string>& overrides,
               const Registry& registry, Input& input) {
  deck::Deck deck(text, input.deck_path.string(), overrides);
  bind(deck, input, registry);
  deck.finish();
  require_adapter_for_its_keys(input.adapter, registry, deck);
  require_no_adapter(input, deck);
  deck.finish();
  require_consistent(input);
  require_measurable_noise(input);
  input.resolved_deck = deck.resolved();
  input.timeless_deck = without_time_limit(input.resolved_deck, registry);
  input.fixed_values = deck.fixed_values();
}

/// The model that the deck names, as its config.json tells. Collective on `world`.
void describe_named(const comm::Communicator& world, const Registry& registry, Input& input) {
  const comm::Activity::Work work(world.activity(), comm::reading_files, "config.json");
  input.model_folder = resolve(input.model.path, input.deck_path);
  input.model_folder = found_version(world, input.model_folder);
  input.first_new_id = find_first_new_id(world, input.model, input.model_folder);
  DescribedModel described =
      describe_model(world, input.model_folder, registry,
                     {.kind = input.model.problem_type,
                      .labels = input.model.labels,
                      .vocab_size = input.first_new_id + input.model.new_tokens.count()});
  input.config_changes = described.changes;
  input.family = described.family;
  input.architecture = described.architecture;
  if (input.model.router_aux_loss_coef >= 0)
    input.architecture.experts.balance = input.model.router_aux_loss_coef;
  input.quantization = described.quantization;
  input.parameters = std::move(described.parameters);
}

void require_positions(const Input& input) {
  if (input.data.max_seq_length <= input.architecture.max_positions) return;
  core::fail(core::ErrorKind::deck,
             {input.deck_path.string(),
              fmt::format("data.max_seq_length = {} exceeds the model's {} positions",
                          input.data.max_seq_length, input.architecture.max_positions),
              "the model was never trained beyond them", "Lower data.max_seq_length."});
}

/// What is trained of the model, with an adapter or without. Collective on `world`.
void describe_trained(const comm::Communicator& world, const Registry& registry, Input& input) {
  adapt(world, registry, input);
  comm::agree_all(world, [&] { set_optimizer_groups(input); });
  if (const auto fp8 = input.numbers().fp8) model::keep_in_fp8(*fp8, input.parameters);
  comm::agree_all(world, [&] {
    input.other_tables = with_adapters(input, registry);
    if (const auto* lighter =
            optim::find_kind(registry.optimizers, input.optimizer.kind->in_less_memory))
      input.lighter_optimizer = lighter->footprint;
    require_drawable(input);
  });
}

/// What the deck and its model say together: problems of which none hides another. Returns whether
/// the model, and what is trained of it, is known. Collective on `world`, whose ranks all find the
/// same.
bool describe(const comm::Communicator& world, const Registry& registry, Input& input,
              core::Problems& problems) {
  const auto look = [&](const std::function<void()>& f) {
    problems.collect([&] { comm::agree_all(world, f); });
  };
  if (!problems.collect([&] { describe_named(world, registry, input); })) return false;
  look([&] { require_meant_head(input); });
  if (input.architecture.outputs.kind == model::HeadKind::reward) input.parallel.cp = 1;
  const bool is_trained_known = problems.collect([&] { describe_trained(world, registry, input); });
  look([&] { require_blocks(input); });
  look([&] { require_positions(input); });
  // Of small files, and by one rank: the others hear of it.
  look([&] {
    if (world.is_root()) require_measured(input);
  });
  return is_trained_known;
}

}  // namespace

void require_measurable_noise(const Input& input) {
  if (input.metrics.noise_steps == 0) return;
  const std::string steps = fmt::format("metrics.noise_steps = {}", input.metrics.noise_steps);
  const plan::ParallelSettings& parallel = input.parallel;
  for (const auto& [name, size] : {std::pair<const char*, std::int64_t>{"tp", parallel.tp},
                                   {"cp", parallel.cp},
                                   {"ep", parallel.ep}})
    if (size > 1)
      core::fail(
          core::ErrorKind::deck,
          {input.deck_path.string(), fmt::format("{} and parallel.{} = {}", steps, name, size),
           "the gradient of a micro-batch is nowhere whole where ranks share it",
           fmt::format("Set metrics.noise_steps = 0, or parallel.{} = 1.", name)});
  if (input.train.micro_batch >= input.train.global_batch)
    core::fail(
        core::ErrorKind::deck,
        {input.deck_path.string(),
         fmt::format("{}, and a step is one micro-batch of {}", steps, input.train.micro_batch),
         "gradients of several are compared",
         "Set metrics.noise_steps = 0, lower train.micro_batch, or raise "
         "train.global_batch."});
}

void require_readable(const std::string& text, const std::string& name, const Registry& registry) {
  Input input;
  input.deck_path = name;
  read_keys(text, {}, registry, input);
}

Input read(const comm::Communicator& world, const std::filesystem::path& deck_path,
           const std::vector<std::string>& overrides, const Registry& registry,
           const AlsoCheck& also) {
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
  comm::agree_all(world, [&] { read_keys(text, overrides, registry, input); });

  core::Problems problems;
  const bool is_known = describe(world, registry, input, problems);
  if (also) also(world, input, is_known, problems);
  if (const auto error = problems.error(deck_path.string()))
    throw comm::AgreedError(error->kind(), error->what());
  input.data_memory = train::data_memory(world, input.data, input.model_folder, deck_path);
  return input;
}

plan::Numbers Input::numbers() const {
  plan::Numbers numbers = precision.numbers(parallel.reduce_dtype, train.determinism);
  numbers.keeps_passes_apart = metrics.noise_steps > 0;
  return numbers;
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
  if (train.ema_decay > 0) {
    request.optimizer = plan::with_ema(request.optimizer);
    if (lighter_optimizer) request.lighter_optimizer = plan::with_ema(*lighter_optimizer);
  }
  request.offloads_optimizer = optimizer.offload;
  request.updates_in_backward = optimizer.in_backward;
  request.saves_beside_training =
      checkpoint.has_local_level() || (checkpoint.is_async && checkpoint.saves_while_training());
  request.has_partner_copies = checkpoint.has_local_level();
  request.ranks = ranks;
  request.global_batch = train.global_batch;
  request.micro_batch = std::max<std::int64_t>(1, train.micro_batch);
  request.chooses_micro_batch = train.micro_batch == 0;
  request.max_seq_length = data.max_seq_length;
  request.tokenizer_bytes = data_memory.tokenizer;
  request.packing_bytes = data_memory.packing;
  request.adapter_dropout = model::dropout_of(adapter);
  request.evaluate_tokens = evaluate.has_tasks() ? evaluate.batch_tokens : 0;
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
