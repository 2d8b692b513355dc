#pragma once
// SPDX-License-Identifier: Apache-2.0
// The axes of a mesh of ranks, and the groups of ranks that are made of them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace finetune::plan {

/// From the outermost: ranks that differ along a later axis alone lie closer together.
enum class Axis {
  dp_replicate,  ///< copies of the model
  dp_shard,      ///< parts of a copy, each with samples of its own
  cp,            ///< parts of a sequence
  tp             ///< parts of every matrix
};
inline constexpr std::size_t num_axes = 4;

class AxisSet {
 public:
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes)
      bits_ |= 1u << static_cast<unsigned>(axis);
  }
  constexpr bool contains(std::size_t i_axis) const { return (bits_ >> i_axis & 1u) != 0; }

 private:
  unsigned bits_ = 0;
};

/// Ranks that differ along these axes alone form a group.
struct MeshGroup {
  const char* name;  ///< in logs, metrics and machine files
  AxisSet axes;
};

/// Groups by their use: the only place that says of which axes they are.
namespace groups {
inline constexpr MeshGroup batch{"batch", {Axis::dp_replicate, Axis::dp_shard}};
/// The ranks that hold one copy of the model together.
inline constexpr MeshGroup one_copy{"copy", {Axis::dp_shard, Axis::cp, Axis::tp}};
/// Those of them that have the same parts of its matrices, and share them in shards.
inline constexpr MeshGroup fsdp{"fsdp", {Axis::dp_shard, Axis::cp}};
/// Those that hold the same part of different copies.
inline constexpr MeshGroup dp_replicate{"dp_replicate", {Axis::dp_replicate}};
/// Over which a step's loss and its trained tokens are added up.
inline constexpr MeshGroup loss{"loss", {Axis::dp_replicate, Axis::dp_shard, Axis::cp}};
/// Those that share the tokens of the same samples.
inline constexpr MeshGroup cp{"cp", {Axis::cp}};
/// Those that share every matrix, and have the same tokens.
inline constexpr MeshGroup tp{"tp", {Axis::tp}};
/// Inside fsdp, by Mesh::ep: neighbours that share the experts of a layer, and those with the same.
inline constexpr const char* ep_name = "ep";
inline constexpr const char* expert_fsdp_name = "expert_fsdp";
}  // namespace groups

/// How many ranks there are along each axis.
class AxisSizes {
 public:
  std::int64_t& operator[](Axis axis) { return sizes_[static_cast<std::size_t>(axis)]; }
  std::int64_t operator[](Axis axis) const { return sizes_[static_cast<std::size_t>(axis)]; }

  std::int64_t size() const;
  /// Ranks of each such group.
  std::int64_t size(const MeshGroup& group) const;
  /// Ranks from one of a group to the next, where a group's axes follow each other.
  std::int64_t stride(const MeshGroup& group) const;

  struct Place {
    std::int64_t group = 0;   ///< 0 .. size() / size(group) - 1
    std::int64_t number = 0;  ///< within it
  };
  /// Of the rank at `position`, 0 .. size() - 1, the last axis fastest.
  Place place(const MeshGroup& group, std::int64_t position) const;

  bool operator==(const AxisSizes&) const = default;

 private:
  std::array<std::int64_t, num_axes> sizes_ = {1, 1, 1, 1};
};

}  // namespace finetune::plan
