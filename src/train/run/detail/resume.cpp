// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/resume.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/adapter_base.hpp"
#include "core/build_info.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "data/text/detect_format.hpp"
#include "weights/peft_config.hpp"

namespace finetune::train {
namespace {

/// Adapters are one unit whatever the bucket is.
bool blocks_follow_bucket(const Input& input) {
  return input.optimizer.kind->footprint.block() > 1 &&
         std::ranges::any_of(input.parameters.rows, [](const model::Parameter& row) {
           return row.trainable && row.adapts < 0;
         });
}

/// What optimizer.rounding is about.
bool keeps_bf16(const Input& input) {
  return input.numbers().master == core::DType::bf16;
}

void warn_of_other_rounding(const RunIdentity& own, const checkpoint::FoundCheckpoint& found) {
  if (!own.deck.rounding) return;
  // Earlier versions had no other.
  const std::string rounding = found.state.rounding.value_or("nearest");
  if (rounding == *own.deck.rounding) return;
  log::warn(fmt::format(
      "{}: its weights were rounded by optimizer.rounding = \"{}\" (this start has \"{}\", and its "
      "numbers will differ). Set optimizer.rounding = \"{}\" to continue as before.",
      found.folder.string(), rounding, *own.deck.rounding, rounding));
}

/// The base is compared by what it is (require_same_base), wherever it lies.
bool is_known_by_hash(const RunIdentity& own, const checkpoint::FoundCheckpoint& found) {
  return own.deck.adapter && found.state.base && found.state.base->dtype == core::name(own.compute);
}

std::string name_of_parts(std::int64_t tp, std::int64_t ep) {
  return fmt::format("{}, {}", tp, ep);
}

/// Blocks of moments are cut by `key`, of which a checkpoint says `saved`.
void require_same_blocks(const RunIdentity& own, const checkpoint::FoundCheckpoint& found,
                         const char* key, const std::optional<std::string>& value,
                         const std::optional<std::string>& saved) {
  if (!value || saved.value_or(*value) == *value) return;
  core::fail(core::ErrorKind::deck,
             {own.deck_path,
              fmt::format("{} = \"{}\", the run in {} has \"{}\"", key, *value,
                          found.folder.string(), *saved),
              fmt::format("the blocks of {}'s moments are cut by it", own.optimizer),
              "Restore it, or set another train.output to begin a new run."});
}

/// Why other tokens of the same text are trained, as far as that is known.
std::string why_other_masks(const RunIdentity& own, const checkpoint::FoundCheckpoint& found) {
  const std::string before = found.state.build;
  if (before.empty() || before == own.deck.build)
    return "the chat template, the model's end tokens or weights in the data have changed";
  return fmt::format("the checkpoint was written by {}, and {} may find answers otherwise", before,
                     own.deck.build);
}

/// Why data that are others are a problem. Unless it is known that their tokens differ, they may be
/// the same, read by another program.
std::string why_other_data(const RunIdentity& own, const checkpoint::FoundCheckpoint& found,
                           bool is_known) {
  std::string why = "the data position of the checkpoint means nothing in other data";
  if (!is_known && !found.state.build.empty() && found.state.build != own.deck.build)
    why +=
        "; if the files are the same, this program reads them otherwise than " + found.state.build;
  return why;
}

/// Refuses training data that are not those of the checkpoint, or warns where they may change.
void tell_of_other_data(const RunIdentity& own, const DataIdentity& data,
                        const checkpoint::FoundCheckpoint& found) {
  DataChange change;
  const bool is_known = found.state.data_tokens.has_value();
  const bool may_be_same = !is_known || *found.state.data_tokens == data.tokens_fingerprint;
  if (may_be_same && data.change_since) change = data.change_since(found.state.data_fingerprint);
  const bool same_tokens = may_be_same && (is_known || change.has_same_tokens.value_or(false));
  // Of data that are others as a whole no sample says why.
  if (!same_tokens && change.has_same_tokens) change.shown.clear();
  const std::string shown = change.shown.empty() ? "" : "\n" + change.shown;
  const std::string paths = fmt::format("{}", fmt::join(own.data_paths, ", "));
  const std::string folder = found.folder.string();
  if (own.allows_changed_data) {
    log::warn(
        same_tokens
            ? fmt::format("{}: other tokens of the same text are trained than in the run in {} "
                          "({}); it continues with those that are trained now "
                          "(data.allow_changed){}",
                          paths, folder, why_other_masks(own, found), shown)
            : fmt::format("{} is not what the run in {} was trained on; it continues with the "
                          "changed data at the same place (data.allow_changed){}",
                          paths, folder, shown));
    return;
  }
  const std::string ways =
      " data.allow_changed = true to continue with them as they are, "
      "or set another train.output to begin a new run." +
      shown;
  if (same_tokens)
    core::fail(
        core::ErrorKind::deck,
        {paths,
         fmt::format("other tokens of the same text are trained than in the run in {}", folder),
         why_other_masks(own, found), "Set" + ways});
  core::fail(core::ErrorKind::deck,
             {paths, fmt::format("is not what the run in {} was trained on", folder),
              why_other_data(own, found, is_known || change.has_same_tokens),
              "Restore the data, set" + ways});
}

}  // namespace

RunIdentity identity_of(const Input& input) {
  RunIdentity own{.deck = {},
                  .deck_path = input.deck_path.string(),
                  .optimizer = input.optimizer.name,
                  .data_paths = input.data.paths,
                  .allows_changed_data = input.data.allow_changed,
                  .compute = input.numbers().compute,
                  .is_deterministic = input.numbers().determinism != plan::Determinism::off};
  checkpoint::RunState& state = own.deck;
  std::error_code error;
  const auto model_folder = std::filesystem::absolute(input.model_folder, error);
  state.model_folder = (error ? input.model_folder : model_folder).string();
  state.fixed = {input.fixed_values.begin(), input.fixed_values.end()};
  state.deck = input.resolved_deck;
  if (!input.config_changes.is_null()) state.config = input.config_changes;
  state.precision = plan::name_of(input.precision.mode);
  state.build = core::build_stamp();
  if (blocks_follow_bucket(input)) state.bucket = plan::name_of(input.parallel.bucket);
  if (input.optimizer.kind->footprint.block() > 1)
    state.parts = name_of_parts(input.parallel.num_tp(), input.parallel.num_ep());
  if (input.is_adapted()) {
    state.adapter = {
        .name = input.adapter.name,
        .double_quant = input.adapter.double_quant,
        .config = weights::to_peft_config(input.adapter, *input.adapter.kind, input.parameters)};
  }
  if (keeps_bf16(input)) state.rounding = optim::name_of(input.optimizer.rounding);
  return own;
}

checkpoint::RunState describe_run(const RunIdentity& own, checkpoint::RunState facts) {
  facts.model_folder = own.deck.model_folder;
  facts.fixed = own.deck.fixed;
  facts.deck = own.deck.deck;
  facts.precision = own.deck.precision;
  facts.build = own.deck.build;
  facts.config = own.deck.config;
  facts.bucket = own.deck.bucket;
  facts.parts = own.deck.parts;
  facts.adapter = own.deck.adapter;
  facts.rounding = own.deck.rounding;
  return facts;
}

void require_same_optimizer(const RunIdentity& own, const checkpoint::FoundCheckpoint& found) {
  // Earlier versions had none but the one that is still the default.
  const auto saved = found.state.fixed.find("optimizer.name");
  const std::string name = saved == found.state.fixed.end()
                               ? fmt::format("\"{}\"", optim::OptimizerSettings().name)
                               : saved->second;
  const std::string own_name = fmt::format("\"{}\"", own.optimizer);
  if (name != own_name) {
    core::fail(core::ErrorKind::deck,
               {own.deck_path,
                fmt::format("optimizer.name = {}, the run in {} has {}", own_name,
                            found.folder.string(), name),
                "its moments are stored differently",
                "Restore it, or set another train.output to begin a new run."});
  }
  require_same_blocks(own, found, "parallel.bucket", own.deck.bucket, found.state.bucket);
  require_same_blocks(own, found, "parallel.tp, parallel.ep", own.deck.parts,
                      found.state.parts.value_or(name_of_parts(1, 1)));
}

void require_same_keys(const RunIdentity& own, const checkpoint::FoundCheckpoint& found) {
  std::string differences;
  int count = 0;
  for (const auto& [key, value] : own.deck.fixed) {
    if (key == "model.path" && is_known_by_hash(own, found)) continue;
    const auto fixed = found.state.fixed.find(key);
    if (fixed == found.state.fixed.end() || fixed->second == value) continue;
    const std::string& saved = fixed->second;
    // What was found from the files, here or there, is compared by the data's fingerprint.
    const std::string found_format = fmt::format("\"{}\"", data::auto_format);
    if (key == "data.format" && (saved == found_format || value == found_format)) continue;
    differences += fmt::format("\n    {} = {}, the checkpoint has {}", key, value, saved);
    ++count;
  }
  if (!differences.empty()) {
    core::fail(core::ErrorKind::deck,
               {own.deck_path,
                fmt::format("{} {} not what the run in {} has", count,
                            count == 1 ? "key is" : "keys are", found.folder.string()),
                "its training so far depends on them",
                "Restore them, or set another train.output to begin a new run." + differences});
  }
}

void require_same_run(const RunIdentity& own, const DataIdentity& data,
                      const checkpoint::FoundCheckpoint& found) {
  require_same_keys(own, found);
  const std::string own_precision = own.deck.precision.value_or("");
  const std::string precision = found.state.precision.value_or(own_precision);
  if (precision != own_precision) {
    log::warn(
        fmt::format("{} was trained with precision.mode = \"{}\", this start has \"{}\": "
                    "weights and moments are converted, and the numbers will differ",
                    found.folder.string(), precision, own_precision));
  } else {
    warn_of_other_rounding(own, found);
  }
  if (found.state.data_fingerprint != data.fingerprint) tell_of_other_data(own, data, found);
}

void warn_of_other_arithmetic(const RunIdentity& own, const std::string& arithmetic,
                              const checkpoint::FoundCheckpoint& found) {
  const std::string before = found.state.arithmetic.value_or(arithmetic);
  if (before == arithmetic || !own.is_deterministic) return;
  log::warn(fmt::format(
      "{} was trained with products of {}, this start has {}: its results will not be identical to "
      "those of an uninterrupted run (precision.cpu_products chooses, processors decide)",
      found.folder.string(), before, arithmetic));
}

void require_same_base(const RunIdentity& own, const checkpoint::FrozenBase& own_base,
                       const checkpoint::FoundCheckpoint& found) {
  if (own_base.hash.empty()) return;
  if (!found.state.base) return;
  const checkpoint::FrozenBase& base = *found.state.base;
  const auto differs = [](const std::string& before, const std::string& now) {
    return !before.empty() && before != now;
  };
  if (differs(base.dtype, own_base.dtype) || differs(base.packing, own_base.packing)) {
    const auto kept = [](const checkpoint::FrozenBase& of) {
      return of.packing.empty() || of.packing == "none" ? of.dtype
                                                        : of.dtype + " (" + of.packing + ")";
    };
    log::warn(
        fmt::format("{} was trained on weights in {}, this start has them in {}: whether they are "
                    "the same model cannot be checked",
                    found.folder.string(), kept(base), kept(own_base)));
    return;
  }
  if (base.hash.empty() || base.hash == own_base.hash) return;
  core::fail(
      core::ErrorKind::input,
      {own.deck.model_folder,
       fmt::format("is not the model that {} was trained on", found.folder.string()),
       fmt::format("its frozen weights have the hash {}, those were {}", own_base.hash, base.hash),
       "Restore the model's files, or set another train.output to begin a new run."});
}

}  // namespace finetune::train
