#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the head of a model says of a text: the next token, or what kind of text it is. Transformers
// calls models of the second kind ...ForSequenceClassification.

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.hpp"

namespace finetune::model {

enum class HeadKind {
  next_token,  ///< logits of the vocabulary, at every token
  one_label,   ///< logits of labels of which one is right, at a text's last token
  labels,      ///< logits of labels each of which is right or not, at a text's last token
  value,       ///< a number, at a text's last token
  reward,      ///< a number, which is larger for the preferred one of two texts
};

struct Outputs {
  HeadKind kind = HeadKind::next_token;
  std::int64_t num = 0;  ///< logits of a text; 0 with next_token
  double softcap = 0;    ///< c of next_token's logits c tanh(x / c); 0: none

  bool are_of_texts() const { return kind != HeadKind::next_token; }
};

/// Whether config.json is of a model with such a head: "architectures" says so.
bool says_classification(const core::Json& config);

/// Of such a config.json: kind and number by problem_type, id2label and num_labels, as transformers
/// reads them; else next_token. Throws: ErrorKind::input.
Outputs read_outputs(const core::Json& config, const std::string& where);

/// What config.json says of a head of this kind: problem_type, id2label, label2id, architectures.
/// `config`: the model's own. `labels` has a name for each output.
core::Json describe_outputs(const core::Json& config, HeadKind kind,
                            const std::vector<std::string>& labels);

/// Their names, in the order of the outputs: id2label of such a config.json.
std::vector<std::string> label_names(const core::Json& config);

/// "single_label_classification" for one_label: transformers' problem_type.
std::string problem_type(HeadKind kind);

/// Labels of a text travel where tokens do, as one number from 0 to 2^31 - 1. Of one_label it is
/// the label's; of `labels` bit i is label i; of `value` the number's bits in fp32 but the last; of
/// `reward` 1 is the preferred text's and 0 the other's.
std::int64_t num_label_codes(const Outputs& outputs);
std::int32_t code_of_value(float value);
float value_of_code(std::int64_t code);
/// Labels of which each is right or not, at most.
inline constexpr std::int64_t most_flags = 30;

}  // namespace finetune::model
