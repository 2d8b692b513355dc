#pragma once
// SPDX-License-Identifier: Apache-2.0
// Token ids that were produced elsewhere.

#include "data/text/format.hpp"

namespace finetune::formats::tokens {

/// Records with "input_ids" (or data.tokens_column), a list of token ids of this model's tokenizer,
/// and optionally
///  - "labels" (or data.labels_column), as long: -100 where a token is not trained, else its id.
///    Nothing is shifted. Without them every token is trained;
///  - "attention_mask", as long: 0 for padding at either end, which is left out.
/// Nothing is added: who made the ids has put begin and end tokens where they belong.
data::Format format();

/// The same records as documents, for continued pre-training: they run on and are cut into full
/// blocks as plain text is. Each is followed by the end-of-text token, unless its ids end with it
/// already.
data::Format documents();

}  // namespace finetune::formats::tokens
