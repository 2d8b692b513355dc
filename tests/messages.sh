#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The words of messages that tests provoke: golden pages, one per test program.
#
#     tests/messages.sh                      # compares all pages with what the built programs say
#     tests/messages.sh --write              # writes them anew; `git diff tests/golden/messages` is the change
#     tests/messages.sh --write unit_deck    # only the pages of these programs
#
# FINETUNE_BUILD is the build folder (build).
set -eu
cd "$(dirname "$0")/.."
if [ "${1-}" = --write ]; then
  export FINETUNE_WRITE_MESSAGES=1
  shift
fi
if [ $# = 0 ]; then
  for page in tests/golden/messages/*.txt; do
    set -- "$@" "$(basename "$page" .txt)"
  done
fi
# unit_deck is the program of ctest's unit/deck, and of unit/deck.r2 on two ranks.
names=$(printf '|%s' "$@" | sed 's/^|//; s:_:[/_]:g')
exec ctest --test-dir "${FINETUNE_BUILD:-build}" --output-on-failure --no-tests=error -R "^($names)([.]r[0-9]+)?\$"
