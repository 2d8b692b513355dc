// SPDX-License-Identifier: Apache-2.0
#include "simulated/cuda_kernels.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

CudaLibrary ask() {
  CudaLibrary library;
  const fs::path tests = build_folder() / "tests";
  const Outcome outcome = run_program({(tests / "cuda_library").string(), FINETUNE_LIBTORCH_LIB,
                                       (tests / "cuda_stand_ins").string()},
                                      tests);
  if (outcome.exit_code != 0) library.problem = outcome.text() + "?";
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t start = line.find(' ') + 1;
    const std::size_t end = line.rfind(' ');
    if (line.starts_with("kernel "))
      library.kernels[line.substr(start, end - start)] = line.substr(end + 1);
    else
      library.alerts.insert(line.substr(start));
  }
  return library;
}

/// The operation without its overload, "out" and underscores around it.
std::string base_name(const std::string& operation) {
  std::string name = operation.substr(std::string("aten::").size());
  name = name.substr(0, name.find('.'));
  while (name.size() > 1 && name.back() == '_')
    name.pop_back();
  return name;
}

/// What calls CUDA's copies.
std::string dispatched(const std::string& operation) {
  return operation == "aten::_copy_from" ? "aten::copy_" : operation;
}

std::string without_underscores(const std::string& name) {
  return name.substr(std::min(name.size(), name.find_first_not_of('_')));
}

/// Whether a kernel's `words` are `name` and then nothing but how it is called.
bool are_of(const std::string& words, const std::string& name) {
  static const std::set<std::string> ways = {
      "",       "CUDA", "cuda", "floating", "forward", "gpu",  "input",    "indices",
      "kernel", "max",  "out",  "output",   "point",   "prod", "template", "with"};
  std::string rest = without_underscores(words);
  if (!rest.starts_with(name)) return false;
  rest = rest.substr(name.size());
  if (!rest.empty() && rest.front() != '_' && rest.front() != ' ') return false;
  std::ranges::replace(rest, ' ', '_');
  std::istringstream parts(rest);
  for (std::string part; std::getline(parts, part, '_');)
    if (!ways.contains(part)) return false;
  return true;
}

}  // namespace

const CudaLibrary& cuda_library() {
  static const CudaLibrary library = ask();
  return library;
}

bool has_cuda_kernel(const std::string& operation) {
  const CudaLibrary& library = cuda_library();
  if (library.was_asked()) {
    const auto kernel = library.kernels.find(dispatched(operation));
    return kernel != library.kernels.end() && kernel->second != "none";
  }
  if (operation == "aten::_copy_from") return true;
  const fs::path folder = fs::path(FINETUNE_LIBTORCH_INCLUDE) / "ATen/ops";
  return fs::exists(folder / (base_name(operation) + "_cuda_dispatch.h"));
}

bool alerts_as_nondeterministic(const std::string& operation) {
  const std::string name = without_underscores(base_name(operation));
  // The kernel is not reached: under deterministic algorithms libtorch puts by index.
  if (name == "scatter") return false;
  const CudaLibrary& library = cuda_library();
  if (!library.was_asked()) return known_alerts().contains(name);
  return std::ranges::any_of(library.alerts,
                             [&](const std::string& words) { return are_of(words, name); });
}

const std::set<std::string>& known_alerts() {
  static const std::set<std::string> names = {"histc",      "index_reduce", "median",
                                              "nll_loss2d", "put",          "scatter_reduce"};
  return names;
}

}  // namespace finetune::tests
