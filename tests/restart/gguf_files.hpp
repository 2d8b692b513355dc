#pragma once
// SPDX-License-Identifier: Apache-2.0
// Model folders written as GGUF files, and read by others.

#include <filesystem>
#include <string>

#include "support/residence.hpp"

namespace finetune::tests {

/// inputs/quickstart/model.
std::filesystem::path quickstart_model();

Outcome exported_gguf(const std::filesystem::path& folder, const std::string& model,
                      const std::string& file, const std::string& dtype);

/// Whether there is a Python that reads such files, or runs them.
bool has_gguf_reader(const std::filesystem::path& folder);
bool has_llama_cpp(const std::filesystem::path& folder);

/// Header and tensors of `file` are those of the folder `model`, as the package gguf reads them.
void expect_read_gguf(const std::filesystem::path& folder, const std::string& file,
                      const std::string& model);

/// 32 greedy tokens in fp32 by llama.cpp are the beginning of ours.
void expect_same_greedy_text(const std::filesystem::path& folder,
                             const std::filesystem::path& model, const std::string& prompt);

}  // namespace finetune::tests
