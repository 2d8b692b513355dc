// SPDX-License-Identifier: Apache-2.0
// tokenizer.json or tekken.json, and behind a NUL byte tokenizer_config.json; or, if the first byte
// is no brace, tokenizer.model: refused, or text becomes ids below the size of the vocabulary,
// twice the same, and ids become valid text.

#include <fstream>

#include "core/text.hpp"
#include "fuzz/fuzz.hpp"
#include "fuzz/json_mutator.hpp"
#include "tokenizer/tokenizer.hpp"

using namespace finetune;
namespace fs = std::filesystem;

namespace {

/// Where the files of one input lie, removed when the fuzzer ends.
class Folder {
 public:
  Folder() {
    const fs::path memory = "/dev/shm";
    std::string pattern =
        ((fs::is_directory(memory) ? memory : fs::temp_directory_path()) / "finetune_fuzz_XXXXXX");
    fuzz::require(::mkdtemp(pattern.data()) != nullptr, "a temporary folder");
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }
  void clear() const {
    for (const auto& entry : fs::directory_iterator(path_))
      fs::remove(entry.path());
  }
  void write(const char* name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

 private:
  fs::path path_;
};

/// About 1 KiB: words, numbers, marks, several scripts, line ends, runs, and names of tokens.
const std::string text = [] {
  std::string made =
      "The quick brown fox's 12345 jumps; over\tthe lazy dog!\r\n\n  <s>abc</s> <0x41> "
      "Stra\u00dfe \u0130 e\u0301\u0323 \u65e5\u672c\u8a9e \U0001f600 \u2581\u2581 \u017f "
      "\u00a0\u3000.";
  made += std::string(200, 'a') + std::string(100, ' ') + std::string(60, '\n');
  while (made.size() < 1024)
    made += " word" + std::to_string(made.size());
  return made;
}();

void use(const tokenizer::Tokenizer& tokenizer, std::string_view input) {
  using tokenizer::Encode;
  for (const Encode how : {Encode::document, Encode::continuation | Encode::plain}) {
    fuzz::accepts("", [&] {
      const auto ids = tokenizer.encode(input, how);
      for (const std::int32_t id : ids)
        fuzz::require(id >= 0 && id < tokenizer.vocab_size(),
                      "an id is below the vocabulary's size");
      fuzz::require(ids == tokenizer.encode(input, how), "the same text has the same ids");
      fuzz::require(!core::invalid_utf8(tokenizer.decode(ids, true)), "decoded text is UTF-8");
      fuzz::require(!core::invalid_utf8(tokenizer.decode(ids, false)), "decoded text is UTF-8");
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const std::string_view all = fuzz::text_of(data, size);
  const bool is_json = all.starts_with('{');
  const std::size_t end = is_json ? std::min(all.find('\0'), all.size()) : all.size();
  const std::string_view file = all.substr(0, end);
  const bool is_tekken = file.find("default_vocab_size") != std::string_view::npos;
  folder.clear();
  folder.write(!is_json ? "tokenizer.model" : is_tekken ? "tekken.json" : "tokenizer.json", file);
  folder.write("tokenizer_config.json", end < all.size() ? all.substr(end + 1) : "{}");
  fuzz::accepts(folder.path().string(), [&] {
    const auto tokenizer = tokenizer::Tokenizer::load(folder.path());
    use(tokenizer, text);
    const std::string_view own = all.substr(0, std::min<std::size_t>(end, 1024));
    use(tokenizer, own.substr(0, core::invalid_utf8(own).value_or(own.size())));
    const std::int32_t last = static_cast<std::int32_t>(tokenizer.vocab_size()) - 1;
    fuzz::accepts("", [&] { tokenizer.decode(std::vector<std::int32_t>{0, last, last}, false); });
    fuzz::accepts("", [&] { tokenizer.eos_id(); });
  });
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t limit, unsigned seed) {
  return fuzz::mutate_json(data, size, limit, seed);
}
