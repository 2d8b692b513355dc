#pragma once
// SPDX-License-Identifier: Apache-2.0
// The Alpaca format: instruction, optional input and output, with its usual prompt.

#include <string>
#include <string_view>

#include "data/text/format.hpp"

namespace finetune::formats::alpaca {

/// Records of {"instruction": ..., "input": ..., "output": ...}, in a file or a folder of files.
/// `input` may be missing, null or empty, and so may `system`, which goes in front; other fields
/// are ignored. Loss is taken on the output only. With a chat template, the instruction and
/// below it the input are what the user says. `history`, [[question, answer], ...], comes before
/// them, if there is any; then a template is needed, and answers in it are trained, too.
data::Format format();

/// The prompt that an answer follows directly, ending in "### Response:\n". An empty `input` leaves
/// its part out. Source: Taori et al. 2023, Stanford Alpaca.
std::string alpaca_prompt(std::string_view instruction, std::string_view input = "");

}  // namespace finetune::formats::alpaca
