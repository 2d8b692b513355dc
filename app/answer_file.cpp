// SPDX-License-Identifier: Apache-2.0
#include "answer_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "output_lock.hpp"

namespace finetune::app {

namespace fs = std::filesystem;

namespace {

bool is_answer(const core::Json& line) {
  return line.is_object() && line.contains("prompt_hash") && line.at("prompt_hash").is_string();
}

/// Whether a line that was cut off has the first field of answers as they are written here,
/// without spaces: data of others hardly do.
bool begins_as_answer(const std::string& cut) {
  return std::ranges::any_of(
      std::array<std::string, 6>{"{\"id\":", "{\"text\":\"", "{\"texts\":[", "{\"label\":\"",
                                 "{\"labels\":[", "{\"value\":"},
      [&](const std::string& first) { return cut.starts_with(first) || first.starts_with(cut); });
}

}  // namespace

std::string text_in(const core::Json& record, const char* field, const std::string& where) {
  if (!record.at(field).is_string())
    core::fail(core::ErrorKind::input, {where, fmt::format("\"{}\" is no text", field), "",
                                        "Write a text between quotes."});
  return record.at(field).get<std::string>();
}

void require_one_answer(const Arguments& arguments) {
  if (arguments.output.empty())
    core::fail(core::ErrorKind::command_line,
               {"finetune generate", "--file is given, and no -o",
                "answers to a file of prompts are a file", "Name it by -o."});
  if (arguments.adapters.size() > 1)
    core::fail(core::ErrorKind::command_line,
               {"finetune generate", "several adapters are named",
                "a file of prompts has one file of answers", "Name one."});
  std::error_code ignored;
  if (log::is_root() && fs::equivalent(arguments.file, arguments.output, ignored))
    core::fail(core::ErrorKind::command_line,
               {"finetune generate", fmt::format("-o is {}, the file of prompts", arguments.output),
                "answers would take the place of the prompts", "Name another file by -o."});
}

std::string in_order(const std::vector<std::string>& of_ranks) {
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (const std::string& of_rank : of_ranks)
    for (const core::Json& each : core::Json::parse(of_rank))
      all.emplace_back(each[0].get<std::int64_t>(), each[1].get<std::string>());
  std::ranges::sort(all);
  std::string lines;
  for (const auto& [i, line] : all)
    lines += line + "\n";
  return lines;
}

std::int64_t AnswerFile::open(const std::vector<std::string>& fingerprints) {
  const auto done = comm::agree(
      world_, [&] { return world_.is_root() ? open_on_root(fingerprints) : std::int64_t{0}; });
  const std::int64_t all = world_.all_reduce(done, comm::Reduce::max);
  if (world_.is_root() && all > 0)
    log::info(fmt::format("goes on: {} of {} prompts are answered in {}", all, fingerprints.size(),
                          file_.string()));
  return all;
}

std::int64_t AnswerFile::open_on_root(const std::vector<std::string>& fingerprints) {
  std::error_code ignored;
  if (fs::exists(file_, ignored) && !fs::is_regular_file(file_, ignored))
    core::fail(
        core::ErrorKind::create,
        {file_.string(), fs::is_directory(file_, ignored) ? "is a folder" : "is no regular file",
         "the answers are lines of a file", "Name a file by -o."});
  const int descriptor = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0)
    core::fail(core::ErrorKind::create, {file_.string(), "cannot be written", core::system_reason(),
                                         "Name another file by -o."});
  out_.emplace(descriptor, file_);
  // Before it is read: another writer may be in the middle of a line.
  lock_output(*out_, file_);
  std::ifstream in(file_);
  std::int64_t count = 0;
  std::string rest;
  for (std::string line; std::getline(in, line); ++count) {
    if (in.eof()) {
      rest = line;
      break;
    }
    require_same(line, fingerprints, count);
    size_bytes_ += std::ssize(line) + 1;
  }
  if (!rest.empty()) {
    require_begun(rest, fingerprints, count);
    out_->cut(size_bytes_);
  }
  return count;
}

void AnswerFile::add(const std::string& lines) {
  comm::agree_all(world_, [&] {
    if (!world_.is_root()) return;
    try {
      out_->write_at(size_bytes_, std::as_bytes(std::span(lines)));
    } catch (const core::Error&) {
      core::fail(core::ErrorKind::io,
                 {file_.string(), "cannot be written", core::system_reason(),
                  "Is the disk full? The same command goes on from what is there."});
    }
    size_bytes_ += std::ssize(lines);
  });
}

void AnswerFile::require_same(const std::string& line, const std::vector<std::string>& fingerprints,
                              std::int64_t index) const {
  const core::Json answer = core::Json::parse(line, nullptr, false);
  if (!is_answer(answer)) refuse_file(index);
  if (index < std::ssize(fingerprints) &&
      answer.at("prompt_hash") == fingerprints[static_cast<std::size_t>(index)])
    return;
  core::fail(
      core::ErrorKind::create,
      {fmt::format("{}:{}", file_.string(), index + 1), "is no answer to this line of the prompts",
       "what is there already is kept, and these are other prompts, another model or other "
       "settings",
       "Remove it, or name another file by -o."});
}

void AnswerFile::require_begun(const std::string& rest,
                               const std::vector<std::string>& fingerprints,
                               std::int64_t index) const {
  // What lacks nothing but its end is judged as a whole line.
  if (const core::Json answer = core::Json::parse(rest, nullptr, false); !answer.is_discarded())
    return require_same(rest, fingerprints, index);
  const bool may_be_next = index < std::ssize(fingerprints) && rest.starts_with('{');
  if (!may_be_next || (index == 0 && !begins_as_answer(rest))) refuse_file(index);
}

void AnswerFile::refuse_file(std::int64_t index) const {
  core::fail(core::ErrorKind::create,
             {fmt::format("{}:{}", file_.string(), index + 1), "is no line of a file of answers",
              "what is there already is kept", "Name another file by -o."});
}

}  // namespace finetune::app
