#!/usr/bin/env python3
"""Makes TPC-H lineitem as an Iceberg source table: 8 files in 8 append snapshots, zstd, in an SQL catalog on SQLite.

usage: tpch.py DIR SCALE      prints one JSON object: uri, warehouse, table, metadata, rows, bytes, files
The rows come from tpchgen-cli; pyiceberg writes them again, so that the files carry field ids. A row group holds at most
1,048,576 rows, pyiceberg's default: one a file at scale 1. A second call finds the finished table. Needs: install.sh core.
"""
import fcntl
import glob
import json
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import labenv  # noqa: E402

PARTS = 8


def build(folder, scale):
    import pyarrow.parquet
    from pyiceberg.catalog.sql import SqlCatalog

    raw = f"{folder}/raw"
    os.makedirs(f"{folder}/warehouse")
    generator = os.path.join(os.path.dirname(sys.executable), "tpchgen-cli")
    command = [generator, "parquet", "-s", scale, "--tables=lineitem", f"--parts={PARTS}", f"--output-dir={raw}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse"
    catalog = SqlCatalog("iceferry", uri=uri, warehouse=warehouse)
    catalog.create_namespace("tpch")
    table = None
    for part in sorted(glob.glob(f"{raw}/lineitem/*.parquet"), key=lambda p: int(p.rsplit(".", 2)[1])):
        rows = pyarrow.parquet.read_table(part)
        if table is None:
            # one file for each append, however large
            properties = {"write.parquet.compression-codec": "zstd", "write.target-file-size-bytes": str(2**36)}
            table = catalog.create_table("tpch.lineitem", rows.schema, properties=properties)
        table.append(rows)
    shutil.rmtree(raw)
    files = [task.file for task in table.scan().plan_files()]
    return {
        "uri": uri, "warehouse": warehouse, "table": "tpch.lineitem", "metadata": table.metadata_location,
        "rows": sum(f.record_count for f in files), "bytes": sum(f.file_size_in_bytes for f in files),
        "files": sorted(f.file_path.removeprefix("file://") for f in files),
    }


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    labenv.continue_in("core")
    folder, scale = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = f"{folder}/source.json"
        if not os.path.exists(done):
            shutil.rmtree(folder, ignore_errors=True)
            made = build(folder, scale)
            with open(f"{done}.new", "w", encoding="utf-8") as f:
                json.dump(made, f)
            os.rename(f"{done}.new", done)
        with open(done, encoding="utf-8") as f:
            print(f.read())


if __name__ == "__main__":
    main()
