"""Planning a whole table of 100,000 data files, of which none exists: a planner reads metadata alone. Manifests are
compressed as Iceberg's own writers do.

  large    10 manifests of 10,000 files
  small    2,000 manifests of 50 files
  iceferry     `iceferry plan` of a first copy: one process from its start to its end
  pyiceberg    plan_files of a scan, without the start of Python and its imports
  duckdb       iceberg_metadata, which lists the files of a table, likewise

The legs take turns, so that all see the same machine. Files a second are by the time on the clock.
"""
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

import measure
import planning
from measure import THREADS, labenv, say

LEGS = ("iceferry", "pyiceberg", "duckdb")
# Name, files, manifests, files a second that are aimed at.
SHAPES = (("large", 100_000, 10, 200_000), ("small", 100_000, 2_000, 120_000))
QUICK_SHAPES = (("large", 2_000, 2, None), ("small", 2_000, 40, None))
RUNS = 3
MEMORY_MB = 128


def job(warehouse, folder):
    return {
        "name": "bench",
        "source": {"table": "db.t", "catalog_properties": {"type": "hadoop", "warehouse": warehouse}},
        "target": {
            "table": "bench.t",
            "catalog_properties": {"type": "hadoop", "warehouse": f"{folder}/out"},
            "equality_columns": ["id"],
        },
    }


def leg_pyiceberg(metadata):
    from pyiceberg.table import StaticTable

    begin = time.perf_counter()
    files = sum(1 for _ in StaticTable.from_metadata(metadata).scan().plan_files())
    return files, time.perf_counter() - begin


def leg_duckdb(metadata):
    import readback

    connection = readback.duck_connection()
    connection.execute(f"set threads = {THREADS}")
    begin = time.perf_counter()
    (files,) = connection.execute(f"select count(*) from iceberg_metadata('{metadata}')").fetchone()
    return files, time.perf_counter() - begin


def leg(name, metadata):
    """One run of a peer; prints what it found and how long that took."""
    files, seconds = {"pyiceberg": leg_pyiceberg, "duckdb": leg_duckdb}[name](metadata)
    print(json.dumps({"files": files, "seconds": seconds}))


def one(name, bins, warehouse, scratch):
    folder = tempfile.mkdtemp(prefix=f"{name}-", dir=scratch)
    try:
        if name == "iceferry":
            with open(f"{folder}/job.yaml", "w", encoding="utf-8") as f:
                json.dump(job(warehouse, folder), f)
            command = [os.path.join(bins, "iceferry"), "plan", f"{folder}/job.yaml", "--output", "json"]
            figures, output = measure.run(f"plan, {name}", command, folder)
            (epoch,) = json.loads(output)["epochs"]
            figures["seconds"], files = figures["wall_s"], epoch["plan"]["files_added"]
            figures["metadata_mb"] = epoch["plan"]["metadata_bytes_read"] / 1e6
        else:
            command = [sys.executable, "-B", os.path.abspath(__file__), name, f"{warehouse}/db/t/metadata/v1.metadata.json"]
            figures, output = measure.run(f"plan, {name}", command, folder)
            found = json.loads(output)
            figures["seconds"], files = found["seconds"], found["files"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures, files


def run(args, bins):
    """All shapes by all legs; figures and checks."""
    runs = 1 if args.quick else args.runs or RUNS
    results, checks = {}, []
    for shape, files, manifests, aim in QUICK_SHAPES if args.quick else SHAPES:
        say(f"a table of {files:,} files in {manifests:,} manifests ...")
        warehouse = planning.source_of(bins, (files, manifests, 0, "deflate"))
        scratch = os.path.join(labenv.CACHE, "bench")
        measured = {name: [] for name in LEGS}
        for _ in range(runs):
            for name in LEGS:
                figures, found = one(name, bins, warehouse, scratch)
                if found != files:
                    print(f"error: {name} found {found} of {files} files", file=sys.stderr)
                    sys.exit(2)
                measured[name].append(figures)
        print(f"Planning a table of {files:,} data files in {manifests:,} manifests; {runs} runs\n")
        print(f"| {'leg':10} | {'median s':>8} | {'least s':>7} | {'CPU s':>7} | {'peak MB':>7} | {'files/s':>9} |")
        print(f"|{'-' * 12}|{'-' * 10}|{'-' * 9}|{'-' * 9}|{'-' * 9}|{'-' * 11}|")
        legs = {}
        for name, runs_of in measured.items():
            of = {key: statistics.median(figures[key] for figures in runs_of) for key in runs_of[0]}
            of["seconds_min"] = min(figures["seconds"] for figures in runs_of)
            of["files_per_s"] = files / of["seconds"]
            legs[name] = of
            print(
                f"| {name:10} | {of['seconds']:8.2f} | {of['seconds_min']:7.2f} | {of['cpu_s']:7.2f} | {of['memory_mb']:7.0f} |"
                f" {of['files_per_s']:9,.0f} |"
            )
        print()
        ours = legs["iceferry"]
        of_shape = [
            (f"files a second, {manifests} manifests", ours["files_per_s"], aim and (None, aim)),
            (f"peak memory, {manifests} manifests, MB", ours["memory_mb"], (MEMORY_MB,)),
            (f"times pyiceberg's files a second, {shape}", ours["files_per_s"] / legs["pyiceberg"]["files_per_s"], None),
            (f"times DuckDB's files a second, {shape}", ours["files_per_s"] / legs["duckdb"]["files_per_s"], None),
        ]
        print("\n".join(measure.check_lines(of_shape)) + "\n")
        results[shape] = {"files": files, "manifests": manifests, "runs": runs, "legs": legs}
        checks += of_shape
    return results, checks


if __name__ == "__main__":
    leg(*sys.argv[1:])
