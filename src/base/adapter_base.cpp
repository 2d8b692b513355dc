// SPDX-License-Identifier: Apache-2.0
#include "base/adapter_base.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/python_json.hpp"
#include "core/text.hpp"
#include "model/family.hpp"
#include "weights/folder.hpp"
#include "weights/peft_config.hpp"

namespace finetune::base {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t largest_record_bytes = 65536;

constexpr const char *fp8_of_rows = "fp8, rows", *fp8_of_blocks = "fp8, blocks";

std::string fp8_name(const model::Packing& packing) {
  if (packing.in_files)
    return packing.group_size == 0 ? "fp8 of the files" : "fp8 of the files, blocks";
  return packing.group_size == 0 ? fp8_of_rows : fp8_of_blocks;
}

/// Of 4 bits as earlier versions wrote it.
std::string gptq_name(const model::Packing& packing) {
  if (packing.writer == model::Packing::Writer::awq) return "awq";
  return packing.bits == 4 ? "gptq" : fmt::format("gptq, {} bits", packing.bits);
}

/// How frozen weights are kept; they may be dense in part.
std::string packing_of(const model::ParameterTable& table) {
  for (const model::Parameter& row : table.rows) {
    if (row.packing.kind == model::Packing::Kind::gptq) return gptq_name(row.packing);
    if (row.packing.kind == model::Packing::Kind::nf4)
      return row.packing.nests ? "nf4, nested" : "nf4";
    if (row.packing.kind == model::Packing::Kind::fp8) return fp8_name(row.packing);
    if (row.packing.kind == model::Packing::Kind::mxfp4) return "mxfp4 of the files";
    if (row.packing.kind == model::Packing::Kind::nvfp4) return "nvfp4 of the files";
    if (row.packing.kind == model::Packing::Kind::integers)
      return fmt::format("{}-bit integers of the files", row.packing.bits);
  }
  return "none";
}

/// What the folders tell; read by the root.
struct Told {
  checkpoint::FrozenBase record;  ///< the adapter's; nothing is known without
  std::string base;               ///< base_model_name_or_path of PEFT's file; empty without
  std::string own_name;           ///< _name_or_path of the model's config.json; empty without
};

std::string text_in(const core::Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

core::Json read_object(const fs::path& folder, const char* name, std::int64_t limit_bytes) {
  return core::parse_json(weights::read_text_in_folder(folder, name, limit_bytes),
                          (folder / name).string());
}

Told read_told(const fs::path& adapter, const fs::path& model) {
  Told told;
  if (weights::is_in_folder(adapter, adapter_base_name))
    told.record = checkpoint::FrozenBase::from_json(
        read_object(adapter, adapter_base_name, largest_record_bytes));
  told.base =
      text_in(read_object(adapter, weights::peft_config_name, weights::largest_peft_config_bytes),
              "base_model_name_or_path");
  told.own_name =
      text_in(core::parse_python_json(model::read_config(model), (model / "config.json").string()),
              "_name_or_path");
  return told;
}

/// That of the record, if these weights can be hashed as those were; or empty. What is computed in
/// fp32 holds the numbers of every other dtype.
std::string comparable_hash(const checkpoint::FrozenBase& record, const AdaptedBase& base) {
  const auto dtype = core::parse_dtype(record.dtype);
  const bool is_computed_in =
      dtype == core::DType::f32 || dtype == core::DType::bf16 || dtype == core::DType::f16;
  const bool is_comparable = is_computed_in &&
                             (dtype == base.compute || base.compute == core::DType::f32) &&
                             record.packing == packing_of(base.table);
  return is_comparable ? record.hash : "";
}

/// The last part of a path or of a name on a hub, in lower case.
std::string last_part(std::string name) {
  while (name.ends_with('/'))
    name.pop_back();
  name = name.substr(name.rfind('/') + 1);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

/// Folders are named after models in several ways: models/NAME, NAME/hf, and in the cache of the
/// hub models--OWNER--NAME/snapshots/HASH.
bool is_named_after(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  return std::ranges::any_of(fs::absolute(folder, ignored), [&](const fs::path& part) {
    const std::string known = last_part(part.string());
    return known == name || known.ends_with("--" + name);
  });
}

void warn_of_name(const fs::path& adapter, const AdaptedBase& base, const Told& told) {
  const std::string name = last_part(told.base);
  if (name.empty() || name == last_part(told.own_name) || is_named_after(base.folder, name)) return;
  log::warn(
      core::to_string({(adapter / weights::peft_config_name).string(),
                       fmt::format("names the base {}, the model is {}", core::one_line(told.base),
                                   base.folder.string()),
                       "their shapes are the same; whether their weights are cannot be checked",
                       "Check that the adapter was made for this model."}));
}

}  // namespace

checkpoint::FrozenBase describe_base(const std::string& hash, core::DType compute,
                                     const model::ParameterTable& table) {
  return {.hash = hash, .dtype = std::string(core::name(compute)), .packing = packing_of(table)};
}

std::optional<model::Fp8Recipe> kept_in_fp8(const checkpoint::FrozenBase& base) {
  if (base.packing == fp8_of_rows) return model::Fp8Recipe{model::Fp8Scaling::rowwise};
  if (base.packing == fp8_of_blocks) return model::Fp8Recipe{model::Fp8Scaling::block};
  return std::nullopt;
}

void require_adapter_base(const comm::Communicator& world, const fs::path& adapter,
                          const AdaptedBase& base) {
  const Told told = comm::agree(
      world, [&] { return world.is_root() ? read_told(adapter, base.folder) : Told(); });
  // Other ranks than the root learn from it whether there is a hash to compare with.
  const std::string wanted = world.broadcast_text(comparable_hash(told.record, base));
  if (wanted.empty()) {
    if (world.is_root()) warn_of_name(adapter, base, told);
    return;
  }
  const std::string dtype = world.broadcast_text(told.record.dtype);
  const std::string hash = base.hash(*core::parse_dtype(dtype));
  if (hash == wanted) return;
  const std::string name = world.broadcast_text(core::one_line(told.base));
  comm::agree_all(world, [&] {
    core::fail(
        core::ErrorKind::input,
        {adapter.string(),
         fmt::format("is an adapter of another model than the one in {}", base.folder.string()),
         fmt::format("{} says that it was trained on weights with the hash {}, these have {}",
                     adapter_base_name, wanted, hash),
         name.empty() ? "Name the model that it was made for."
                      : fmt::format("Name the model that it was made for, {}.", name)});
  });
}

}  // namespace finetune::base
