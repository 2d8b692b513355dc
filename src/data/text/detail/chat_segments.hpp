#pragma once
// SPDX-License-Identifier: Apache-2.0
// A conversation, as a template wrote it, in segments for the tokenizer.

#include <functional>
#include <span>
#include <vector>

#include "data/text/chat_template.hpp"
#include "data/text/detail/answer_places.hpp"
#include "jinja/template.hpp"

namespace finetune::data {

/// The text as segments, cut where `trained` begins and ends: ranges in their order. What of it
/// `excluded` says, of an origin, is not trained.
std::vector<Segment> segments_of(const jinja::Rendered& rendered,
                                 std::span<const TrainedRange> trained,
                                 const std::function<bool(const jinja::Origin&)>& excluded);

}  // namespace finetune::data
