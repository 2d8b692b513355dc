// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/settings.hpp"

#include <fmt/format.h>

#include <utility>

#include "deck/choices.hpp"

namespace finetune::plan {
namespace {

const deck::Choices<std::optional<Sharding>> shardings = {
    {"AUTO", std::nullopt},
    {"FULL_SHARD", Sharding::full_shard},
    {"SHARD_GRAD_OP", Sharding::shard_grad_op},
    {"HYBRID_SHARD", Sharding::hybrid_shard},
    {"NO_SHARD", Sharding::no_shard}};
const deck::Choices<Bucket> buckets = {
    {"BLOCK", Bucket::block}, {"LAYER", Bucket::layer}, {"NONE", Bucket::whole}};
const deck::Choices<ContextMethod> context_methods = {{"AUTO", ContextMethod::automatic},
                                                      {"RING", ContextMethod::ring},
                                                      {"GATHER", ContextMethod::gather}};
const deck::Choices<PrecisionMode> precision_modes = {{"bf16-mixed", PrecisionMode::bf16_mixed},
                                                      {"bf16-true", PrecisionMode::bf16_true},
                                                      {"fp8-mixed", PrecisionMode::fp8_mixed},
                                                      {"16-mixed", PrecisionMode::fp16_mixed},
                                                      {"32-true", PrecisionMode::fp32_true}};
const deck::Choices<CpuProducts> product_choices = {{"auto", CpuProducts::automatic},
                                                    {"native", CpuProducts::native},
                                                    {"widened", CpuProducts::widened}};
const deck::Choices<model::Fp8Scaling> fp8_scalings = {{"rowwise", model::Fp8Scaling::rowwise},
                                                       {"block", model::Fp8Scaling::block}};
const deck::Choices<model::Fp8Gradients> fp8_gradients = {{"e5m2", model::Fp8Gradients::e5m2},
                                                          {"e4m3", model::Fp8Gradients::e4m3}};
const deck::Choices<bool> fp8_weight_gradients = {{"bf16", false}, {"fp8", true}};
const deck::Choices<core::DType> reduce_dtypes = {
    {"fp32", core::DType::f32}, {"bf16", core::DType::bf16}, {"fp16", core::DType::f16}};

/// Beyond any machine, and small enough to multiply.
constexpr std::int64_t most_ranks = std::int64_t{1} << 20;
constexpr std::int64_t most_prefetched = 64;

}  // namespace

std::string to_string(Sharding sharding) {
  return deck::name_in(shardings, std::optional(sharding));
}

std::optional<Sharding> sharding_named(const std::string& name) {
  return deck::value_in(shardings, name);
}

std::string name_of(Bucket bucket) {
  return deck::name_in(buckets, bucket);
}

Bucket bucket_named(const std::string& name) {
  return deck::value_in(buckets, name);
}

std::string name_of(PrecisionMode mode) {
  return deck::name_in(precision_modes, mode);
}

std::string name_of(CpuProducts how) {
  return deck::name_in(product_choices, how);
}

std::string name_of(model::Fp8Scaling scaling) {
  return deck::name_in(fp8_scalings, scaling);
}

std::string describe(const model::Fp8Recipe& recipe) {
  return fmt::format("{}, {}{}", name_of(recipe.scaling),
                     deck::name_in(fp8_gradients, recipe.gradients),
                     recipe.weight_gradients ? ", gradients of weights too" : "");
}

std::string name_of_reduce(core::DType dtype) {
  return deck::name_in(reduce_dtypes, dtype);
}

void ParallelSettings::bind(deck::Table& table) {
  using deck::Restart;
  table.choice(
      {.name = "sharding",
       .restart = Restart::free,
       .sentence =
           "FULL_SHARD: weights, gradients and optimizer state are split over all ranks, and a "
           "block's weights are gathered just before use; SHARD_GRAD_OP: gathered weights stay "
           "until the step ends; HYBRID_SHARD: split inside a node, replicated across nodes; "
           "NO_SHARD: replicated on every rank; AUTO: the fastest of these that fits, as the plan "
           "compares them; a restart on the same ranks keeps it."},
      sharding, shardings);
  table.integer({.name = "dp_shard",
                 .restart = Restart::free,
                 .sentence = "Ranks that share one copy of the model; 0: follows from sharding.",
                 .unit = "ranks"},
                dp_shard, {.min = 0});
  table.integer({.name = "dp_replicate",
                 .restart = Restart::free,
                 .sentence = "Copies of the model; 0: follows from sharding and dp_shard."},
                dp_replicate, {.min = 0});
  table.integer({.name = "tp",
                 .restart = Restart::free,
                 .sentence = "Ranks that share every matrix (tensor parallelism), neighbours on a "
                             "node. Weights, activations and time per rank shrink; each block "
                             "exchanges activations four times. 0: 1, or what the plan chooses "
                             "where nothing else fits.",
                 .unit = "ranks"},
                tp, {.min = 0, .max = most_ranks});
  table.integer({.name = "cp",
                 .restart = Restart::free,
                 .sentence = "Ranks that share every sequence (context parallelism): for sequences "
                             "that do not fit one rank. 0: as for tp.",
                 .unit = "ranks"},
                cp, {.min = 0, .max = most_ranks});
  table.choice(
      {.name = "cp_method",
       .restart = Restart::free,
       .sentence = "How ranks of cp get at each other's keys and values. RING: they travel "
                   "from rank to rank behind the computation; GATHER: each rank fetches "
                   "those that its queries see; AUTO: RING for long samples, GATHER for "
                   "packed ones, windows and short rows."},
      cp_method, context_methods);
  table.integer({.name = "ep",
                 .restart = Restart::free,
                 .sentence = "Ranks that share the experts of each layer (expert parallelism): "
                             "tokens travel to their experts, not experts to the tokens. Divides "
                             "dp_shard times cp. 0: as for tp.",
                 .unit = "ranks"},
                ep, {.min = 0, .max = most_ranks});
  table.text({.name = "machine",
              .restart = Restart::free,
              .sentence = "Machine by whose rates AUTO compares strategies, as for finetune plan "
                          "--machine: a name or a file. Empty: usual rates, which rank strategies "
                          "but tell no times."},
             machine);
  table.choice({.name = "bucket",
                .restart = Restart::free,
                .sentence = "What is gathered and reduced together: a BLOCK, the halves of a block "
                            "(LAYER), or the whole model (NONE)."},
               bucket, buckets);
  table.choice({.name = "reduce_dtype",
                .restart = Restart::free,
                .sentence = "Format of gradients on the network; ranks that compute on the CPU "
                            "always sum them in fp32."},
               reduce_dtype, reduce_dtypes);
  table.boolean({.name = "overlap",
                 .restart = Restart::free,
                 .sentence = "Communicate behind the computation: gather the next weights early "
                             "and reduce gradients during the backward pass."},
                overlap);
  table.integer(
      {.name = "prefetch",
       .restart = Restart::free,
       .sentence = "With overlap, else without meaning: how many blocks ahead weights are "
                   "gathered. More may take more memory, and help where gathers take longer than "
                   "some of the "
                   "blocks. auto: 1, or more where the plan finds that faster.",
       .unit = "blocks"},
      prefetch, {.min = 1, .max = most_prefetched, .zero_is_auto = true});
  table.real({.name = "memory_gib",
              .restart = Restart::free,
              .sentence = "Memory a rank may use: a run that needs more is rejected before weights "
                          "are read. 0: its share of the node's memory, or its GPU's.",
              .unit = "GiB"},
             memory_gib, {.min = 0});
  table.integer(
      {.name = "expect_nodes",
       .restart = Restart::free,
       .sentence =
           "Number of nodes the job must have; a start on another number is rejected. 0: any.",
       .unit = "nodes"},
      expect_nodes, {.min = 0});
  table.integer(
      {.name = "expect_ranks_per_node",
       .restart = Restart::free,
       .sentence =
           "Number of ranks each node must have; a start with another number is rejected. 0: any.",
       .unit = "ranks"},
      expect_ranks_per_node, {.min = 0});
  table.real({.name = "min_link_gbit_per_s",
              .restart = Restart::free,
              .sentence = "The slowest link between two nodes that finetune check accepts; 0: a "
                          "fifth of the median of the job's links, and with two nodes any.",
              .unit = "Gbit/s"},
             min_link_gbit_per_s, {.min = 0});
}

void PrecisionSettings::bind(deck::Table& table) {
  table.choice(
      {.name = "mode",
       .restart = deck::Restart::free,
       .sentence =
           "bf16-mixed: bfloat16 products with fp32 master weights, moments and gradient sums; "
           "bf16-true: master weights and moments are bfloat16 too; fp8-mixed: as bf16-mixed, but "
           "products of the blocks' matrices and of experts, forward and for the gradients of "
           "activations, have operands of 8 bits, on GPUs from compute capability 8.9 on; "
           "16-mixed: float16 products "
           "with fp32 master weights and dynamic loss scaling; 32-true: everything in fp32."},
      mode, precision_modes);
  table.choice(
      {.name = "cpu_products",
       .restart = deck::Restart::free,
       .sentence =
           "How CPUs multiply bfloat16 and float16. native: by libtorch, for processors with "
           "instructions for them; widened: in fp32, rounded once, for all others, where libtorch "
           "is far slower; auto: what the oldest processor of the job needs."},
      cpu_products, product_choices);
  table.choice(
      {.name = "fp8_scaling",
       .restart = deck::Restart::free,
       .sentence =
           "What shares a scale in fp8-mixed. rowwise: a token's activations, and an output's "
           "weights; block: 128 activations, and 128 x 128 weights, which outliers disturb less; "
           "on GPUs of compute capability 9.x, with CUDA 12.9 or later."},
      fp8.scaling, fp8_scalings);
  table.choice(
      {.name = "fp8_gradients",
       .restart = deck::Restart::free,
       .sentence =
           "Format of gradients in products of fp8-mixed: e5m2 has range, e4m3 is twice as exact."},
      fp8.gradients, fp8_gradients);
  table.choice(
      {.name = "fp8_weight_gradients",
       .restart = deck::Restart::free,
       .sentence =
           "What the gradients of weights are multiplied from in fp8-mixed: bf16, or fp8, a third "
           "of a step's products, with scales along the tokens of a micro-batch."},
      fp8.weight_gradients, fp8_weight_gradients);
  if (mode == PrecisionMode::fp8_mixed) return;
  for (const auto& [key, is_set] :
       {std::pair("fp8_scaling", fp8.scaling != model::Fp8Recipe{}.scaling),
        std::pair("fp8_gradients", fp8.gradients != model::Fp8Recipe{}.gradients),
        std::pair("fp8_weight_gradients", fp8.weight_gradients)})
    if (is_set)
      table.problem(
          key, fmt::format("precision.{} is set, but precision.mode is \"{}\"", key, name_of(mode)),
          "only products of fp8-mixed have operands of 8 bits",
          "Set precision.mode = \"fp8-mixed\", or remove the key.");
}

Numbers PrecisionSettings::numbers(core::DType reduce_dtype, Determinism determinism) const {
  Numbers numbers;
  switch (mode) {
    case PrecisionMode::bf16_mixed:
      break;
    case PrecisionMode::fp8_mixed:
      numbers.fp8 = fp8;
      break;
    case PrecisionMode::bf16_true:
      numbers.master = numbers.moments = core::DType::bf16;
      break;
    case PrecisionMode::fp16_mixed:
      numbers.compute = core::DType::f16;
      numbers.scales_loss = true;
      break;
    case PrecisionMode::fp32_true:
      numbers.compute = core::DType::f32;
      break;
  }
  numbers.reduce = reduce_dtype;
  numbers.determinism = determinism;
  return numbers;
}

}  // namespace finetune::plan
