#pragma once
// SPDX-License-Identifier: Apache-2.0
// Unicode normalisation forms (Unicode Standard Annex 15).

#include <string>
#include <string_view>

namespace finetune::tokenizer {

/// `text` (valid UTF-8) in the form that utf8proc's `options` name.
std::string unicode_form(std::string_view text, int options);

/// Whether a glance is enough to see that NFC would change nothing.
bool surely_composed(std::string_view text);

}  // namespace finetune::tokenizer
