"""The same copy as other tools do it. Each function is one leg: it copies `source` into `folder`/out and gives the seconds
that the copy itself took, imports and warming up left out. Imported; see LEGS for the virtualenv that a leg needs.
"""
import os
import subprocess
import sys
import time

import measure
from measure import THREADS, labenv

ZSTD_LEVEL = 3
PARQUET = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": str(ZSTD_LEVEL)}


def pyiceberg(source, folder):
    """Scan to Arrow and append to a new table in an SQL catalog, as its users do it."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import StaticTable

    os.makedirs(f"{folder}/out")
    begin = time.perf_counter()
    rows = StaticTable.from_metadata(source["metadata"]).scan().to_arrow()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/out")
    catalog.create_namespace("bench")
    catalog.create_table("bench.lineitem", rows.schema, properties=PARQUET).append(rows)
    return time.perf_counter() - begin


def duckdb(source, folder):
    """COPY of an iceberg_scan to plain Parquet files: no Iceberg commit."""
    import readback

    connection = readback.duck_connection()
    connection.execute(f"set threads = {THREADS}")
    connection.execute("set preserve_insertion_order = false")
    scan = readback.duck_scan(readback.plain(source["metadata"]))
    options = f"format parquet, compression zstd, compression_level {ZSTD_LEVEL}, per_thread_output"
    begin = time.perf_counter()
    connection.execute(f"copy (select * from {scan}) to '{folder}/out' ({options})")
    return time.perf_counter() - begin


def polars(source, folder):
    """A streaming scan of the data files to one plain Parquet file: no Iceberg on either side."""
    import polars as pl

    os.makedirs(f"{folder}/out")
    begin = time.perf_counter()
    rows = pl.scan_parquet(source["files"])
    rows.sink_parquet(f"{folder}/out/rows.parquet", compression="zstd", compression_level=ZSTD_LEVEL)
    return time.perf_counter() - begin


def spark(source, folder):
    """insert into ... select * from ..., in a session that is warm: it has copied a table of a few rows before."""
    catalogs = {"bench": {"type": "hadoop", "warehouse": f"{folder}/out"}, "source": {"type": "hadoop", "warehouse": f"{folder}/source"}}
    session = labenv.start_spark([labenv.iceberg_jar()], catalogs)
    for namespace in ("bench.db", "source.db"):
        session.sql(f"create namespace if not exists {namespace}")
    options = ", ".join(f"'{key}' = '{value}'" for key, value in PARQUET.items())
    session.sql("create table source.db.warm using iceberg as select id, cast(id as string) as s from range(100000)")
    session.sql(f"create table source.db.warmed using iceberg tblproperties ({options}) as select * from source.db.warm")
    rows = session.read.format("iceberg").load(source["metadata"])
    begin = time.perf_counter()
    rows.createOrReplaceTempView("rows")
    session.sql(f"create table bench.db.lineitem using iceberg tblproperties ({options}) as select * from rows")
    return time.perf_counter() - begin


def workers(source, folder):
    """iceferry as a coordinator and two workers of one slot, each a process of its own."""
    binary, job = source["iceferry"], source["job"]
    with open(f"{folder}/coordinator.log", "wb") as log:
        begin = time.perf_counter()
        port = measure.free_port()
        address = f"127.0.0.1:{port}"
        coordinator = subprocess.Popen([binary, "coordinator", job, "--listen", address, "--output", "json"], stdout=log, stderr=log)
        command = [binary, "worker", "--coordinator", f"http://{address}", "--slots", "1"]
        helpers = [subprocess.Popen(command, stdout=log, stderr=log) for _ in range(THREADS)]
        try:
            failed = coordinator.wait(measure.LIMIT_S)
            seconds = time.perf_counter() - begin
            for helper in helpers:
                helper.wait(60)
        finally:
            for process in (coordinator, *helpers):
                if process.poll() is None:
                    process.kill()
    if failed:
        with open(f"{folder}/coordinator.log", encoding="utf-8", errors="replace") as text:
            sys.stderr.write(text.read()[-4000:])
        sys.exit(2)
    return seconds


# leg: (what it does, the virtualenv that it runs in)
LEGS = {
    "workers": (workers, "core"),
    "polars": (polars, "bench"),
    "pyiceberg": (pyiceberg, "core"),
    "duckdb": (duckdb, "core"),
    "spark": (spark, "spark"),
}
