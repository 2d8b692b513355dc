# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the jobscripts: runs the ranks so that a signal to the script asks them for a checkpoint.

# run_ranks COMMAND...: runs mpirun or srun and returns its exit code. SIGUSR1 goes to it as it comes;
# SIGINT or SIGTERM as SIGUSR1 too, because mpirun hands that to every rank and gives them time, where
# after a SIGTERM it kills them within two seconds. A second SIGINT or SIGTERM does just that.
run_ranks() {
  local code signalled=no
  stops=0
  asked_early=no
  ranks_pid=
  trap 'signalled=yes; ask_for_checkpoint' USR1
  trap 'signalled=yes; ask_to_stop' INT TERM
  # In a process group of its own: what a terminal sends to all must not reach it by itself.
  set -m
  "$@" </dev/null &
  ranks_pid=$!
  set +m
  [ $asked_early = no ] || ask_for_checkpoint
  while :; do
    signalled=no
    code=0
    wait "$ranks_pid" || code=$?
    # A signal ends the wait, not what is waited for.
    [ $signalled = yes ] || break
  done
  # A warning that comes too late must not end the script before it has said what is next.
  trap '' USR1
  trap - INT TERM
  return $code
}

# A signal may come after the launcher has been started and before its process id is known here.
ask_for_checkpoint() {
  if [ -n "$ranks_pid" ]; then
    kill -USR1 "$ranks_pid" 2>/dev/null || true
  else
    asked_early=yes
  fi
}

ask_to_stop() {
  stops=$((stops + 1))
  if [ $stops -eq 1 ]; then
    printf 'finetune: stopping with a checkpoint; once more: stopping at once\n' >&2
    ask_for_checkpoint
  elif [ -n "$ranks_pid" ]; then
    kill -TERM "$ranks_pid" 2>/dev/null || true
  fi
}

# asks_for_another CODE RESTARTS: whether the same command has more to do and gets on with it: 75 and 76. Not
# 79, which says that start after start ends where it began. 138 is a SIGUSR1 to ranks that were still loading,
# of which the program knows nothing: that may happen three times.
asks_for_another() {
  [ "$1" -eq 75 ] || [ "$1" -eq 76 ] || { [ "$1" -eq 138 ] && [ "$2" -lt 3 ]; }
}
