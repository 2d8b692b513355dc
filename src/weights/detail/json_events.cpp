// SPDX-License-Identifier: Apache-2.0
#include "weights/detail/json_events.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/text.hpp"
#include "weights/detail/names.hpp"

namespace finetune::weights {
namespace {

constexpr const char* remedy = "Copy or download the file again.";

}  // namespace

void JsonEvents::parse(std::string_view text) {
  if (const auto bad = core::invalid_utf8(text)) {
    core::fail(core::ErrorKind::input, {where_,
                                        fmt::format("byte {} is not valid UTF-8",
                                                    first_byte_ + static_cast<std::int64_t>(*bad)),
                                        "JSON is UTF-8", remedy});
  }
  // The JSON library takes NUL for the end of its input: whatever follows would go unseen.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    core::fail(core::ErrorKind::input,
               {where_, fmt::format("byte {} is NUL", first_byte_ + static_cast<std::int64_t>(nul)),
                "JSON has no such byte", remedy});
  }
  core::Json::sax_parse(text.begin(), text.end(), this);
}

bool JsonEvents::parse_error(std::size_t position, const std::string& last_token,
                             const nlohmann::detail::exception&) {
  // `position` counts from 1 and points behind the byte that does not fit.
  const std::int64_t byte =
      first_byte_ + static_cast<std::int64_t>(position == 0 ? 0 : position - 1);
  core::fail(core::ErrorKind::input, {where_, fmt::format("broken JSON at byte {}", byte),
                                      fmt::format("after {}", in_quotes(last_token)), remedy});
}

bool JsonEvents::unexpected(std::string_view what) const {
  refuse(fmt::format("{}: {} does not belong here", place(), what),
         "the format does not have this");
}

void JsonEvents::refuse(const std::string& problem, const std::string& why) const {
  core::fail(core::ErrorKind::input, {where_, problem, why, remedy});
}

}  // namespace finetune::weights
