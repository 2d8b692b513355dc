// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "jinja/detail/parser.hpp"

namespace finetune::jinja::detail {
namespace {

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, Symbols& symbols)
      : reader_(std::move(tokens), symbols), expressions_(reader_) {}

  void run(Parsed& parsed) && {
    parsed.body = body({});
    parsed.has_generation = has_generation_;
  }

 private:
  /// Up to one of `ends`, of which the reader stands behind the {%; up to the end if there are
  /// none.
  Body body(std::initializer_list<std::string_view> ends) {
    constexpr int deepest = 100;
    if (++depth_ > deepest) reader_.fail("blocks are nested too deeply");
    Body body;
    for (;;) {
      const Token& now = reader_.now();
      if (now.kind == Token::Kind::end) {
        if (ends.size() > 0) reader_.fail_unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
        break;
      }
      if (now.kind == Token::Kind::block_begin) {
        reader_.take();
        const Token& word = reader_.now();
        if (std::ranges::any_of(ends, [&](auto end) { return word.is_name(end); })) break;
        body.statements.push_back(block());
      } else {
        body.statements.push_back(text_or_output());
      }
    }
    --depth_;
    return body;
  }

  std::unique_ptr<const Statement> text_or_output() {
    const Token token = reader_.take();
    if (token.kind == Token::Kind::data) {
      auto node = std::make_unique<Markup>(token.line);
      node->text = token.text;
      return node;
    }
    auto node = std::make_unique<Output>(token.line, expressions_.tuple());
    reader_.expect(Token::Kind::variable_end, "}}");
    return node;
  }

  void end_block() { reader_.expect(Token::Kind::block_end, "the end of the block"); }

  std::unique_ptr<const Statement> block() {
    const int line = reader_.now().line;
    const std::string word = reader_.expect_any_name("the name of a block");
    if (word == "if") return if_block(line);
    if (word == "for") return for_block(line);
    if (word == "set") return set_block(line);
    if (word == "macro") return macro_block(line);
    if (word == "call") return call_block(line);
    if (word == "filter") return filter_block(line);
    if (word == "with") return with_block(line);
    if (word == "generation") return generation_block(line);
    if (word == "break" || word == "continue") return loop_control(line, word);
    if (word == "print") return print_block(line);
    reader_.fail(word.starts_with("end") || word == "else" || word == "elif"
                     ? fmt::format("{{% {} %}} ends nothing", word)
                     : fmt::format("blocks of the kind \"{}\" are not known here", word));
  }

  std::unique_ptr<const Statement> if_block(int line) {
    auto node = std::make_unique<If>(line);
    for (;;) {
      ExpressionPtr condition = expressions_.tuple(false);
      end_block();
      Body branch = body({"elif", "else", "endif"});
      node->branches.emplace_back(std::move(condition), std::move(branch));
      if (reader_.take_name("elif")) continue;
      if (reader_.take_name("else")) {
        end_block();
        node->otherwise = body({"endif"});
      }
      reader_.expect_name("endif");
      end_block();
      return node;
    }
  }

  /// "a", "ns.a", "a, b", "(a, (b, c))".
  Target target(bool may_have_field) {
    Target first = part_of_target(may_have_field);
    if (!reader_.now().is_sign(",")) return first;
    Target all;
    all.parts.push_back(std::move(first));
    while (reader_.take_sign(",")) {
      if (reader_.now().kind != Token::Kind::name && !reader_.now().is_sign("(")) break;
      if (reader_.now().is_name("in")) break;
      all.parts.push_back(part_of_target(may_have_field));
    }
    return all;
  }

  Target part_of_target(bool may_have_field) {
    if (reader_.take_sign("(")) {
      Target inner = target(may_have_field);
      reader_.expect_sign(")");
      return inner;
    }
    Target one;
    const std::string name = reader_.expect_any_name("a name to assign to");
    for (const char* reserved : {"true", "false", "none", "True", "False", "None"})
      if (name == reserved) reader_.fail(name + " cannot be assigned to");
    one.name = reader_.symbol(name);
    if (may_have_field && reader_.take_sign(".")) one.field = reader_.expect_any_name("a name");
    return one;
  }

  std::unique_ptr<const Statement> for_block(int line) {
    auto node = std::make_unique<For>(line);
    node->target = target(false);
    reader_.expect_name("in");
    node->over = expressions_.tuple(false);
    if (reader_.take_name("if")) node->condition = expressions_.expression();
    node->is_recursive = reader_.take_name("recursive");
    end_block();
    ++num_loops_;
    node->body = body({"else", "endfor"});
    --num_loops_;
    if (reader_.take_name("else")) {
      end_block();
      node->otherwise = body({"endfor"});
    }
    reader_.expect_name("endfor");
    end_block();
    return node;
  }

