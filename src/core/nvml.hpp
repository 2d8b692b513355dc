#pragma once
// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library (NVML), looked for when the program runs: nodes without GPUs have
// none, and nothing is linked against it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace finetune::core {

/// The library, initialised for as long as this lives. It counts its users, so there may be
/// several. Its functions are of all threads.
class Nvml {
 public:
  /// A GPU, as the library's functions take it.
  using Device = void*;
  static constexpr const char* usual_library = "libnvidia-ml.so.1";

  explicit Nvml(const char* library = usual_library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_there() const { return handle_ != nullptr; }

  /// What `call` answers where the library has no such function.
  static constexpr int no_function = -1;

  /// The function's answer: 0 if it could do what was asked; `no_function` if this version of the
  /// library does not have it.
  template <typename Function, typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<Function>(find(name));
    return function == nullptr ? no_function : function(arguments...);
  }

  /// What a function writes as text; empty if it cannot.
  std::string text_of(const char* function, Device device) const;
  /// What a function writes as a number of 32 bits, or -1.
  std::int64_t number_of(const char* function, Device device) const;

  int num_devices() const;
  /// Its error, or 0 and `device`.
  int open(unsigned index, Device& device) const;
  /// Bits of `slow_reasons`; 0 if it does not say.
  std::uint64_t slow_bits(Device device) const;

  struct Memory {
    unsigned long long total, free, used;  ///< bytes
  };
  /// Nothing if it does not say.
  std::optional<Memory> memory(Device device) const;

  enum class Errors : int { corrected = 0, uncorrected = 1 };
  /// Errors of memory since the driver was loaded, or -1.
  std::int64_t memory_errors(Device device, Errors kind) const;

 private:
  void* find(const char* name) const;

  void* handle_;
};

/// Why clocks are low, in words, without what is no trouble.
struct SlowReasons {
  std::vector<std::string> by_hardware;
  std::vector<std::string> by_limits;
};
/// Of NVML's bits of reasons.
SlowReasons slow_reasons(std::uint64_t bits);

/// What NVML's error says of a GPU that it lists and cannot reach; empty if it is no fault of the
/// GPU, but another job's.
std::string lost_by(int nvml_error);

}  // namespace finetune::core
