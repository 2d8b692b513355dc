// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/tiled.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "checkpoint/format/detail/tiling.hpp"
#include "checkpoint/format/layout.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

/// Slices with the box that each is of.
struct Placed {
  const PlannedSlice* planned = nullptr;
  core::Box box;
};

/// Element `element` of a tensor of this shape as one of `box`; nothing if it lies elsewhere.
std::optional<std::int64_t> within(const core::Box& box, const std::vector<std::int64_t>& shape,
                                   std::int64_t element) {
  std::int64_t index = 0, scale = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::int64_t at = element % shape[d] - box.begin[d];
    if (at < 0 || at >= box.extent[d]) return std::nullopt;
    index += at * scale;
    scale *= box.extent[d];
    element /= shape[d];
  }
  return index;
}

std::int64_t element_of(const core::Box& box, const std::vector<std::int64_t>& shape,
                        std::int64_t index) {
  std::int64_t element = 0, scale = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    element += (box.begin[d] + index % box.extent[d]) * scale;
    index /= box.extent[d];
    scale *= shape[d];
  }
  return element;
}

/// The slices of one tensor, by box and offset.
class Tensor {
 public:
  explicit Tensor(std::span<const Placed> slices)
      : slices_(slices), first_(*slices.front().planned), shape_(first_.slice.shape) {}

  std::optional<std::string> problem() const {
    for (const auto& of : {&Tensor::names, &Tensor::boxes_inside, &Tensor::runs, &Tensor::tiling})
      if (auto text = (this->*of)()) return text;
    return std::nullopt;
  }

 private:
  std::string is(const std::string& what) const {
    return fmt::format("{} {} {}", first_.kind, core::one_line(first_.slice.name), what);
  }

  std::optional<std::string> names() const {
    if (!is_kind(first_.kind) || !is_tensor_name(first_.slice.name))
      return is("has a name that no checkpoint can have");
    for (const Placed& each : slices_) {
      const PlannedSlice& other = *each.planned;
      if (other.slice.shape == shape_ && other.slice.dtype == first_.slice.dtype) continue;
      return is(fmt::format("is {} [{}] to rank {}, and {} [{}] to rank {}",
                            core::name(first_.slice.dtype), fmt::join(shape_, ", "), first_.rank,
                            core::name(other.slice.dtype), fmt::join(other.slice.shape, ", "),
                            other.rank));
    }
    return std::nullopt;
  }

  std::optional<std::string> boxes_inside() const {
    for (const Placed& each : slices_) {
      const core::TensorSlice& slice = each.planned->slice;
      if (core::is_inside(each.box, shape_) && slice.offset >= 0 && slice.count > 0 &&
          slice.offset + slice.count <= each.box.num_elements())
        continue;
      return is(fmt::format("has a slice of rank {} that is not inside it", each.planned->rank));
    }
    return std::nullopt;
  }

  /// Within each box.
  std::optional<std::string> runs() const {
    std::int64_t next = 0;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const core::TensorSlice& slice = slices_[i].planned->slice;
      const core::Box& box = slices_[i].box;
      if (i > 0 && slices_[i - 1].box != box) next = 0;
      if (slice.offset != next)
        return wrong(element_of(box, shape_, std::min(next, slice.offset)), slice.offset > next);
      next += slice.count;
      const bool is_last = i + 1 == slices_.size() || slices_[i + 1].box != box;
      if (is_last && next != box.num_elements()) return wrong(element_of(box, shape_, next), true);
    }
    return std::nullopt;
  }

  std::optional<std::string> tiling() const {
    std::vector<BoxEntry> boxes;
    for (const Placed& each : slices_)
      if (boxes.empty() || boxes.back().box != each.box) boxes.push_back({0, each.box});
    if (boxes.size() > most_boxes_per_tensor)
      return is(fmt::format("is cut into more than {} boxes", most_boxes_per_tensor));
    if (cut_dims(shape_, boxes).size() > most_cut_dims)
      return is(fmt::format("is cut along more than {} dims", most_cut_dims));
    if (const auto found = find_wrong_element(shape_, boxes))
      return wrong(found->element, found->is_missing);
    return std::nullopt;
  }

  /// With those who write it, or, where nobody does, those who write some of the tensor.
  std::string wrong(std::int64_t element, bool is_missing) const {
    constexpr std::size_t most_named = 8;
    std::set<std::int64_t> ranks;
    for (const Placed& each : slices_) {
      const core::TensorSlice& slice = each.planned->slice;
      const auto index = within(each.box, shape_, element);
      const bool has = index && *index >= slice.offset && *index < slice.offset + slice.count;
      if (has != is_missing && ranks.size() < most_named) ranks.insert(each.planned->rank);
    }
    return fmt::format("element {} of {} {} would be written {} rank{} {}", element, first_.kind,
                       core::one_line(first_.slice.name),
                       is_missing ? "by nobody, others of it by" : "twice, by",
                       ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  }

  std::span<const Placed> slices_;
  const PlannedSlice& first_;
  const std::vector<std::int64_t>& shape_;
};

bool is_same_tensor(const Placed& a, const Placed& b) {
  return a.planned->kind == b.planned->kind && a.planned->slice.name == b.planned->slice.name;
}

}  // namespace

std::optional<std::string> tiling_problem(std::vector<PlannedSlice> slices) {
  std::vector<Placed> placed;
  placed.reserve(slices.size());
  for (const PlannedSlice& each : slices)
    if (each.slice.count != 0) placed.push_back({&each, each.slice.box_or_whole()});
  std::ranges::sort(placed, [](const Placed& a, const Placed& b) {
    const auto key = [](const Placed& of) {
      return std::tie(of.planned->kind, of.planned->slice.name, of.box, of.planned->slice.offset,
                      of.planned->rank);
    };
    return key(a) < key(b);
  });
  for (auto first = placed.begin(); first != placed.end();) {
    const auto last = std::find_if(
        first, placed.end(), [&](const Placed& each) { return !is_same_tensor(*first, each); });
    if (auto problem = Tensor({first, last}).problem()) return problem;
    first = last;
  }
  return std::nullopt;
}

}  // namespace finetune::checkpoint
