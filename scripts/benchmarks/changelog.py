"""Resolving a rewrite: 5 million rows of TPC-H lineitem are overwritten as a whole, 1 % of them with other values. The
changelog of it is written; what is carried over must not show.

  one task     tasks may be as large as the group, and there is memory for it
  two stages   tasks of the usual size: rows are exchanged by the hash of their key, and each bucket is resolved
"""
import fcntl
import json
import os
import shutil
import tempfile

import measure
from measure import labenv, say
import copying

ROWS, SMALL = 5_000_000, 100_000
KEYS = copying.KEYS
# Megabytes for the process's slots, and the bytes of a task.
LEGS = {"one task": (24_000, 2**40), "two stages": (1_000, 2**27)}


def source_of(rows):
    """A table of lineitem's first rows, then overwritten; made once."""
    folder = os.path.join(labenv.CACHE, "bench", f"rewrite-{rows}")
    done = f"{folder}/source.json"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(done):
            shutil.rmtree(folder, ignore_errors=True)
            made = make(folder, rows)
            with open(done, "w", encoding="utf-8") as f:
                json.dump(made, f)
        with open(done, encoding="utf-8") as f:
            return json.load(f)


def make(folder, count):
    import pyarrow
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import StaticTable

    source = copying.source_of("1" if count > 600_000 else "0.1")
    rows = StaticTable.from_metadata(source["metadata"]).scan().to_arrow()[:count].combine_chunks()
    os.makedirs(f"{folder}/warehouse")
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse"
    catalog = SqlCatalog("iceferry", uri=uri, warehouse=warehouse)
    catalog.create_namespace("tpch")
    properties = {"write.parquet.compression-codec": "zstd", "write.target-file-size-bytes": str(2**29)}
    table = catalog.create_table("tpch.lineitem", rows.schema, properties=properties)
    table.append(rows)
    before = table.current_snapshot().snapshot_id
    place = rows.schema.get_field_index("l_comment")
    was = rows["l_comment"].to_pylist()
    now = ["changed" if number % 100 == 0 else comment for number, comment in enumerate(was)]
    field = rows.schema.field(place)
    table.overwrite(rows.set_column(place, field, pyarrow.array(now, field.type)))
    updates = sum(one != other for one, other in zip(was, now, strict=True))
    return {
        "uri": uri, "warehouse": warehouse, "table": "tpch.lineitem", "before": str(before), "rows": len(rows),
        "updates": updates,
    }


def set_task_bytes(source, size):
    from pyiceberg.catalog.sql import SqlCatalog

    table = SqlCatalog("iceferry", uri=source["uri"], warehouse=source["warehouse"]).load_table(source["table"])
    with table.transaction() as transaction:
        transaction.set_properties({"read.split.target-size": str(size)})


def job(source, folder):
    return {
        "name": "bench",
        "source": {
            "table": source["table"],
            "catalog_properties": {"type": "sql", "uri": source["uri"], "warehouse": source["warehouse"]},
            "after_snapshot": int(source["before"]),
            "changes": "net",
            "identifier_columns": KEYS,
        },
        "target": {
            "table": "bench.log",
            "catalog_properties": {"type": "hadoop", "warehouse": f"{folder}/out"},
            "mode": "append",
            "change_type_column": "change",
        },
    }


def run(args, bins):
    """Resolves the rewrite with much and with little memory."""
    source = source_of(SMALL if args.quick else ROWS)
    runs = args.runs or (1 if args.quick else 3)
    rows = 2 * source["rows"]
    print(f"Resolving {source['rows']:,} rows that went and as many that came, {source['updates']:,} updates, 2 slots; best of {runs}\n")
    print(f"| {'':10} | {'wall s':>7} | {'CPU s':>7} | {'peak MB':>7} | {'Mrow/s':>6} |")
    print(f"|{'-' * 12}|{'-' * 9}|{'-' * 9}|{'-' * 9}|{'-' * 8}|")
    legs, checks = {}, []
    for number in range(runs):
        for leg, (memory, task_bytes) in LEGS.items():
            say(f"run {number + 1} of {runs}  {leg}")
            small = 50 if args.quick else 1
            set_task_bytes(source, task_bytes // small)
            figures = one(bins, source, leg, max(memory // small, 64))
            if leg not in legs or figures["wall_s"] < legs[leg]["wall_s"]:
                legs[leg] = figures
    for leg, figures in legs.items():
        rate = rows / figures["wall_s"] / 1e6
        print(f"| {leg:10} | {figures['wall_s']:7.2f} | {figures['cpu_s']:7.2f} | {figures['memory_mb']:7.0f} | {rate:6.2f} |")
        checks.append((f"million input rows a second, {leg}", rate, (None, 2.0 if leg == "one task" else 1.0)))
    print()
    print("\n".join(measure.check_lines(checks)))
    return {"rows": source["rows"], "updates": source["updates"], "legs": legs}, checks


def one(bins, source, leg, memory):
    folder = tempfile.mkdtemp(prefix="changelog-", dir=os.path.join(labenv.CACHE, "bench"))
    try:
        with open(f"{folder}/job.yaml", "w", encoding="utf-8") as f:
            json.dump(job(source, folder), f)
        slots = ["--slots", str(measure.THREADS), "--memory-mb", str(memory)]
        command = [os.path.join(bins, "iceferry"), "run", f"{folder}/job.yaml", "--output", "json", *slots]
        figures, _ = measure.run(leg, command, folder)
        written = copying.rows_in(f"{folder}/out")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if written != 2 * source["updates"]:
        raise SystemExit(f"error: {leg} wrote {written} rows, expected {2 * source['updates']}")
    return figures
