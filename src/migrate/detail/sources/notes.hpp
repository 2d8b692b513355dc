#pragma once
// SPDX-License-Identifier: Apache-2.0
// How things are done here that many keys are about.

#include <string_view>

namespace finetune::migrate::notes {

inline constexpr std::string_view no_network =
    "nothing is sent anywhere; upload what finetune export wrote";
inline constexpr std::string_view no_tracker =
    "train.output has metrics.jsonl, event files for TensorBoard and report.html";
inline constexpr std::string_view job_ranks =
    "ranks and nodes are those that srun or mpirun starts";
inline constexpr std::string_view one_cache =
    "samples are tokenized once, into a cache that all ranks map";
inline constexpr std::string_view one_attention =
    "there is one kind of attention, which stores no scores";
inline constexpr std::string_view own_kernels = "kernels are the program's own, and always used";
inline constexpr std::string_view own_sharding = "a block is what is gathered and reduced at once";
inline constexpr std::string_view own_tokenizer = "the tokenizer is the one in model.path";
inline constexpr std::string_view own_template =
    "conversations are written as data.template says: by default as the model does";
inline constexpr std::string_view whole_state =
    "a checkpoint holds everything; finetune export writes weights";
inline constexpr std::string_view no_compiler = "nothing is compiled while it runs";
inline constexpr std::string_view no_code = "no code of a model's folder is run";
inline constexpr std::string_view no_padding = "rows are not padded with a token";
inline constexpr std::string_view only_training = "this program trains";
inline constexpr std::string_view local_files = "model.path is a folder: what is in it counts";
inline constexpr std::string_view goes_on = "the same command continues where it stopped";
inline constexpr std::string_view best =
    "checkpoint.keep_best and best_by keep the best; finetune export --best writes it";

}  // namespace finetune::migrate::notes
