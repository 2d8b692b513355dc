// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/page_writer.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "report/page.hpp"

namespace finetune::train {
namespace {

std::string problem_of_writing(const std::filesystem::path& root) {
  try {
    report::write_page(root, core::unix_time_s());
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// The thread gives way to those that compute.
std::string write_in_background(const std::filesystem::path& root) {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 15);
  return problem_of_writing(root);
}

}  // namespace

PageWriter::PageWriter(std::filesystem::path root, bool writes)
    : root_(std::move(root)), writes_(writes) {}

PageWriter::~PageWriter() {
  if (result_.valid()) result_.wait();
}

void PageWriter::write_soon() {
  if (!writes_) return;
  if (result_.valid()) {
    if (result_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    take_result();
  }
  try {
    result_ = std::async(std::launch::async, write_in_background, root_);
  } catch (const std::system_error&) {
    // No thread to be had: the next page, or the last one, has it all.
  }
}

void PageWriter::write_last() {
  if (!writes_) return;
  if (result_.valid()) take_result();
  std::promise<std::string> done;
  done.set_value(problem_of_writing(root_));
  result_ = done.get_future();
  take_result();
}

void PageWriter::take_result() {
  const std::string problem = result_.get();
  if (problem.empty() || std::exchange(has_warned_, true)) return;
  log::warn(fmt::format("report.html is not written: {}", problem));
}

}  // namespace finetune::train
