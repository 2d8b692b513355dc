// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "core/message_size.hpp"
#include "model/cost/scratch.hpp"
#include "model/packing.hpp"
#include "plan/layout/fp8_layout.hpp"
#include "plan/layout/stages.hpp"
#include "plan/machine/detail/collectives.hpp"
#include "plan/memory/buffers.hpp"
#include "plan/memory/detail/activations.hpp"
#include "plan/memory/detail/forward.hpp"
#include "plan/memory/detail/ops_cost.hpp"
#include "plan/memory/detail/whole_matrices.hpp"

namespace finetune::plan {
namespace {

// Of a GPU, estimates until they were measured: what CUDA loads of cuBLAS, of the attention kernels
// and of libtorch's own as they are first called, with cuBLAS's workspace.
constexpr std::int64_t gpu_modules_bytes = std::int64_t{640} << 20;
/// Of tensors' memory: what libtorch's allocator has reserved and can give to nobody. Its segments
/// grow (train/input/device.cpp), so the gaps are those between sizes.
constexpr double gpu_gaps = 0.04;
std::string name_of_dtype(core::DType dtype) {
  return dtype == core::DType::f32 ? "fp32" : dtype == core::DType::f16 ? "fp16" : "bf16";
}

class MemoryPlan {
 public:
  MemoryPlan(const PlanInput& request, const Mesh& mesh, const model::ParameterTable& table,
             const ShardMap& shards)
      : request_(request),
        numbers_(request.numbers),
        mesh_(mesh),
        table_(table),
        shards_(shards),
        activations_(plan_activations(request, table)) {
    for (const UnitLayout& unit : shards.units())
      if (unit.trainable) largest_shard_ = std::max(largest_shard_, unit.shard_size);
  }

  std::vector<MemoryItem> items() {
    add_frozen();
    add_shards();
    add_buffers();
    add_activations();
    add_evaluation();
    add_communication();
    add_copy_to_save();
    add_whole_matrices();
    add_panels();
    if (request_.on_gpu) {
      add_untracked_of_gpu();
      add_host_of_gpu();
    } else {
      add_untracked(Category::other, "program and libraries", program_bytes);
      add_untracked(Category::other, "products kept by oneDNN", kept_product_bytes(numbers_));
    }
    add_data();
    std::stable_sort(items_.begin(), items_.end(), [](const MemoryItem& a, const MemoryItem& b) {
      return a.category < b.category;
    });
    return std::move(items_);
  }

 private:
  void add(Category category, std::string name, std::int64_t bytes, Place place = Place::device) {
    if (bytes > 0) items_.push_back({category, std::move(name), bytes, place});
  }

  /// Memory that libtorch's allocator knows nothing of.
  void add_untracked(Category category, std::string name, std::int64_t bytes) {
    if (bytes > 0) items_.push_back({category, std::move(name), bytes, Place::device, false});
  }

  void add_data() {
    const auto add_host = [&](std::string name, std::int64_t bytes) {
      if (bytes > 0)
        items_.push_back({Category::other, std::move(name), bytes,
                          request_.on_gpu ? Place::host : Place::device, false});
    };
    add_host("tokenizer", request_.tokenizer_bytes);
    add_host("data, which samples share a sequence", request_.packing_bytes);
  }

  /// What each rank keeps of frozen units, from start to end. Alignment is counted with what is not
  /// packed, if there is any.
  void add_frozen() {
    using Kind = model::Packing::Kind;
    std::map<Kind, std::int64_t> bytes;
    std::map<Kind, std::string> names;
    for (const UnitLayout& unit : shards_.units())
      for (const FrozenPlane& plane : unit.planes) {
        const model::Packing& packing = table_.row(plane.row).packing;
        // Of experts that ranks share out there are fewer shards.
        bytes[packing.kind] +=
            plane.count * core::size_bytes(plane.dtype) * (shards_.num_shards() / unit.num_shards);
        names[packing.kind] =
            packing.is_dense() ? name_of_dtype(numbers_.compute) : model::packing_name(packing);
      }
    std::int64_t left = shards_.frozen_shard_bytes();
    for (auto it = bytes.rbegin(); it != bytes.rend(); ++it) {
      const bool is_last = std::next(it) == bytes.rend();
      const std::int64_t share = is_last ? left : it->second / shards_.num_shards();

      add(Category::weights, "frozen, " + names[it->first], share);
      left -= share;
    }
  }

  /// Bytes of the optimizer's states of this rank's shards.
  std::int64_t states_bytes() const {
    std::int64_t bytes = 0;
    for (const UnitLayout& unit : shards_.units())
      if (unit.trainable) bytes += request_.optimizer.shard_bytes(table_, unit, numbers_);
    return bytes;
  }

