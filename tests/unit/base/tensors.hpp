#pragma once
// SPDX-License-Identifier: Apache-2.0
// A safetensors file of a few tensors, for tests of what such files may hold.

#include <string>
#include <vector>

#include "core/json.hpp"
#include "unit/weights/support.hpp"

namespace finetune::tests {

/// Collects tensors for one file.
class Tensors {
 public:
  template <typename T>
  Tensors& add(const std::string& name, const char* dtype, const std::vector<std::int64_t>& shape,
               const std::vector<T>& values) {
    const std::size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
    return *this;
  }
  weights::ModelFiles in(const weights::TestFolder& folder) const {
    folder.put("model.safetensors", weights::file_of(header_.dump(), data_));
    return weights::ModelFiles::open(folder.path());
  }

 private:
  core::Json header_ = core::Json::object();
  std::string data_;
};

}  // namespace finetune::tests
