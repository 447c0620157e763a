#!/usr/bin/env python3
"""Reads one Iceberg table with an engine that is not ours and prints its rows as canonical JSON lines (see canon.py).

usage: readback.py --engine duckdb|pyiceberg|sidequery|spark WHERE [--snapshot ID] [--schema|--count]
  WHERE is one of
    --metadata FILE.metadata.json      path or file:// address of a metadata file
    --hadoop DIR --table ns.name       newest version below DIR/ns/name/metadata (version-hint.text)
    --sqlite FILE --table ns.name      SQL catalog in an SQLite file, as pyiceberg and Iceberg-Java's JdbcCatalog make it
    --rest URI --table ns.name         Iceberg REST catalog
Without --snapshot: the current state. Exit 0 with rows on stdout; 1 when the engine fails; 2 for wrong use.
Known limits: DuckDB misreads partition-scoped equality deletes and null keys in them; pyiceberg refuses equality
deletes; pyiceberg and sidequery read null lists and maps as empty ones; Spark has no time.
For many reads there is reader.py, which keeps an engine running. Needs: install.sh core (for Spark: install.sh spark).
"""
import argparse
import glob
import json
import os
import sys
import time
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import canon  # noqa: E402
import labenv  # noqa: E402

VENV = {"duckdb": "core", "pyiceberg": "core", "sidequery": "side", "spark": "spark"}


def hadoop_metadata(folder, table):
    meta = os.path.join(folder, *table.split("."), "metadata")
    with open(os.path.join(meta, "version-hint.text")) as f:
        version = int(f.read())
    # a writer may have died between the metadata file and the hint: later versions win
    while os.path.exists(os.path.join(meta, f"v{version + 1}.metadata.json")):
        version += 1
    return os.path.join(meta, f"v{version}.metadata.json")


def sqlite_metadata(file, table):
    import sqlite3

    namespace, name = table.rsplit(".", 1)
    connection = sqlite3.connect(f"file:{urllib.parse.quote(os.path.abspath(file))}?mode=ro", uri=True)
    found = connection.execute(
        "select metadata_location from iceberg_tables where table_namespace = ? and table_name = ?",
        (namespace, name),
    ).fetchall()
    connection.close()
    if len(found) != 1:
        raise ValueError(f"{len(found)} tables named {table} in {file}")
    return found[0][0]


def rest_metadata(uri, table):
    def call(path):
        with urllib.request.urlopen(uri.rstrip("/") + path, timeout=30) as answer:
            return json.load(answer)

    config = call("/v1/config")
    prefix = {**config.get("defaults", {}), **config.get("overrides", {})}.get("prefix")
    namespace, name = table.rsplit(".", 1)
    space = urllib.parse.quote("\x1f".join(namespace.split(".")), safe="")
    root = f"/v1/{urllib.parse.quote(prefix, safe='')}" if prefix else "/v1"
    return call(f"{root}/namespaces/{space}/tables/{urllib.parse.quote(name, safe='')}")["metadata-location"]


def plain(location):
    """A local location without its scheme: every engine takes a bare path."""
    return location[len("file:"):].replace("///", "/", 1) if location.startswith("file:") else location


def duck_connection():
    """DuckDB with its Iceberg extension from the virtualenv; it may not fetch anything by itself."""
    import duckdb

    config = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    connection = duckdb.connect(config=config)
    for name in ("avro", "httpfs", "iceberg"):
        pattern = f"{labenv.site_packages('core')}/duckdb_extension_{name}/extensions/*/{name}.duckdb_extension"
        connection.execute(f"load '{glob.glob(pattern)[0]}'")
    connection.execute("set timezone = 'UTC'")
    # what counts is what is on the disk now, not what was there at an earlier read
    connection.execute("set enable_external_file_cache = false")
    return connection


def duck_scan(location, snapshot=None):
    """The text of an iceberg_scan of a metadata file."""
    at = f", snapshot_from_id => {int(snapshot)}" if snapshot is not None else ""
    escaped = location.replace("'", "''")
    return f"iceberg_scan('{escaped}'{at})"


def read_duckdb(location, snapshot, where=None):
    condition = f" where {where}" if where else ""
    return duck_connection().execute(f"select * from {duck_scan(location, snapshot)}{condition}").to_arrow_table().to_pylist()


def read_pyiceberg(location, snapshot, where=None):
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(location)
    scan = table.scan(row_filter=where, snapshot_id=snapshot) if where else table.scan(snapshot_id=snapshot)
    return scan.to_arrow().to_pylist()


def read_spark(location, snapshot, where=None):
    """The file is registered in a throw-away JDBC catalog on SQLite, which then serves it to Spark."""
    jars = [labenv.iceberg_jar(), labenv.java_jar("sqlite-jdbc.jar")]
    scratch = labenv.scratch_file(f"readback-{os.getpid()}.db")
    catalog = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "uri": f"jdbc:sqlite:{scratch}",
        "jdbc.schema-version": "V1",
        "warehouse": os.path.join(labenv.LAB_HOME, "tmp"),
        "cache-enabled": "false",
    }
    spark = labenv.start_spark(jars, {"m": catalog})  # a second call finds the first one
    spark.sql("create namespace if not exists m.db")
    spark.sql("drop table if exists m.db.t")  # leaves the files alone: no purge
    spark.sql(f"call m.system.register_table('db.t', '{location}')").collect()
    at = f" version as of {snapshot}" if snapshot is not None else ""
    condition = f" where {where}" if where else ""
    return spark.sql(f"select * from m.db.t{at}{condition}").collect()


READ = {"duckdb": read_duckdb, "pyiceberg": read_pyiceberg, "sidequery": read_pyiceberg, "spark": read_spark}


def utc():
    """Engines give timestamps in the process's time zone; canonical lines are in UTC."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def load(location):
    """The metadata file itself, read without the engine under test."""
    with open(location, encoding="utf-8") as f:
        return json.load(f)


def canonical(engine, location, snapshot=None, where=None):
    """The table's rows at a snapshot, or its current ones, as sorted canonical lines; with a condition, those that it is
    true of."""
    metadata = load(location)
    known = [s["snapshot-id"] for s in metadata.get("snapshots", [])]
    if snapshot is not None and snapshot not in known:
        raise ValueError(f"no snapshot {snapshot}; there are {known}")
    return canon.lines(READ[engine](location, snapshot, where), canon.schema_of(metadata, snapshot))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True, choices=sorted(VENV))
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--metadata")
    where.add_argument("--hadoop")
    where.add_argument("--sqlite")
    where.add_argument("--rest")
    parser.add_argument("--table")
    parser.add_argument("--snapshot", type=int)
    parser.add_argument("--schema", action="store_true", help="print the schema (JSON of the metadata file), no rows")
    parser.add_argument("--count", action="store_true", help="print the number of rows only")
    args = parser.parse_args()
    if not args.metadata and not args.table:
        parser.error("--table is needed")
    labenv.continue_in(VENV[args.engine])
    utc()
    try:
        if args.metadata:
            location = args.metadata
        elif args.hadoop:
            location = hadoop_metadata(args.hadoop, args.table)
        elif args.sqlite:
            location = sqlite_metadata(args.sqlite, args.table)
        else:
            location = rest_metadata(args.rest, args.table)
        location = plain(location)
        if args.schema:
            print(json.dumps(canon.schema_of(load(location), args.snapshot)))
            return
        lines = canonical(args.engine, location, args.snapshot)
    except Exception as error:  # an engine may fail in any way
        sys.exit(f"error: {type(error).__name__}: {error}")
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    if args.count:
        print(len(lines))
    else:
        sys.stdout.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
