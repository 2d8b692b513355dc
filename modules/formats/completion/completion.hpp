#pragma once
// SPDX-License-Identifier: Apache-2.0
// Prompts and answers in two columns of the deck's choice.

#include "data/text/format.hpp"

namespace finetune::formats::completion {

/// Records with a prompt ("prompt", or data.prompt_column) and an answer ("completion", or
/// data.answer_column), in a file or a folder of files; other fields are ignored. The answer
/// follows the prompt as it stands: a blank or a line end between them belongs to one of the two.
/// Loss is taken on the answer only. With a chat template, the prompt is what the user says, after
/// the system message of data.system_column if the deck names one. Either may be a list of messages
/// (role, content), as TRL has them: then the record is a conversation, which a template writes.
data::Format format();

}  // namespace finetune::formats::completion
