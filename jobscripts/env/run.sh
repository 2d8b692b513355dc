# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the jobscripts: runs the ranks so that a signal to the script asks them for a checkpoint.

# run_ranks COMMAND...: runs mpirun or srun and returns its exit code. SIGUSR1 goes to it as it comes;
# SIGINT or SIGTERM as SIGUSR1 too, because mpirun hands that to every rank and gives them time, where
# after a SIGTERM it kills them within two seconds. A second SIGINT or SIGTERM does just that, unless it comes
# within three seconds: a scheduler that preempts a job sends two at once.
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
  if [ "$stops" -eq 0 ]; then
    first_stop=$SECONDS
    stops=1
    printf 'finetune: asked to stop: saving a checkpoint (asked once more, 5 s later or more, it stops at once)\n' >&2
    ask_for_checkpoint
  elif [ $((SECONDS - first_stop)) -gt 3 ] && [ -n "$ranks_pid" ]; then
    stops=2
    kill -TERM "$ranks_pid" 2>/dev/null || true
  fi
}

# asks_for_another CODE RESTARTS: whether the same command has more to do and gets on with it: 75, 76, and 205,
# with which mpirun ends when a node is lost. Not 79, which says that start after start ends where it began. 138
# is a SIGUSR1 to ranks that were still loading, of which the program knows nothing: that may happen three times.
asks_for_another() {
  [ "$1" -eq 75 ] || [ "$1" -eq 76 ] || [ "$1" -eq 205 ] || { [ "$1" -eq 138 ] && [ "$2" -lt 3 ]; }
}

# what_ended CODE: what it says of the run.
what_ended() {
  case $1 in
    0) echo "done" ;;
    64) echo "the command line is wrong" ;;
    65) echo "the model, the data or a checkpoint cannot be used" ;;
    69) echo "the ranks, a device or a library are not as the run needs them" ;;
    70) echo "a bug of the program" ;;
    71) echo "loss or gradients are not finite" ;;
    73) echo "the output cannot be written" ;;
    74) echo "a disk failed, or a rank fell silent" ;;
    75) echo "stopped with a new checkpoint" ;;
    76) echo "stopped; an older checkpoint counts" ;;
    78) echo "the deck is wrong, or the ranks disagree" ;;
    79) echo "three starts made no progress" ;;
    127) echo "a program could not be found" ;;
    137) echo "a rank was killed (SIGKILL), mostly because memory ran out" ;;
    138) echo "a warning came while the ranks were loading" ;;
    143) echo "ended by SIGTERM" ;;
    205) echo "a node was lost" ;;
    1) echo "the ranks could not be started" ;;
    *) if [ "$1" -gt 128 ]; then echo "a rank was ended by signal $(($1 - 128))"; else echo "not a code of the program"; fi ;;
  esac
}

# what_next CODE AGAIN: the last line of a job or start that does not go on by itself. AGAIN: what starts it again
# ("the same sbatch"); a start continues from the newest checkpoint.
what_next() {
  local code=$1 again=$2 next
  case $code in
    0) next="the weights are in train.output of the deck; finetune export RUN OUT writes them for other programs" ;;
    64 | 65 | 69 | 73 | 78) next="do what the error above says, then $again" ;;
    70) next="please report it with this log; $again continues from the newest checkpoint, if any" ;;
    71) next="lower optimizer.lr or look at the data, as the error above says; a new run needs another train.output" ;;
    79) next="do not submit it again before the cause is found, which the logs of these starts name" ;;
    137) next="see how much memory finetune plan says; with more memory or more nodes $again continues from the newest checkpoint" ;;
    1 | 127) next="see the messages above; when that is solved, $again" ;;
    *) next="$again continues from the newest checkpoint" ;;
  esac
  echo "finetune: exit code $code, $(what_ended "$code"): $next"
}
