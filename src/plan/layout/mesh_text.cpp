// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/mesh_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace finetune::plan {
namespace {

constexpr std::int64_t most_nodes = 5;
constexpr std::size_t most_members = 4;

struct NamedAxis {
  Axis axis;
  const char* name;
};
constexpr std::array axes = {NamedAxis{Axis::dp_replicate, "dp_replicate"},
                             NamedAxis{Axis::dp_shard, "dp_shard"}, NamedAxis{Axis::cp, "cp"},
                             NamedAxis{Axis::tp, "tp"}};

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("  {:<24} {}\n", name, value);
}

std::string range_text(std::int64_t first, std::int64_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

/// Where ranks [first, last] lie along each axis that has several.
std::string places_text(const Mesh& mesh, std::int64_t first, std::int64_t last) {
  std::vector<std::string> places;
  for (const NamedAxis& of : axes) {
    if (mesh.axes[of.axis] == 1) continue;
    const MeshGroup group{of.name, {of.axis}};
    std::int64_t least = mesh.axes[of.axis], most = 0;
    for (std::int64_t rank = first; rank <= last; ++rank) {
      const std::int64_t place = mesh.axes.place(group, rank).number;
      least = std::min(least, place);
      most = std::max(most, place);
    }
    places.push_back(fmt::format("{} {}", of.name, range_text(least, most)));
  }
  return fmt::format("{}", fmt::join(places, ", "));
}

std::string node_line(const Mesh& mesh, const Ranks& ranks, std::int64_t node, bool is_first) {
  const std::int64_t first = node * ranks.ranks_per_node;
  const std::int64_t last = std::min(first + ranks.ranks_per_node, ranks.world_size) - 1;
  return line(is_first ? "layout" : "",
              fmt::format("node {}: ranks {}: {}", node, range_text(first, last),
                          places_text(mesh, first, last)));
}

/// `size` ranks that are `stride` apart.
std::string group_line(const std::string& name, std::int64_t size, std::int64_t stride,
                       const Mesh& mesh, const Ranks& ranks) {
  if (size == 1) return "";
  const std::int64_t last = (size - 1) * stride;
  std::string members = range_text(0, last);
  if (stride > 1) {
    std::vector<std::int64_t> some;
    for (std::int64_t rank = 0; rank <= last && some.size() < most_members; rank += stride)
      some.push_back(rank);
    members = fmt::format("{}", fmt::join(some, ", "));
    if (some.back() != last) members += fmt::format(", ... {}", last);
  }
  const std::int64_t num = mesh.size() / size;
  const bool is_inside = last < ranks.ranks_per_node && ranks.ranks_per_node % (size * stride) == 0;
  return line("", fmt::format("{}: {} group{} of {} ranks, {}; the first: {}", name, num,
                              num == 1 ? "" : "s", size,
                              is_inside || ranks.num_nodes == 1 ? "inside a node" : "across nodes",
                              members));
}

}  // namespace

std::string layout_text(const Mesh& mesh, const Ranks& ranks) {
  std::string text;
  for (std::int64_t node = 0; node < ranks.num_nodes; ++node) {
    const bool is_left_out = ranks.num_nodes > most_nodes && node >= most_nodes - 2;
    if (is_left_out && node + 1 < ranks.num_nodes) {
      text += line("", "...");
      node = ranks.num_nodes - 1;
    }
    text += node_line(mesh, ranks, node, node == 0);
  }
  const std::int64_t apart = mesh.axes.stride(groups::fsdp);
  for (const MeshGroup* group : {&groups::tp, &groups::cp, &groups::fsdp, &groups::dp_replicate})
    text += group_line(group->name, mesh.size(*group), mesh.axes.stride(*group), mesh, ranks);
  if (mesh.ep > 1) {
    text += group_line(groups::ep_name, mesh.ep, apart, mesh, ranks);
    text += group_line(groups::expert_fsdp_name, mesh.size(groups::fsdp) / mesh.ep, apart * mesh.ep,
                       mesh, ranks);
  }
  text.pop_back();
  return text;
}

}  // namespace finetune::plan