  /// What each rank keeps of trained units, from start to end.
  void add_shards() {
    const std::int64_t shard = shards_.shard_elements();
    const Place optimizer =
        request_.offloads_optimizer && request_.on_gpu ? Place::host : Place::device;
    add(Category::weights, "master copy, " + name_of_dtype(numbers_.master),
        core::size_bytes(numbers_.master) * shard, optimizer);
    const std::int64_t in_8_bits = add_shards_in_8_bits();
    if (numbers_.compute != numbers_.master || optimizer == Place::host)
      add(Category::weights, "copy to compute with, " + name_of_dtype(numbers_.compute),
          core::size_bytes(numbers_.compute) * (shard - in_8_bits));
    const auto& kept = request_.optimizer;
    const std::int64_t ema_bytes = kept.keeps_ema() ? 4 * shard : 0;
    add(Category::states,
        kept.label + ", " + (kept.format.empty() ? name_of_dtype(numbers_.moments) : kept.format),
        states_bytes() - ema_bytes, optimizer);
    const bool reads_masters = numbers_.compute == numbers_.master && optimizer == Place::device;
    const bool casts_ema = ema_bytes > 0 && numbers_.master != core::DType::f32;
    if ((kept.evaluates_others || casts_ema) && reads_masters)
      add(Category::weights, "copy to evaluate with, " + name_of_dtype(numbers_.compute),
          core::size_bytes(numbers_.compute) * shard);
    add(Category::states, "mean of weights, fp32", ema_bytes, optimizer);
    add(Category::gradients, numbers_.is_fixed_point() ? "sums, 64-bit fixed point" : "sums, fp32",
        numbers_.sum_bytes() * count_sums(shards_, stages(), rules_of(request_, mesh_)));
    if (numbers_.is_fixed_point())
      add(Category::gradients, "sums of a unit, fp32", 4 * largest_shard_);
  }

  /// What units in 8 bits are gathered from, and what stays of them. -> Their elements of a shard.
  std::int64_t add_shards_in_8_bits() {
    std::int64_t elements = 0, kept = 0;
    std::set<const Fp8Layout*> different;
    const auto layouts = fp8_layouts(table_, shards_);
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (!layouts[i]) continue;
      elements += shards_.units()[i].shard_size;
      kept += layouts[i]->kept_bytes(numbers_.compute);
      if (different.insert(layouts[i].get()).second) kept += layouts[i]->index_bytes();
    }
    add(Category::weights, "copy to compute with, FP8", elements);
    add(Category::weights, "scales, and what is not in FP8", kept);
    return elements;
  }

  /// The update begins when activations are gone: what it takes beyond them.
  void add_whole_matrices() {
    std::int64_t bytes = whole_matrices_bytes(request_.optimizer, table_, shards_);
    for (const MemoryItem& one : items_)
      if (one.category == Category::activations && one.place == Place::device) bytes -= one.bytes;
    add(Category::states, "whole matrices of a unit, beyond activations", bytes);
  }

  /// What is on a GPU is copied anyway, see add_host_of_gpu.
  void add_copy_to_save() {
    if (!request_.saves_beside_training || (request_.on_gpu && !request_.offloads_optimizer))
      return;
    const Place place = request_.on_gpu ? Place::host : Place::device;
    const std::int64_t bytes =
        (core::size_bytes(numbers_.master) * shards_.shard_elements() + states_bytes()) /
        mesh_.size(groups::dp_replicate);
    add(Category::states, "copy to be saved during training", bytes, place);
    // As a message to the next node, and the one of the node before.
    if (request_.has_partner_copies && request_.ranks.num_nodes > 1)
      items_.push_back({Category::states, "copies for the next node and of the one before",
                        2 * bytes, place, false});
  }

  bool sums_in_place() const { return plan::sums_in_place(mesh_, numbers_); }
  schedule::Stages stages() const {
    return stages_of(table_, shards_, head_row(request_.architecture, table_));
  }
  std::int64_t accumulation() const {
    return plan_batch(request_, mesh_.size(groups::batch)).accumulation;
  }

  void add_buffers() {
    const std::int64_t element = core::size_bytes(numbers_.compute);
    const BufferSizes buffers = count_buffers(shards_, stages(),
                                              {.schedule = rules_of(request_, mesh_),
                                               .accumulation = accumulation(),
                                               .sums_in_place = sums_in_place(),
                                               .alone = mesh_.alone});
    const bool has_bytes = buffers.gathered_bytes > 0;
    const std::string trained = has_bytes ? "whole other units, " : "whole units, ";
    add(Category::gathered,
        shards_.has_frozen() ? "whole frozen units, as they are kept" : "whole units, FP8",
        buffers.gathered_bytes);
    add(Category::gathered, trained + name_of_dtype(numbers_.compute), element * buffers.gathered);
    add(Category::gathered, "unpacked matrices, " + name_of_dtype(numbers_.compute),
        activations_.unpacked);
    add(Category::gradients, "of open units, " + name_of_dtype(numbers_.compute),
        element * buffers.gradients);
  }

