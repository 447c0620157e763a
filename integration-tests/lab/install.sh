#!/usr/bin/env bash
# Builds the virtualenvs and Java programs of the tests under $LAB_HOME. Safe to repeat, and from two shells at once.
#   install.sh core    DuckDB with its Iceberg extension, pyiceberg, the PostgreSQL driver, the TPC-H generator; and
#                      sidequery-pyiceberg in a virtualenv of its own, since it provides the module pyiceberg too
#   install.sh spark   PySpark with Iceberg-Java, the SQLite driver, the Java programs compiled
#   install.sh bench   polars, for the bench alone
#   install.sh all     core and spark
# Needs: Python 3.11 or newer with venv and pip; for spark also a JDK 17 and apt-get download (the SQLite driver). No
# root. pip takes its index, links and certificates from the environment and its own configuration, as always.
# Undo: remove $LAB_HOME.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
begin=$(now_ms)
mkdir -p "$LAB_HOME"
exec 9>"$LAB_HOME/.install.lock"
flock 9   # test runs that start together install once
PYTHON="${LAB_PYTHON:-$(command -v python3.11 || command -v python3)}"

say() { printf '%6.1fs  %s\n' "$(( $(now_ms) - begin ))e-3" "$*"; }

# venv NAME: create it and install requirements/NAME.txt unless that very list is already in
venv() {
  local name=$1 dir="$LAB_HOME/venv/$1" list="$LAB_DIR/requirements/$1.txt"
  if cmp -s "$list" "$dir/.installed"; then say "venv $name: already there"; return; fi
  mkdir -p "$LAB_HOME/venv"
  [ -x "$dir/bin/python" ] || "$PYTHON" -m venv "$dir"
  "$dir/bin/python" -m pip install --quiet --no-input --no-deps -r "$list"
  cp "$list" "$dir/.installed"
  say "venv $name: installed, $(du -sh "$dir" | cut -f1)"
}

# java_program JAR CLASSPATH SOURCE...: compile into a jar unless the sources are unchanged
java_program() {
  local jar="$LAB_HOME/java/$1" cp=$2 out
  shift 2
  if [ -s "$jar" ] && cat "$@" | cmp -s - "$jar.src"; then say "$(basename "$jar"): already there"; return; fi
  mkdir -p "$LAB_HOME/java"
  out=$(mktemp -d "$LAB_HOME/java/out.XXXXXX")
  javac -nowarn -d "$out" -cp "$cp" "$@"
  jar cf "$jar" -C "$out" .
  rm -rf "$out"
  cat "$@" >"$jar.src"
  say "$(basename "$jar"): compiled"
}

core() {
  venv core
  venv side
}

spark() {
  local sp iceberg deb
  venv spark
  sp=$(site "$SPARK")
  iceberg="$sp/snowpark_connect_deps_iceberg/jars/iceberg-spark-runtime-3.5_2.12-1.10.2.jar"
  mkdir -p "$LAB_HOME/java"
  if [ ! -s "$LAB_HOME/java/sqlite-jdbc.jar" ]; then
    # Debian splits the driver into a jar and a native library; unpacked here, not installed
    deb=$(mktemp -d "$LAB_HOME/java/deb.XXXXXX")
    (cd "$deb" && apt-get download -qq -o APT::Sandbox::User="$(id -un)" libxerial-sqlite-jdbc-java libxerial-sqlite-jdbc-jni)
    for f in "$deb"/*.deb; do dpkg-deb -x "$f" "$deb/x"; done
    cp -L "$deb/x/usr/share/java/sqlite-jdbc.jar" "$LAB_HOME/java/"
    cp "$deb"/x/usr/lib/*/jni/libsqlitejdbc.so "$LAB_HOME/java/"
    rm -rf "$deb"
    say "sqlite-jdbc.jar: unpacked"
  else
    say "sqlite-jdbc.jar: already there"
  fi
  java_program fixtures.jar "$iceberg:$sp/pyspark/jars/*" "$LAB_DIR"/fixtures/java/*.java
  java_program localrest.jar "$iceberg:$sp/pyspark/jars/*" "$LAB_DIR/java/LocalRestCatalog.java"
}

case "${1:-}" in
  core) core ;;
  bench) venv bench ;;
  spark) spark ;;
  all) core; spark ;;
  *) usage "$0" ;;
esac
say "done, $LAB_HOME"
