// SPDX-License-Identifier: Apache-2.0
// What libtorch's library for CUDA says of itself, on machines without a GPU: loads it and prints
// what its dispatcher has for each operation, "kernel NAME cuda", "kernel NAME composite" or
// "kernel NAME none". Then "alert WORDS" for each call in its code that refuses deterministic
// algorithms.
//
//   cuda_library FOLDER_OF_LIBTORCH FOLDER_OF_STAND_INS
//
// The second has empty libraries with the names of those that it would compute with, which are
// gigabytes and not on every machine. Nothing is computed. Exit code 69: it cannot be loaded.
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tests {
namespace {

constexpr int exit_code_of_environment = 69;
// void Context::alertNotDeterministic(std::string_view const&), which is told who refuses.
constexpr std::string_view alert_symbol = "alertNotDeterministic";
// From where the words of a caller are taken to where they are handed over.
constexpr std::ptrdiff_t most_bytes_before_call = 160;

bool has_any(const c10::OperatorHandle& op, std::initializer_list<c10::DispatchKey> keys) {
  return std::ranges::any_of(keys,
                             [&](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); });
}

const char* kernel_of(const c10::OperatorHandle& op) {
  if (has_any(op, {c10::DispatchKey::CUDA})) return "cuda";
  const bool is_composite = has_any(
      op, {c10::DispatchKey::CompositeImplicitAutograd, c10::DispatchKey::CompositeExplicitAutograd,
           c10::DispatchKey::CompositeExplicitAutogradNonFunctional});
  return is_composite ? "composite" : "none";
}

void print_kernels() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames())
    if (const auto op = dispatcher.findSchema(name))
      std::cout << "kernel " << c10::toString(name) << " " << kernel_of(*op) << "\n";
}

/// A loaded library's code, and the calls in it.
class Code {
 public:
  explicit Code(const dl_phdr_info& library) : base_(library.dlpi_addr) {
    for (int i = 0; i < library.dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = library.dlpi_phdr[i];
      if (part.p_type == PT_DYNAMIC) read_dynamic(at<const ElfW(Dyn)>(part.p_vaddr));
      if (part.p_type != PT_LOAD) continue;
      const auto* begin = at<const unsigned char>(part.p_vaddr);
      const std::basic_string_view<unsigned char> bytes(begin, part.p_filesz);
      if ((part.p_flags & PF_X) != 0)
        code_.push_back(bytes);
      else if ((part.p_flags & PF_W) == 0)
        constants_.push_back(bytes);
    }
  }

  /// The words next to each call of a function whose name has `symbol` in it.
  void add_words_of_callers(std::string_view symbol, std::set<std::string>& words) const {
    std::set<const unsigned char*> targets = addresses_of(symbol);
    const std::set<const unsigned char*> slots = slots_of(symbol);
    for_each_code(0xff, 6, [&](const unsigned char* at) {
      // jmp *slot(%rip): how a library gets to another's functions.
      if (at[1] == 0x25 && slots.contains(relative(at + 2))) targets.insert(at);
    });
    for_each_code(0xe8, 5, [&](const unsigned char* at) {
      if (targets.contains(relative(at + 1))) words.insert(words_before(at));
    });
  }

 private:
  template <typename T>
  T* at(std::uint64_t address) const {
    // The loader may have added the base already.
    return reinterpret_cast<T*>(address < base_ ? base_ + address : address);
  }