  void add_activations() {
    add(Category::activations, "kept for backward", activations_.kept);
    add(Category::activations,
        activations_.worst_is_head ? "in flight, at the head with its loss"
                                   : "in flight, at the backward pass of a block",
        activations_.in_flight);
    add(Category::activations, "of offloaded blocks, between host and device",
        activations_.travelling);
    add(Category::activations, "kept for backward by offloaded blocks", activations_.on_host,
        Place::host);
  }

  /// When tasks are asked, nothing is there of a step but what it begins with.
  void add_evaluation() {
    if (request_.evaluate_tokens == 0) return;
    const model::BytesHeld pass = forward_bytes(request_, table_, request_.evaluate_tokens);
    add(Category::activations, "of a pass of [evaluate], beyond those",
        pass.total() - activations_.kept - activations_.in_flight - activations_.travelling -
            activations_.unpacked);
  }

  /// Of each thread: for products and attention in fp32, and of a sample where layers remember.
  void add_panels() {
    if (request_.on_gpu) return;
    const model::Architecture& a = request_.architecture;
    const std::int64_t panels = numbers_.widens ? model::product_scratch_bytes() : 0;
    const bool is_wide = numbers_.widens || numbers_.compute == core::DType::f32;
    const std::int64_t heads =
        is_wide ? model::attention_scratch_bytes(request_.max_seq_length, a.head_size) : 0;
    add_untracked(Category::activations, "panels in fp32, of each thread",
                  request_.threads * (panels + heads));
    if (numbers_.compute == core::DType::f16) return;
    add_untracked(Category::activations, "memory of a sample's tokens, of each thread",
                  model::memory_scratch_bytes(a, request_.threads, request_.max_seq_length));
  }

  void add_communication() {
    if (request_.on_gpu) add_wire_on_gpu();
    add(Category::communication, "gradients of what ranks of tp hold in common",
        in_common_bytes() - activations_.in_flight - activations_.unpacked);
    if (mesh_.size() == 1 && mesh_.alone == Alone::keeps) return;
    if (!request_.on_gpu) add_mpi();
    if (!mesh_.communicates(groups::dp_replicate)) return;
    const std::int64_t replicas = mesh_.size(groups::dp_replicate);
    // An all-reduce of MPI's groups adds beside its target.
    if (!request_.on_gpu)
      add_untracked(Category::communication, "sums over copies of the model",
                    numbers_.sum_bytes() * ((largest_shard_ + replicas - 1) / replicas));
    // All units' sums leave in the last backward pass, as its activations go: the first unit's meet
    // all of these, the last unit's none.
    if (numbers_.wire_bytes() != numbers_.sum_bytes()) {
      const std::int64_t all = numbers_.wire_bytes() * shards_.shard_elements();
      const std::int64_t first = numbers_.wire_bytes() * largest_shard_;
      add(Category::communication, "sums as they are sent to other copies",
          std::max(first, all - activations_.kept - activations_.in_flight));
    }
  }

  /// When a unit's are summed, what was in flight in its backward pass is gone, and so is what a
  /// block has kept for it; the head is the first to be summed.
  std::int64_t in_common_bytes() const {
    const int head = shards_.unit_of(head_row(request_.architecture, table_));
    std::int64_t most = 0;
    for (int unit = 0; unit < std::ssize(shards_.units()); ++unit) {
      const std::int64_t elements = elements_in_common(table_, shards_.unit(unit));
      const std::int64_t gone = unit == head ? 0 : activations_.least_kept;
      most = std::max(most, std::int64_t{sizeof(float)} * elements - gone);
    }
    return most;
  }