  std::unique_ptr<const Statement> set_block(int line) {
    auto node = std::make_unique<Set>(line);
    node->target = target(true);
    if (reader_.take_sign("=")) {
      node->value = expressions_.tuple();
      end_block();
      return node;
    }
    node->filters = block_filters();
    end_block();
    node->body = body({"endset"});
    reader_.expect_name("endset");
    end_block();
    return node;
  }

  /// "| a | b(1)", each.
  std::vector<std::unique_ptr<const Filter>> block_filters() {
    std::vector<std::unique_ptr<const Filter>> filters;
    while (reader_.take_sign("|"))
      filters.push_back(expressions_.filter(nullptr));
    return filters;
  }

  /// In parentheses, if any.
  void parameters(Macro& macro) {
    if (!reader_.take_sign("(")) return;
    while (!reader_.now().is_sign(")")) {
      if (!macro.parameters.empty()) reader_.expect_sign(",");
      std::string name = reader_.expect_any_name("the name of a parameter");
      ExpressionPtr fallback;
      if (reader_.take_sign("="))
        fallback = expressions_.expression();
      else if (!macro.parameters.empty() && macro.parameters.back().second != nullptr)
        reader_.fail("a parameter without a default stands behind one with a default");
      macro.parameters.emplace_back(reader_.symbol(name), std::move(fallback));
    }
    reader_.expect_sign(")");
  }

  /// What a macro or another block has inside; loops outside of it cannot be left from there.
  Body inner_body(std::string_view end) {
    const int loops = std::exchange(num_loops_, 0);
    Body inner = body({end});
    num_loops_ = loops;
    reader_.expect_name(end);
    end_block();
    return inner;
  }

  Body body_of(Macro& macro, std::string_view end) {
    const Reader::Asked outside = reader_.asked();
    Body inner = inner_body(end);
    const Reader::Asked asked = reader_.asked();
    macro.takes_varargs = asked.varargs;
    macro.takes_kwargs = asked.kwargs;
    reader_.set_asked(outside);
    return inner;
  }

  std::unique_ptr<const Statement> macro_block(int line) {
    auto node = std::make_unique<Macro>(line);
    node->name = reader_.symbol(reader_.expect_any_name("the name of the macro"));
    parameters(*node);
    end_block();
    node->body = body_of(*node, "endmacro");
    return node;
  }

  std::unique_ptr<const Statement> call_block(int line) {
    auto node = std::make_unique<CallBlock>(line);
    node->caller.name = reader_.symbol("caller");
    parameters(node->caller);
    ExpressionPtr called = expressions_.expression();
    const auto* call = dynamic_cast<const Call*>(called.get());
    if (call == nullptr) reader_.fail("a call is expected");
    static_cast<void>(called.release());
    node->call.reset(call);
    end_block();
    node->caller.body = body_of(node->caller, "endcall");
    return node;
  }

  std::unique_ptr<const Statement> filter_block(int line) {
    auto node = std::make_unique<FilterBlock>(line);
    node->filters.push_back(expressions_.filter(nullptr));
    for (auto& filter : block_filters())
      node->filters.push_back(std::move(filter));
    end_block();
    node->body = inner_body("endfilter");
    return node;
  }

  std::unique_ptr<const Statement> with_block(int line) {
    auto node = std::make_unique<With>(line);
    while (reader_.now().kind != Token::Kind::block_end) {
      if (!node->names.empty()) reader_.expect_sign(",");
      Target one = part_of_target(false);
      reader_.expect_sign("=");
      node->names.emplace_back(std::move(one), expressions_.expression());
    }
    end_block();
    node->body = body({"endwith"});
    reader_.expect_name("endwith");
    end_block();
    return node;
  }

  std::unique_ptr<const Statement> generation_block(int line) {
    auto node = std::make_unique<Generation>(line);
    has_generation_ = true;
    end_block();
    node->body = inner_body("endgeneration");
    return node;
  }

  std::unique_ptr<const Statement> loop_control(int line, const std::string& word) {
    if (num_loops_ == 0) reader_.fail(fmt::format("{{% {} %}} is in no loop", word));
    auto node = std::make_unique<LoopControl>(line);
    node->flow = word == "break" ? Flow::stop_loop : Flow::next_round;
    end_block();
    return node;
  }

  std::unique_ptr<const Statement> print_block(int line) {
    auto node = std::make_unique<Output>(line, expressions_.tuple());
    end_block();
    return node;
  }

  Reader reader_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int num_loops_ = 0;
  bool has_generation_ = false;
};

}  // namespace

std::shared_ptr<const Parsed> parse(std::vector<Token> tokens) {
  auto parsed = std::make_shared<Parsed>();
  StatementParser(std::move(tokens), parsed->symbols).run(*parsed);
  return parsed;
}

}  // namespace finetune::jinja::detail
