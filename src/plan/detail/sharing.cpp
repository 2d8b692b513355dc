// SPDX-License-Identifier: Apache-2.0
#include "plan/detail/sharing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "model/packing.hpp"
#include "model/part.hpp"
#include "plan/detail/shared_blocks.hpp"

namespace finetune::plan {
namespace {

/// Experts of a layer; 0: the model has none.
std::int64_t num_experts(const model::ParameterTable& table) {
  for (const model::Parameter& row : table.rows)
    if (row.of_experts) return row.of_experts->total;
  return 0;
}

/// Whether ranks of ep and tp that share out the experts of a tensor cut what is packed together.
bool cuts_blocks(const model::Parameter& row, model::PartPlace place) {
  if (!row.of_experts || !row.of_experts->are_in_one_tensor()) return false;
  const std::int64_t num = row.of_experts->total, an_expert = row.count() / num;
  for (place.i_ep = 0; place.i_ep < place.ep; ++place.i_ep)
    for (place.i_tp = 0; place.i_tp < place.tp; ++place.i_tp)
      if (model::held_fused_experts(num, place).first * an_expert %
              model::elements_together(row.packing) !=
          0)
        return true;
  return false;
}

const model::Parameter* row_with_cut_blocks(const Mesh& mesh, const model::ParameterTable& table) {
  const auto it = std::ranges::find_if(table.rows, [&](const model::Parameter& row) {
    return cuts_blocks(row, {.tp = mesh.axes[Axis::tp], .ep = mesh.ep});
  });
  return it == table.rows.end() ? nullptr : &*it;
}

/// A row whose parts are those of all experts together, which nobody can share out; nullptr: none.
const model::Parameter* row_with_parts_together(const model::ParameterTable& table) {
  const auto it = std::ranges::find_if(
      table.rows, [](const model::Parameter& row) { return row.adapted.together.num > 0; });
  return it == table.rows.end() ? nullptr : &*it;
}

bool can_share(const Mesh& mesh, const model::ParameterTable& table) {
  return model::why_not(table, mesh.axes[Axis::tp]).empty() &&
         (mesh.axes[Axis::cp] == 1 || !model::remembers(table)) &&
         (mesh.ep == 1 ||
          (mesh.ep <= num_experts(table) && row_with_parts_together(table) == nullptr)) &&
         row_with_cut_blocks(mesh, table) == nullptr;
}

/// "1, 2 or 4": what one of the settings of `request` can be, of up to `most`.
std::string possible_sizes(const PlanInput& request, const model::ParameterTable& table,
                           std::int64_t ParallelSettings::*key, std::int64_t most) {
  std::vector<std::string> sizes;
  for (std::int64_t size = 1; size <= most; ++size) {
    PlanInput other = request;
    other.parallel.*key = size;
    if (has_mesh(other, table)) sizes.push_back(fmt::format("{}", size));
  }
  if (sizes.empty()) return "";
  const std::string last = sizes.back();
  sizes.pop_back();
  return sizes.empty() ? last : fmt::format("{} or {}", fmt::join(sizes, ", "), last);
}

bool is_packed(const model::ParameterTable& table) {
  return std::ranges::any_of(table.rows,
                             [](const model::Parameter& row) { return !row.packing.is_dense(); });
}

/// What ranks that cannot share matrices can do instead: share sequences, which cuts nothing.
std::string advice_on_cp(const PlanInput& request, const model::ParameterTable& table) {
  PlanInput other = request;
  other.parallel.cp = request.parallel.num_cp() * request.parallel.num_tp();
  other.parallel.tp = 1;
  if (!is_packed(table) || !has_mesh(other, table)) return "";
  return fmt::format(
      " Long sequences also fit with parallel.cp = {}, which divides them and cuts no matrix.",
      other.parallel.cp);
}

void require_parts(const PlanInput& request, const Mesh& mesh, const model::ParameterTable& table) {
  const std::int64_t tp = mesh.axes[Axis::tp];
  const std::string why = model::why_not(table, tp);
  if (why.empty()) return;
  const std::string sizes =
      possible_sizes(request, table, &ParallelSettings::tp, request.ranks.ranks_per_node);
  core::fail(
      core::ErrorKind::deck,
      {request.deck,
       fmt::format("parallel.tp = {}: {} ranks cannot share the matrices of this model", tp, tp),
       why,
       (sizes.empty() ? "Remove it." : fmt::format("Use {}.", sizes)) +
           advice_on_cp(request, table)});
}

void require_whole_samples(const PlanInput& request, const Mesh& mesh,
                           const model::ParameterTable& table) {
  const std::int64_t cp = mesh.axes[Axis::cp];
  if (cp == 1 || !model::remembers(table)) return;
  core::fail(
      core::ErrorKind::deck,
      {request.deck, fmt::format("parallel.cp = {}, but layers of this model remember", cp),
       "what a token reads depends on all before it, one after the other", "Set parallel.cp = 1."});
}

void require_experts(const PlanInput& request, const model::ParameterTable& table) {
  const std::int64_t ep = request.parallel.num_ep(), num = num_experts(table);
  if (const model::Parameter* row = row_with_parts_together(table); ep > 1 && row != nullptr)
    core::fail(core::ErrorKind::deck,
               {request.deck, fmt::format("parallel.ep = {} with adapter.target_parameters", ep),
                fmt::format("the low-rank parts of {} are those of all experts together, which "
                            "every rank has",
                            row->name),
                "Set parallel.ep = 1; parallel.dp_shard shares the experts' weights out as well."});
  if (ep == 1 || ep <= num) return;
  core::fail(
      core::ErrorKind::deck,
      {request.deck,
       fmt::format("parallel.ep = {}, but the model has {}", ep,
                   num == 0 ? std::string("no experts") : fmt::format("{} experts per layer", num)),
       "so many ranks share the experts of each layer",
       num == 0 ? std::string("Remove it.")
                : fmt::format("Use a number up to {} that divides parallel.dp_shard times "
                              "parallel.cp.",
                              num)});
}

void require_whole_blocks(const PlanInput& request, const Mesh& mesh,
                          const model::ParameterTable& table) {
  const model::Parameter* row = row_with_cut_blocks(mesh, table);
  if (row == nullptr) return;
  const bool by_ep = mesh.ep > 1;
  const std::int64_t most = by_ep ? row->of_experts->total : request.ranks.ranks_per_node;
  const std::string sizes =
      possible_sizes(request, table, by_ep ? &ParallelSettings::ep : &ParallelSettings::tp, most);
  core::fail(core::ErrorKind::deck,
             {request.deck,
              fmt::format("parallel.{0} = {1}: {1} ranks cannot share the experts of {2}",
                          by_ep ? "ep" : "tp", by_ep ? mesh.ep : mesh.axes[Axis::tp], row->name),
              fmt::format("they are packed in blocks of {} numbers, an expert has {}, and some "
                          "blocks would be cut",
                          model::elements_together(row->packing),
                          core::with_commas(row->count() / row->of_experts->total)),
              (sizes.empty() ? "Use parallel.ep = 1 and parallel.tp = 1, or a model that is not "
                               "packed."
                             : fmt::format("Use {}, or a model that is not packed.", sizes)) +
                  (by_ep ? "" : advice_on_cp(request, table))});
}

std::string unequal_row(const PlanInput& request, const Mesh& mesh,
                        const model::ParameterTable& table) {
  return row_in_unequal_blocks(mesh, table, request.parallel.bucket, request.optimizer.block());
}

void require_equal_blocks(const PlanInput& request, const Mesh& mesh,
                          const model::ParameterTable& table) {
  const std::string row = unequal_row(request, mesh, table);
  if (row.empty()) return;
  const std::string sizes =
      possible_sizes(request, table, &ParallelSettings::tp, request.ranks.ranks_per_node);
  core::fail(core::ErrorKind::deck,
             {request.deck,
              fmt::format("optimizer.name = \"{}\" and parallel.tp = {}", request.optimizer.name,
                          mesh.axes[Axis::tp]),
              fmt::format("several ranks hold {}, and its moments would be rounded in blocks of {} "
                          "with other neighbours on each, so that the ranks drift apart",
                          row, request.optimizer.block()),
              sizes.empty() ? "Set another optimizer."
                            : fmt::format("Use parallel.tp = {}, or another optimizer.", sizes)});
}

}  // namespace

Mesh mesh_of(const PlanInput& request, const model::ParameterTable& table) {
  require_experts(request, table);
  const Mesh mesh = make_mesh(request.parallel, request.ranks, request.deck);
  require_parts(request, mesh, table);
  require_whole_samples(request, mesh, table);
  require_whole_blocks(request, mesh, table);
  require_equal_blocks(request, mesh, table);
  return mesh;
}

bool has_mesh(const PlanInput& request, const model::ParameterTable& table) {
  if (!is_mesh(request.parallel, request.ranks)) return false;
  const Mesh mesh = make_mesh(request.parallel, request.ranks);
  return can_share(mesh, table) && unequal_row(request, mesh, table).empty();
}

}  // namespace finetune::plan