  void read_dynamic(const ElfW(Dyn) * entry) {
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_JMPREL) jumps_ = at<const ElfW(Rela)>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_PLTRELSZ) num_jumps_ = entry->d_un.d_val / sizeof(ElfW(Rela));
      if (entry->d_tag == DT_SYMTAB) symbols_ = at<const ElfW(Sym)>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) names_ = at<const char>(entry->d_un.d_ptr);
    }
  }

  std::string_view name_of(const ElfW(Rela) & jump) const {
    return names_ + symbols_[ELF64_R_SYM(jump.r_info)].st_name;
  }

  std::set<const unsigned char*> slots_of(std::string_view symbol) const {
    std::set<const unsigned char*> slots;
    for (std::size_t i = 0; i < num_jumps_; ++i)
      if (name_of(jumps_[i]).find(symbol) != std::string_view::npos)
        slots.insert(at<const unsigned char>(jumps_[i].r_offset));
    return slots;
  }

  std::set<const unsigned char*> addresses_of(std::string_view symbol) const {
    std::set<const unsigned char*> addresses;
    for (std::size_t i = 0; i < num_jumps_; ++i) {
      if (name_of(jumps_[i]).find(symbol) == std::string_view::npos) continue;
      void* function = dlsym(RTLD_DEFAULT, std::string(name_of(jumps_[i])).c_str());
      addresses.insert(static_cast<const unsigned char*>(function));
    }
    return addresses;
  }

  /// Calls f(address) for each byte of code that is `first` and has `size` bytes from there.
  template <typename F>
  void for_each_code(unsigned char first, std::size_t size, const F& f) const {
    for (const auto& part : code_) {
      for (std::size_t i = part.find(first); i != part.npos && i + size <= part.size();
           i = part.find(first, i + 1))
        f(part.data() + i);
    }
  }

  /// What the 4 bytes at `offset`, the last of an instruction, say relative to the next.
  static const unsigned char* relative(const unsigned char* offset) {
    std::int32_t distance = 0;
    std::memcpy(&distance, offset, sizeof(distance));
    return offset + sizeof(distance) + distance;
  }

  /// Of the last text whose address is taken before `call`: lea text(%rip), register.
  std::string words_before(const unsigned char* call) const {
    for (const unsigned char* i = call - 7; i > call - most_bytes_before_call; --i) {
      const bool is_lea = (i[0] == 0x48 || i[0] == 0x4c) && i[1] == 0x8d && (i[2] & 0xc7) == 0x05;
      const std::string text = is_lea ? text_at(relative(i + 3)) : "";
      if (!text.empty()) return text;
    }
    return "unknown";
  }

  std::string text_at(const unsigned char* address) const {
    for (const auto& part : constants_) {
      if (address < part.data() || address >= part.data() + part.size()) continue;
      const std::string text(reinterpret_cast<const char*>(address));
      const auto is_of_names = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ' ';
      };
      if (text.size() > 2 && std::ranges::all_of(text, is_of_names)) return text;
    }
    return {};
  }

  std::uint64_t base_;
  const ElfW(Rela) * jumps_ = nullptr;
  std::size_t num_jumps_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  std::vector<std::basic_string_view<unsigned char>> code_;
  std::vector<std::basic_string_view<unsigned char>> constants_;
};

int add_words(dl_phdr_info* library, std::size_t, void* words) {
  const std::string file = std::filesystem::path(library->dlpi_name).filename();
  if (file == "libtorch_cuda.so" || file == "libtorch_cpu.so")
    Code(*library).add_words_of_callers(alert_symbol, *static_cast<std::set<std::string>*>(words));
  return 0;
}

/// "" or why it cannot be loaded.
std::string load(const std::filesystem::path& libtorch, const std::filesystem::path& stand_ins) {
  for (const auto& file : std::filesystem::directory_iterator(stand_ins))
    dlopen(file.path().c_str(), RTLD_LAZY | RTLD_GLOBAL);
  // Lazily: functions of the stand-ins are never called.
  const std::filesystem::path library = libtorch / "libtorch_cuda.so";
  return dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL) != nullptr ? "" : dlerror();
}

}  // namespace
}  // namespace finetune::tests

int main(int argc, char** argv) {
  using namespace finetune::tests;
  const std::string problem = argc == 3 ? load(argv[1], argv[2]) : "two folders are wanted";
  if (!problem.empty()) {
    std::cerr << problem << "\n";
    return exit_code_of_environment;
  }
  print_kernels();
  std::set<std::string> alerts;
  dl_iterate_phdr(&add_words, &alerts);
  for (const std::string& words : alerts)
    std::cout << "alert " << words << "\n";
  return 0;
}