  /// Messages of host memory, two sent and two received at a time, and what ranks of a node share.
  void add_mpi() {
    const Links links({}, true);
    const Ranks& ranks = request_.ranks;
    std::vector<GroupShape> all = {shape_of(groups::fsdp, mesh_, ranks),
                                   shape_of(groups::dp_replicate, mesh_, ranks)};
    for (const MeshGroup* group : {&groups::tp, &groups::cp})
      if (mesh_.size(*group) > 1) all.push_back(shape_of(*group, mesh_, ranks));
    if (mesh_.ep > 1) {
      all.push_back(shape_of_experts(mesh_, ranks));
      all.push_back(shape_of_expert_shards(mesh_, ranks));
    }
    std::int64_t windows = 0;
    for (const GroupShape& group : all)
      if (links.has_windows(group)) windows += window_bytes(group);
    // Between nodes that share memory running sums are on their way instead.
    const std::int64_t element =
        windows > 0 ? std::max(numbers_.wire_bytes(), numbers_.sum_bytes()) : numbers_.wire_bytes();
    const std::int64_t piece = std::min(core::message_elements, largest_shard_);
    add_untracked(Category::communication, "pieces on their way", 4 * piece * element);
    if (mesh_.size(groups::tp) > 1)
      add_untracked(Category::communication, "pieces of activations on their way",
                    4 *
                        std::min(core::message_elements,
                                 tokens_of(request_) * request_.architecture.d_model) *
                        core::size_bytes(numbers_.compute));
    add_untracked(Category::communication, "shared with the node's other ranks", windows);
  }

  /// Units as they are sent. Fixed point is made by way of fp64 where no kernel makes it.
  void add_wire_on_gpu() {
    if (sums_in_place()) return;
    const bool is_alone = !mesh_.communicates(groups::fsdp);
    const bool is_composed = numbers_.is_fixed_point() && !request_.has_gpu_kernels;
    const bool has_copy =
        is_alone ? is_composed : numbers_.is_fixed_point() || numbers_.reduce != numbers_.compute;
    const auto trained = std::count_if(shards_.units().begin(), shards_.units().end(),
                                       [](const UnitLayout& unit) { return unit.trainable; });
    // One unit alone meets another's gradient only if it is its own, of the pass before.
    const bool meets_another = trained > 1 || accumulation() > 1;
    const std::int64_t at_once = is_alone || !request_.parallel.overlap || !meets_another ? 1 : 2;
    const std::int64_t wire = has_copy ? numbers_.wire_bytes() * shards_.largest_unit() : 0;
    const std::int64_t terms = is_alone ? 0 : numbers_.wire_bytes() * largest_shard_;
    const std::int64_t fp64 = is_composed ? 8 * shards_.largest_unit() : 0;
    add(Category::communication, "gradients of units as they are sent",
        at_once * (wire + terms) + fp64);
  }

  /// After all tensors, of which it takes a part.
  void add_untracked_of_gpu() {
    double tensors = 0;
    for (const MemoryItem& item : items_)
      if (item.place == Place::device && item.is_tensor) tensors += static_cast<double>(item.bytes);
    add_untracked(Category::communication, "NCCL's communicators", communicator_bytes(mesh_));
    add_untracked(Category::other, "CUDA's context", gpu_context_bytes);
    add_untracked(Category::other, "libraries' kernels and workspaces", gpu_modules_bytes);
    add_untracked(Category::other, "gaps between tensors",
                  static_cast<std::int64_t>(gpu_gaps * tensors));
  }

  static std::int64_t pinned(core::DType dtype, std::int64_t count) {
    return pinned_bytes(core::size_bytes(dtype) * count);
  }

  /// A checkpoint copies the states of all units before it writes. What is on the host already is
  /// written from where it is.
  void add_host_of_gpu() {
    add(Category::other, "program and libraries", program_bytes, Place::host);
    if (request_.offloads_optimizer) {
      const HostBuffers buffers = count_host_buffers(shards_, core::size_bytes(numbers_.compute));
      add(Category::gradients, "sums of units, on their way from the device", buffers.gradients,
          Place::host);
      add(Category::communication, "new weights of units, on their way to the device",
          buffers.weights, Place::host);
      return;
    }
    std::int64_t bytes = 0;
    for (const UnitLayout& unit : shards_.units()) {
      if (!unit.trainable) continue;
      bytes += pinned(numbers_.master, unit.shard_size);
      for (const OptimizerState& state : request_.optimizer.states)
        bytes += pinned(state.dtype_in(numbers_), state.num_values(table_, unit));
    }
    add(Category::states, "copies for a checkpoint", bytes, Place::host);
  }

  const PlanInput& request_;
  const Numbers& numbers_;
  const Mesh& mesh_;
  const model::ParameterTable& table_;
  const ShardMap& shards_;
  ActivationBytes activations_;
  std::int64_t largest_shard_ = 0;
  std::vector<MemoryItem> items_;
};

}  // namespace

bool sums_in_place(const Mesh& mesh, const Numbers& numbers) {
  return !mesh.communicates(groups::fsdp) && numbers.compute == core::DType::f32 &&
         !numbers.is_fixed_point() && !numbers.keeps_passes_apart;
}

std::vector<MemoryItem> plan_memory(const PlanInput& request, const Mesh& mesh,
                                    const model::ParameterTable& table, const ShardMap& shards) {
  return MemoryPlan(request, mesh, table, shards).items();
}

}  // namespace finetune::plan
