// SPDX-License-Identifier: Apache-2.0
// The process: what it sets once, and whether it starts MPI.

#include "allocator.hpp"
#include "cli.hpp"
#include "comm/environment.hpp"
#include "core/host.hpp"
#include "ending.hpp"
#include "launch.hpp"
#include "metrics/memory.hpp"

int main(int argc, char** argv) {
  using namespace finetune;
  core::survive_file_size_limit();
  app::end_without_unloading();
  app::keep_freed_memory();
  app::bound_kept_products();
  metrics::count_tensor_bytes();
  if (!app::needs_ranks(argc, argv)) return app::launch(argc, argv);
  app::prepare_ranks(argc, argv);
  comm::Environment env(argc, argv);
  return app::launch(env, argc, argv);
}
