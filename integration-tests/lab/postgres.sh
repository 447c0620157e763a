#!/usr/bin/env bash
# PostgreSQL on loopback with trust authentication, for SQL catalogs; works as root and as an ordinary user.
#   postgres.sh start [DIR]     superuser "postgres", database "postgres"; prints the connection string
#   postgres.sh health|stop [DIR]
# DIR: default $LAB_HOME/run/postgres. Port ${PGPORT:-54321}. First start about 3 s. Remove DIR to forget the data.
# Needs: the server binaries, in the newest /usr/lib/postgresql/*/bin (Debian postgresql) or on the PATH.
# As root: the server refuses uid 0, so it runs in a user namespace that shows root as an ordinary user.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cmd=${1:-}
dir=$(realpath -m "${2:-$LAB_HOME/run/postgres}")
port=${PGPORT:-54321}
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
if [ -z "$bin" ]; then bin=$(dirname "$(command -v postgres || echo /usr/bin/postgres)"); fi
[ -s "$dir/port" ] && [ "$cmd" != start ] && port=$(cat "$dir/port")

as_user() {
  if [ "$(id -u)" = 0 ]; then
    unshare --user --map-user=1000 --map-group=1000 -- "$@"
  else
    "$@"
  fi
}

ready() { "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; }

case "$cmd" in
  start)
    [ -x "$bin/postgres" ] || die "no PostgreSQL server in $bin"
    port_free "$port"
    mkdir -p "$dir"
    chmod 700 "$dir"
    if [ ! -s "$dir/data/PG_VERSION" ]; then
      as_user "$bin/initdb" -D "$dir/data" -A trust -U postgres -E UTF8 --locale=C.UTF-8 --no-sync >"$dir/initdb.log"
    fi
    echo "$port" >"$dir/port"
    # no socket file: its path may be too long
    as_user "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -t 30 \
      -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=''" start >/dev/null
    ready || die "not ready, see $dir/log"
    echo "postgresql://postgres@127.0.0.1:$port/postgres" ;;
  health) ready || die "not healthy"; echo "healthy: postgresql://postgres@127.0.0.1:$port/postgres" ;;
  stop)
    if [ -s "$dir/data/postmaster.pid" ]; then as_user "$bin/pg_ctl" -D "$dir/data" -m fast -w stop; fi ;;
  *) usage "$0" ;;
esac
