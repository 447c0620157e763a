# Shared shell functions of the lab; sourced by the scripts next to it, not called by itself.
#   LAB_HOME   where everything is installed and written (default: the folder lab in $ICEFERRY_CACHE, which is
#              $HOME/.cache/iceferry unless set)
#   needs: bash, curl, setsid (util-linux); nothing to stop.
# shellcheck shell=bash
export LC_ALL=C.UTF-8
LAB_DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
LAB_HOME="$(realpath -m "${LAB_HOME:-${ICEFERRY_CACHE:-$HOME/.cache/iceferry}/lab}")"
CORE="$LAB_HOME/venv/core"
SIDE="$LAB_HOME/venv/side"
SPARK="$LAB_HOME/venv/spark"

die() { echo "error: $*" >&2; exit 1; }

# site VENV: the site-packages folder of a virtualenv
site() { echo "$1"/lib/python3.*/site-packages; }

# usage FILE: print the header comment of a script and fail
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$1" >&2; exit 2; }

now_ms() { date +%s%3N; }

# wait_for SECONDS COMMAND...: poll until the command succeeds
wait_for() {
  local limit=$1 start
  shift
  start=$(now_ms)
  until "$@" >/dev/null 2>&1; do
    (( $(now_ms) - start < limit * 1000 )) || return 1
    sleep 0.1
  done
  echo "ready after $(( $(now_ms) - start )) ms"
}

# port_free PORT: fail when something already listens there
port_free() {
  if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then die "port $1 is already in use by another process"; fi
}

# launch PIDFILE LOGFILE COMMAND...: start in the background, detached, and note the process id
launch() {
  local pidfile=$1 log=$2
  shift 2
  alive "$pidfile" && die "already running: $pidfile"
  setsid "$@" >>"$log" 2>&1 </dev/null &
  echo $! >"$pidfile"
  # start time of the process: a recycled process id is never mistaken for ours
  awk '{print $22}' "/proc/$!/stat" >"$pidfile.start" 2>/dev/null || true
}

# alive PIDFILE: is the process started by launch still there
alive() {
  local pid
  [ -s "$1" ] || return 1
  pid=$(cat "$1")
  [ -r "/proc/$pid/stat" ] || return 1
  [ "$(awk '{print $22}' "/proc/$pid/stat")" = "$(cat "$1.start" 2>/dev/null)" ] || return 1
  [ "$(awk '{print $3}' "/proc/$pid/stat")" != Z ]
}

# halt PIDFILE [SIGNAL]: stop it and wait; SIGKILL after 15 s
halt() {
  local pidfile=$1 signal=${2:-TERM} pid
  if alive "$pidfile"; then
    pid=$(cat "$pidfile")
    kill "-$signal" "$pid" 2>/dev/null || true
    for _ in $(seq 150); do alive "$pidfile" || break; sleep 0.1; done
    if alive "$pidfile"; then kill -KILL "$pid" || true; sleep 0.3; fi
    echo "stopped $pid"
  fi
  rm -f "$pidfile" "$pidfile.start"
}
