#!/usr/bin/env bash
# Iceberg REST catalog: Iceberg-Java 1.10.2 handlers over a JDBC catalog on SQLite (java/LocalRestCatalog.java).
#   rest-catalog.sh start [DIR] [WAREHOUSE] [KEY=VALUE...]
#       WAREHOUSE: a local folder (default DIR/warehouse)
#       KEY=VALUE: token=X demands that bearer; client=ID:SECRET for /v1/oauth/tokens; override.K=V; any catalog property
#   rest-catalog.sh health|stop [DIR]       the catalog stays in DIR/catalog.db
# DIR: default $LAB_HOME/run/rest-catalog. Port ${REST_PORT:-8282}. About 4 s to start, 150 MB. Needs: install.sh spark.
# transactions/commit is atomic per table only.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cmd=${1:-}
dir=$(realpath -m "${2:-$LAB_HOME/run/rest-catalog}")
port=${REST_PORT:-8282}
[ -s "$dir/port" ] && [ "$cmd" != start ] && port=$(cat "$dir/port")
# any answer counts: with token= the config route says 401
answers() { alive "$dir/pid" && curl -s -o /dev/null --max-time 2 "http://127.0.0.1:$port/v1/config"; }

case "$cmd" in
  start)
    shift "$(( $# < 2 ? $# : 2 ))"
    warehouse=$dir/warehouse
    if [ $# -gt 0 ]; then warehouse=$1; shift; fi
    sp=$(site "$SPARK")
    jars="$LAB_HOME/java"
    [ -s "$jars/localrest.jar" ] || die "not built; run install.sh spark"
    port_free "$port"
    mkdir -p "$dir/tmp"
    warehouse=$(realpath -m "$warehouse")
    mkdir -p "$warehouse"
    iceberg=$sp/snowpark_connect_deps_iceberg/jars/iceberg-spark-runtime-3.5_2.12-1.10.2.jar
    launch "$dir/pid" "$dir/log" java -Xmx512m -Djava.io.tmpdir="$dir/tmp" \
      -Dorg.sqlite.lib.path="$jars" -Dorg.sqlite.lib.name=libsqlitejdbc.so \
      -cp "$jars/localrest.jar:$iceberg:$jars/sqlite-jdbc.jar:$sp/pyspark/jars/*" \
      org.apache.iceberg.rest.LocalRestCatalog 127.0.0.1 "$port" "uri=jdbc:sqlite:$dir/catalog.db" \
      jdbc.schema-version=V1 "warehouse=$warehouse" io-impl=org.apache.iceberg.hadoop.HadoopFileIO "$@"
    echo "$port" >"$dir/port"
    wait_for 30 answers || die "not ready, see $dir/log"
    echo "REST http://127.0.0.1:$port  warehouse $warehouse" ;;
  health) answers || die "not healthy"; echo "healthy: http://127.0.0.1:$port" ;;
  stop) halt "$dir/pid" ;;
  *) usage "$0" ;;
esac
