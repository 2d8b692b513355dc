#pragma once
// SPDX-License-Identifier: Apache-2.0
// Mutations of JSON as a tree, so that a fuzzer gets past the syntax and into what is read from it.

#include <cstdint>
#include <string>
#include <string_view>

namespace finetune::fuzz {

/// `text` with one to three of its values changed, moved, doubled or removed; other bytes mutated
/// as libFuzzer does it if `text` is not JSON, and now and then if it is. At most `limit` bytes.
std::string mutate_json(std::string_view text, std::size_t limit, unsigned seed);

/// The same for a buffer of libFuzzer's: returns the new size.
std::size_t mutate_json(std::uint8_t* data, std::size_t size, std::size_t limit, unsigned seed);

}  // namespace finetune::fuzz
