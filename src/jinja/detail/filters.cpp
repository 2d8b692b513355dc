// SPDX-License-Identifier: Apache-2.0
#include "jinja/detail/filters.hpp"

#include <fmt/format.h>

namespace finetune::jinja::detail {

FilterFunction filter_of(const std::string& name) {
  for (const FilterTable* table :
       {&filters_of_text(), &filters_of_lists(), &filters_of_numbers()}) {
    const auto found = table->find(name);
    if (found != table->end()) return found->second;
  }
  throw Problem(fmt::format("there is no filter \"{}\"", name));
}

std::vector<Value> Filtering::elements() const {
  std::vector<Value> all = elements_of(value);
  budget.spend(static_cast<std::int64_t>(all.size()));
  return all;
}

}  // namespace finetune::jinja::detail
