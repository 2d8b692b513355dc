// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/error.hpp"

namespace finetune::checkpoint {
namespace {

using core::Json;

/// Whether a restart looks at a field, and has to find it in its type.
enum class OnRestart { needed, ignored };

/// The fields of state.json, for reading and for writing. The order is that in which a restart
/// complains.
template <typename State, typename Visit>
void visit_fields(State& state, const Visit& visit) {
  visit("metrics_bytes", state.metrics_bytes, OnRestart::needed);
  visit("data_fingerprint", state.data_fingerprint, OnRestart::needed);
  visit("data_tokens", state.data_tokens, OnRestart::needed);
  visit("fixed", state.fixed, OnRestart::needed);
  visit("source_dtypes", state.source_dtypes, OnRestart::needed);
  visit("loss_scale", state.loss_scale, OnRestart::needed);
  visit("threads", state.threads, OnRestart::needed);
  visit("arithmetic", state.arithmetic, OnRestart::needed);
  visit("precision", state.precision, OnRestart::needed);
  visit("run_id", state.run_id, OnRestart::needed);
  visit("bucket", state.bucket, OnRestart::needed);
  visit("parts", state.parts, OnRestart::needed);
  visit("rounding", state.rounding, OnRestart::needed);
  visit("base", state.base, OnRestart::needed);
  visit("step", state.step, OnRestart::ignored);
  visit("lineage", state.lineage, OnRestart::ignored);
  visit("model_folder", state.model_folder, OnRestart::ignored);
  visit("deck", state.deck, OnRestart::ignored);
  visit("build", state.build, OnRestart::ignored);
  visit("adapter", state.adapter, OnRestart::ignored);
  visit("validation_loss", state.validation_loss, OnRestart::ignored);
  visit("config", state.config, OnRestart::ignored);
  visit("score", state.score, OnRestart::ignored);
  visit("patience", state.patience, OnRestart::ignored);
  visit("noise", state.noise, OnRestart::ignored);
  visit("total_samples", state.total_samples, OnRestart::ignored);
  visit("total_tokens", state.total_tokens, OnRestart::ignored);
}

template <typename Base, typename Visit>
void visit_base(Base& base, const Visit& visit) {
  visit("hash", base.hash);
  visit("dtype", base.dtype);
  visit("packing", base.packing);
}

/// In the order in which an export complains.
template <typename Adapter, typename Visit>
void visit_adapter(Adapter& adapter, const Visit& visit) {
  visit("config", adapter.config);
  visit("name", adapter.name);
  visit("double_quant", adapter.double_quant);
}

template <typename Fields, typename Visit>
void visit_score(Fields& score, const Visit& visit) {
  visit("name", score.name);
  visit("value", score.value);
  visit("less_is_better", score.less_is_better);
}

bool holds_texts(const Json& json) {
  return json.is_object() &&
         std::ranges::all_of(json, [](const Json& entry) { return entry.is_string(); });
}

/// Each takes what `json` holds if it is of the field's type, and says whether it was.
bool take(const Json& json, std::int64_t& count) {
  const bool fits = json.is_number_unsigned() || (json.is_number_integer() && json >= 0);
  if (fits) count = json.get<std::int64_t>();
  return fits;
}

bool take(const Json& json, double& number) {
  if (json.is_number()) number = json.get<double>();
  return json.is_number();
}

bool take(const Json& json, bool& flag) {
  if (json.is_boolean()) flag = json.get<bool>();
  return json.is_boolean();
}

bool take(const Json& json, std::string& text) {
  if (json.is_string()) text = json.get<std::string>();
  return json.is_string();
}

bool take(const Json& json, Texts& texts) {
  if (holds_texts(json)) texts = json.get<Texts>();
  return holds_texts(json);
}

/// The state of another part of the program, which reads it itself.
bool take(const Json& json, Json& state) {
  if (json.is_object()) state = json;
  return json.is_object() || json.is_null();
}

bool take(const Json& json, FrozenBase& base) {
  base = FrozenBase::from_json(json);
  return holds_texts(json);
}

bool take(const Json& json, Lineage& lineage) {
  lineage = Lineage::from_json(json);
  return json.is_object();
}

bool take(const Json& json, AdapterState& adapter) {
  adapter = AdapterState::from_json(json);
  return true;
}

bool take(const Json& json, Score& score) {
  score = Score::from_json(json);
  return score.is_usable();
}

/// Like the others, but a field that is not there is none that does not fit.
template <typename T>
bool take_if_there(const Json* json, std::optional<T>& field) {
  if (json == nullptr) return true;
  T value{};
  const bool fits = take(*json, value);
  // An adapter and its base tell what kind of run it was, whatever they hold.
  constexpr bool counts_anyway = std::is_same_v<T, FrozenBase> || std::is_same_v<T, AdapterState>;
  if (fits || counts_anyway) field = std::move(value);
  return fits;
}

template <typename T>
bool take_if_there(const Json* json, T& field) {
  return json != nullptr && take(*json, field);
}

const Json* entry_of(const Json& object, const char* key) {
  const auto entry = object.find(key);
  return entry == object.end() ? nullptr : &*entry;
}

template <typename T>
void put(Json& object, const char* key, const T& field) {
  if constexpr (requires { field.to_json(); }) {
    object[key] = field.to_json();
  } else {
    object[key] = field;
  }
}

template <typename T>
void put(Json& object, const char* key, const std::optional<T>& field) {
  if (field) put(object, key, *field);
}

}  // namespace

Score Score::from_json(const Json& json) {
  Score score;
  visit_score(score, [&](const char* key, auto& field) {
    const Json* entry = entry_of(json, key);
    const bool fits = entry != nullptr && take(*entry, field);
    if (!fits && score.unusable.empty()) score.unusable = key;
  });
  return score;
}

Json Score::to_json() const {
  Json json = Json::object();
  visit_score(*this, [&](const char* key, const auto& field) { json[key] = field; });
  return json;
}

bool Score::is_usable() const {
  return unusable.empty() && !std::isnan(value);
}

bool Score::is_better_than(const Score& other) const {
  return less_is_better ? value < other.value : value > other.value;
}

FrozenBase FrozenBase::from_json(const Json& json) {
  FrozenBase base;
  visit_base(base, [&](const char* key, std::string& field) {
    if (const Json* entry = entry_of(json, key)) take(*entry, field);
  });
  return base;
}

Json FrozenBase::to_json() const {
  Json json = Json::object();
  visit_base(*this, [&](const char* key, const std::string& field) { json[key] = field; });
  return json;
}

AdapterState AdapterState::from_json(const Json& json) {
  AdapterState adapter;
  visit_adapter(adapter, [&](const char* key, auto& field) {
    const Json* entry = entry_of(json, key);
    const bool fits = entry != nullptr && !entry->is_null() && take(*entry, field);
    if (!fits && adapter.unusable.empty()) adapter.unusable = key;
  });
  return adapter;
}

Json AdapterState::to_json() const {
  Json json = Json::object();
  visit_adapter(*this, [&](const char* key, const auto& field) { json[key] = field; });
  return json;
}

void AdapterState::require(const std::filesystem::path& where) const {
  if (unusable.empty()) return;
  core::fail(core::ErrorKind::input,
             {where.string(),
              fmt::format("its field adapter.\"{}\" is missing or is something else", unusable),
              "it says what the tensors mean", "Restore it from a copy."});
}

RunState RunState::from_json(const Json& json) {
  RunState state;
  visit_fields(state, [&](const char* key, auto& field, OnRestart restart) {
    const bool fits = take_if_there(entry_of(json, key), field);
    if (!fits && restart == OnRestart::needed && state.unusable.empty()) state.unusable = key;
  });
  return state;
}

Json RunState::to_json() const {
  Json json = Json::object();
  visit_fields(*this,
               [&](const char* key, const auto& field, OnRestart) { put(json, key, field); });
  return json;
}

std::optional<Score> RunState::measured() const {
  if (score) return score;
  if (!validation_loss || std::isnan(*validation_loss)) return std::nullopt;
  return Score{.name = validation_loss_name, .value = *validation_loss, .less_is_better = true};
}

void RunState::require(const std::filesystem::path& where) const {
  if (unusable.empty()) return;
  core::fail(
      core::ErrorKind::input,
      {where.string(), fmt::format("its field \"{}\" is missing or is something else", unusable),
       "a restart needs it", "Restore it from a copy."});
}

}  // namespace finetune::checkpoint
