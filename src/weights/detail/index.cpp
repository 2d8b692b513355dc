// SPDX-License-Identifier: Apache-2.0
#include "weights/detail/index.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/text.hpp"
#include "weights/detail/json_events.hpp"
#include "weights/detail/names.hpp"
#include "weights/detail/safetensors.hpp"

namespace finetune::weights {
namespace {

constexpr int deepest = 8;

/// Takes "weight_map" from the top object and passes over everything else, down to a limited depth.
class IndexEvents : public JsonEvents {
 public:
  using JsonEvents::JsonEvents;

  WeightMap take() {
    if (!has_map_) refuse("has no weight_map", "it says which file holds a tensor");
    if (map_.empty()) refuse("its weight_map is empty", "no tensor could be found");
    return std::move(map_);
  }

  bool null() override { return pass("null"); }
  bool boolean(bool) override { return pass("a boolean"); }
  bool number_integer(number_integer_t) override { return pass("a number"); }
  bool number_unsigned(number_unsigned_t) override { return pass("a number"); }
  bool number_float(number_float_t, const string_t&) override { return pass("a number"); }

  bool string(string_t& text) override {
    if (!in_map_) return pass("a string");
    if (!is_plain_file_name(text)) {
      refuse(fmt::format("weight_map puts tensor {} into {}", in_quotes(name_), in_quotes(text)),
             "a plain name of a file next to the index is needed");
    }
    if (!map_.emplace(name_, std::move(text)).second) {
      refuse(fmt::format("weight_map names tensor {} twice", in_quotes(name_)),
             "only one of the two could be meant");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_map_) return unexpected("an object");
    if (depth_ == 1 && name_ == "weight_map") {
      if (std::exchange(has_map_, true)) refuse("weight_map occurs twice", "only one can be meant");
      in_map_ = true;
    }
    return deeper();
  }

  bool end_object() override {
    in_map_ = false;
    --depth_;
    return true;
  }

  bool start_array(std::size_t) override {
    pass("an array");
    return deeper();
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool key(string_t& text) override {
    if (depth_ != 1 && !in_map_) return true;
    if (text.size() > longest_tensor_name) {
      refuse(fmt::format("the name {} has {} bytes", in_quotes(text), text.size()),
             fmt::format("at most {} are read", longest_tensor_name));
    }
    if (map_.size() == most_tensors) {
      refuse(fmt::format("names more than {} tensors", core::with_commas(most_tensors)),
             "no model has as many");
    }
    name_ = std::move(text);
    return true;
  }

 protected:
  std::string place() const override {
    return in_map_ ? fmt::format("weight_map {}", in_quotes(name_)) : "the index";
  }

 private:
  /// Accepts a value that is not ours.
  bool pass(std::string_view what) const {
    if (in_map_ || depth_ == 0 || (depth_ == 1 && name_ == "weight_map")) return unexpected(what);
    return true;
  }

  bool deeper() {
    if (++depth_ > deepest) {
      refuse(fmt::format("is nested deeper than {} levels", deepest),
             "such files only occur as attacks");
    }
    return true;
  }

  WeightMap map_;
  std::string name_;  ///< key of the top object or of weight_map
  int depth_ = 0;
  bool in_map_ = false;
  bool has_map_ = false;
};

}  // namespace

WeightMap parse_index(std::string_view text, const std::string& where) {
  IndexEvents events(where);
  events.parse(text);
  return events.take();
}

}  // namespace finetune::weights
