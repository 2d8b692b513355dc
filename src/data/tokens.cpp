// SPDX-License-Identifier: Apache-2.0
#include "data/tokens.hpp"

#include <algorithm>

#include "data/format.hpp"

namespace finetune::data {

Tokens tokenise(const Sample& sample, const Encoder& encoder) {
  if (!sample.tokens.ids.empty()) return sample.tokens;
  Tokens tokens;
  bool any_trained = false;
  bool first = true;
  for (const Segment& segment : sample.segments) {
    std::vector<std::int32_t> ids =
        first ? encoder.document(segment.text) : encoder.continuation(segment.text);
    // Some tokenizers end a document with EOS themselves; here it belongs after the last segment.
    if (first && !ids.empty() && ids.back() == encoder.eos_id) ids.pop_back();
    first = false;
    const bool trained = segment.trained && !segment.text.empty();
    any_trained = any_trained || trained;
    tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
    if (trained) tokens.labels.insert(tokens.labels.end(), ids.begin(), ids.end());
    tokens.labels.resize(tokens.ids.size(), not_trained);
  }
  tokens.ids.push_back(encoder.eos_id);
  tokens.labels.push_back(any_trained ? encoder.eos_id : not_trained);
  return tokens;
}

}  // namespace finetune::data
