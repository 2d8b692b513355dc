#pragma once
// SPDX-License-Identifier: Apache-2.0
// Templates in Jinja as models of the Hugging Face Hub bring them for conversations, or as tasks
// have them, and what they make of values. Source: the language of Jinja 3.1, with the additions of
// transformers (loop controls, generation blocks, tojson, raise_exception, strftime_now), in a
// sandbox: nothing can be changed but namespaces. Not known are templates of several files
// (extends, block, include, import), translations, escaping by itself (autoescape), {% do %}, and
// of filters pprint, random, striptags, urlize and xmlattr.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.hpp"

namespace finetune::jinja {

/// How a template's text is read, and how strictly it is taken.
struct Settings {
  bool trims_blocks = true;         ///< trim_blocks and lstrip_blocks of Jinja
  bool keeps_last_newline = false;  ///< keep_trailing_newline
  WhenUndefined when_undefined = WhenUndefined::is_empty;
};
/// As transformers renders conversations.
inline constexpr Settings for_chats{};
/// As lm-evaluation-harness renders questions (its utils.apply_template).
inline constexpr Settings for_tasks{
    .trims_blocks = false, .keeps_last_newline = true, .when_undefined = WhenUndefined::is_problem};

/// What a template may do before it is ended: those of models take some thousand steps.
struct Limits {
  std::int64_t most_steps = 10'000'000;
  std::int64_t most_bytes = std::int64_t{64} << 20;
};

/// What a template wrote. A piece's turn is the element that was being written: of a loop over
/// elements or over their places, of a macro that is given one; of what was kept in a namespace,
/// the one when it was put there.
struct Rendered {
  std::string text;
  std::vector<Piece> pieces = {};  ///< of the text; none: all of no origin
  /// Bytes of {% generation %} blocks: begin and end in `text`; those that touch are one.
  std::vector<std::pair<std::size_t, std::size_t>> generations = {};
};

/// A template that calls raise_exception refuses what it was given; what() is its message.
class Refusal : public Problem {
 public:
  using Problem::Problem;
};

namespace detail {
struct Parsed;
}

class Template {
 public:
  /// Throws: Problem "line 3: ..." for what is no template, or beyond the part of Jinja that is
  /// known here (inheritance, imports).
  static Template parse(std::string_view text, const Settings& settings = for_chats);

  /// `names`: what the template knows by name beside Jinja's own. `now_s`: seconds since 1970, for
  /// strftime_now, in local time. Throws: Refusal; Problem or UndefinedProblem "line 3: ...".
  Rendered render(const Mapping& names, std::int64_t now_s, const Limits& limits = {}) const;

  /// Whether it marks what a model says ({% generation %}).
  bool has_generation() const;
  /// Whether it reads that name.
  bool reads(const std::string& name) const;
  /// All names in it, in the order of their bytes.
  std::vector<std::string> names() const;

 private:
  std::shared_ptr<const detail::Parsed> parsed_;
  WhenUndefined when_undefined_ = WhenUndefined::is_empty;
};

}  // namespace finetune::jinja
