// SPDX-License-Identifier: Apache-2.0
#include "data/part.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace finetune::data {
namespace {

void check_ids(const Sample& sample, const Tokens& tokens, const Encoder& encoder,
               std::int64_t vocab_size) {
  const auto outside = [&](std::int32_t id) { return id < 0 || id >= vocab_size; };
  const auto bad = std::find_if(tokens.ids.begin(), tokens.ids.end(), outside);
  if (bad == tokens.ids.end()) return;
  core::fail(
      core::ErrorKind::input,
      {sample.where,
       fmt::format("the tokenizer ({} entries) makes token id {} of it", encoder.vocab_size, *bad),
       fmt::format("the model's vocabulary has {} entries, ids 0 to {}", vocab_size,
                   vocab_size - 1),
       "Use the tokenizer.json that belongs to the model."});
}

/// Whether nothing of it would be trained. In a sequence of its own the first token is never a
/// target; a document's first token follows the document before.
bool is_masked(const Tokens& tokens, Layout layout) {
  const auto first = tokens.labels.begin() + (layout == Layout::separate ? 1 : 0);
  return std::all_of(first, tokens.labels.end(),
                     [](std::int32_t label) { return label == not_trained; });
}

void keep(Part& part, const Tokens& tokens) {
  for (std::size_t l = 0; l < tokens.ids.size(); ++l)
    part.tokens.emplace_back(tokens.ids[l], tokens.labels[l] != not_trained);
  part.lengths.push_back(std::ssize(tokens.ids));
}

void add(Part& part, std::int64_t i, Tokens tokens, Layout layout, const DatasetOptions& options) {
  Findings& found = part.findings;
  const std::int64_t length = std::ssize(tokens.ids);
  found.longest = std::max(found.longest, length);
  const bool overlong = layout == Layout::separate && length > options.max_seq_length;
  if (overlong) {
    ++found.num_overlong;
    found.first_overlong = std::min(found.first_overlong, i);
    if (options.on_overlong != OnOverlong::truncate) {
      ++found.num_dropped;
      return;
    }
    tokens.ids.resize(static_cast<std::size_t>(options.max_seq_length));
    tokens.labels.resize(tokens.ids.size());
  }
  if (is_masked(tokens, layout)) {
    ++found.num_masked;
    ++found.num_dropped;
    found.first_masked = std::min(found.first_masked, i);
    return;
  }
  if (overlong) ++found.num_truncated;
  if (!overlong && tokens.labels.back() != not_trained) ++found.eos_trained;
  keep(part, tokens);
}

}  // namespace

Part tokenise_part(const Reader& reader, std::int64_t begin, std::int64_t end, Layout layout,
                   const Encoder& encoder, const DatasetOptions& options) {
  Part part;
  for (std::int64_t i = begin; i < end; ++i) {
    const Sample sample = reader.sample(i);
    Tokens tokens = tokenise(sample, encoder);
    check_ids(sample, tokens, encoder, options.vocab_size);
    add(part, i, std::move(tokens), layout, options);
  }
  return part;
}

}  // namespace finetune::data
