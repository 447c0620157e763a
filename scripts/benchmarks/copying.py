"""A backfill of TPC-H lineitem against the least that such a copy can cost, and against peers.

Legs, each a process of its own; all of them run in turns:
  bytes      limit: the files' bytes read and written, 2 threads, fsync
  splice     limit: their column chunks handed on into new files, 2 threads, fsync
  decode     limit: decode and encode with the parquet crate, 2 threads, zstd of the same level, fsync
  copied     iceferry run of a backfill into a Hadoop catalog, 2 slots, plan and commit included: files as they are
  spliced    the same into a changelog table: a column for the change type comes behind the row's
  workers    as copied, with a coordinator and two workers, each a process of its own
  decoded    as copied, with copy: decode
  and the peers of peers.py
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import measure
import peers
from measure import LAB, THREADS, labenv, say, verdict
from peers import ZSTD_LEVEL

LIMITS = ("bytes", "splice", "decode")
OURS = ("copied", "spliced", "workers", "decoded")
LEGS = (*LIMITS, *OURS, "polars", "pyiceberg", "duckdb", "spark")
MEMORY_SCALES = ("1", "5")
KEYS = ["l_orderkey", "l_linenumber"]


def source_of(scale):
    command = [sys.executable, "-B", os.path.join(LAB, "tpch.py"), os.path.join(labenv.CACHE, "bench", f"lineitem-{scale}"), scale]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def command_of(leg, bins, source, folder):
    if leg in LIMITS:
        return [os.path.join(bins, "raw_copy"), leg, f"{folder}/out", str(THREADS), str(ZSTD_LEVEL), *source["files"]]
    iceferry, path = os.path.join(bins, "iceferry"), f"{folder}/job.yaml"
    if leg in OURS:
        with open(path, "w", encoding="utf-8") as f:
            # JSON is YAML
            json.dump(job(leg, source, folder), f, indent=1)
    if leg in OURS and leg != "workers":
        return [iceferry, "run", path, "--output", "json", "--slots", str(THREADS)]
    source = {**source, "iceferry": iceferry, "job": path}
    return [sys.executable, "-B", os.path.join(measure.ROOT, "scripts", "bench"), "--leg", leg, json.dumps(source), folder]


def job(leg, source, folder):
    target = {"table": "bench.lineitem", "catalog_properties": {"type": "hadoop", "warehouse": f"{folder}/out"}}
    if leg == "spliced":
        target.update(mode="append", change_type_column="change")
    else:
        target.update(mode="merge-on-read", equality_columns=KEYS)
    if leg == "decoded":
        target["copy"] = "decode"
    return {
        "name": "bench",
        "source": {
            "table": source["table"],
            "catalog_properties": {"type": "sql", "uri": source["uri"], "warehouse": source["warehouse"]},
            "changes": "net",
        },
        "target": target,
    }


def one(leg, bins, source, scratch):
    """One run of a leg, checked for the number of rows it wrote. A peer's own seconds count, not those of its imports."""
    folder = tempfile.mkdtemp(prefix=f"{leg}-", dir=scratch)
    os.sync()
    result, printed = measure.run(leg, command_of(leg, bins, source, folder), folder)
    if leg in peers.LEGS:
        result["wall_s"] = json.loads(printed)["seconds"]
    written = rows_in(f"{folder}/out")
    if written != source["rows"]:
        print(f"error: {leg} wrote {written} rows, the source has {source['rows']}", file=sys.stderr)
        sys.exit(2)
    if leg in OURS and leg != "workers":
        counts = json.loads(printed)["epochs"][0]["rows"]
        result.update({key: counts[key] for key in ("files_copied", "files_spliced", "files_decoded")})
    result["bytes"] = sum(os.path.getsize(p) for p in parquet_files(f"{folder}/out"))
    shutil.rmtree(folder)
    return result


def parquet_files(folder):
    return [os.path.join(at, f) for at, _, files in os.walk(folder) for f in files if f.endswith(".parquet")]


def rows_in(folder):
    import pyarrow.parquet

    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in parquet_files(folder))


def alternate(legs, runs, bins, source, scratch):
    """The medians of each leg, all legs taking turns."""
    found = {leg: [] for leg in legs}
    for number in range(runs):
        for leg in legs:
            figures = one(leg, bins, source, scratch)
            found[leg].append(figures)
            say(f"run {number + 1} of {runs}  {leg:10}{figures['wall_s']:8.2f} s{figures['cpu_s']:8.2f} s CPU{figures['memory_mb']:8.0f} MB")
    return {
        leg: {
            **{key: statistics.median(r[key] for r in results) for key in results[0]},
            "wall_min_s": min(r["wall_s"] for r in results),
            "rows_per_s": source["rows"] / statistics.median(r["wall_s"] for r in results),
        }
        for leg, results in found.items()
    }


def aims(figures, memory):
    """(what, figure, aim) for all that was measured; walls are minima. An aim is (most,) or (None, least)."""

    def ratio(one, other, key="wall_min_s"):
        if one in figures and other in figures:
            return figures[one][key] / figures[other][key]
        return None

    rows = [
        ("copied: wall / byte copy", ratio("copied", "bytes"), (2.0,)),
        ("spliced: wall / byte copy", ratio("spliced", "bytes"), (2.0,)),
        ("two worker processes: wall / byte copy", ratio("workers", "bytes"), None),
        ("copied: times faster than polars", ratio("polars", "copied"), (None, 12)),
        ("copied: times faster than pyiceberg", ratio("pyiceberg", "copied"), (None, 15)),
        ("copied: times faster than DuckDB", ratio("duckdb", "copied"), (None, 18)),
        ("copied: times faster than warm Spark", ratio("spark", "copied"), (None, 40)),
        ("decoded: CPU / raw decode and encode", ratio("decoded", "decode", "cpu_s"), (1.15,)),
        ("decoded: times faster than pyiceberg", ratio("pyiceberg", "decoded"), (None, 1.5)),
        ("decoded: times faster than warm Spark", ratio("spark", "decoded"), (None, 3)),
    ]
    for leg, most in (("copied", 96), ("spliced", 96), ("decoded", 320)):
        if leg in figures:
            rows.append((f"{leg}: peak memory, MB", figures[leg]["memory_mb"], (most,)))
    for leg, (small, large) in memory.items():
        rows.append((f"{leg}: peak memory, scale {MEMORY_SCALES[1]} / {MEMORY_SCALES[0]}", large / small, (1.2,)))
    return [row for row in rows if row[1] is not None]


def report(scale, runs, source, figures, checks):
    lines = [
        f"TPC-H lineitem, scale {scale}: {source['rows']:,} rows, {len(source['files'])} files, {source['bytes'] / 1e6:.0f} MB;"
        f" {runs} runs; {os.cpu_count()} cores",
        "",
        f"| {'leg':10} | {'min s':>7} | {'median s':>8} | {'CPU s':>7} | {'peak MB':>7} | {'Mrow/s':>6} | {'out MB':>6} |",
        f"|{'-' * 12}|{'-' * 9}|{'-' * 10}|{'-' * 9}|{'-' * 9}|{'-' * 8}|{'-' * 8}|",
    ]
    for leg, f in figures.items():
        lines.append(
            f"| {leg:10} | {f['wall_min_s']:7.2f} | {f['wall_s']:8.2f} | {f['cpu_s']:7.2f} | {f['memory_mb']:7.0f} |"
            f" {f['rows_per_s'] / 1e6:6.2f} | {f['bytes'] / 1e6:6.0f} |"
        )
    if checks:
        lines.append("")
    lines.extend(measure.check_lines(checks))
    return "\n".join(lines)


def memory_at(scales, bins, scratch):
    """Peak memory of each way of ours at two scales."""
    found = {leg: [] for leg in ("copied", "spliced", "decoded")}
    for scale in scales:
        source = source_of(scale)
        for leg, peaks in found.items():
            peaks.append(one(leg, bins, source, scratch)["memory_mb"])
    return found


def run(args, bins):
    """Copies a table in all legs. The figures and the aims that were missed."""
    legs = [leg for leg in LEGS if leg in (args.legs.split(",") if args.legs else LEGS)]
    if not args.legs and not shutil.which("javac"):
        legs.remove("spark")
    scale = args.scale or ("0.1" if args.quick else "1")
    runs = args.runs or (1 if args.quick else 3)
    for venv in sorted({peers.LEGS[leg][1] for leg in legs if leg in peers.LEGS} - {"core"}):
        subprocess.run([os.path.join(LAB, "install.sh"), venv], check=True, stdout=sys.stderr)
    say(f"source at scale {scale} ...")
    source = source_of(scale)
    scratch = tempfile.mkdtemp(prefix="run-", dir=os.path.join(labenv.CACHE, "bench"))
    try:
        figures = alternate(legs, runs, bins, source, scratch)
        ours = {"copied", "spliced", "decoded"} <= set(legs)
        memory = memory_at(MEMORY_SCALES, bins, scratch) if ours and not args.quick and not args.no_memory else {}
        checks = aims(figures, memory)
        if any(verdict(figure, aim) == "FAIL" for _, figure, aim in checks) and not args.quick:
            say("an aim was missed: once more")
            figures = alternate(legs, runs, bins, source, scratch)
            checks = aims(figures, memory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(report(scale, runs, source, figures, checks))
    return {
        "scale": scale, "runs": runs, "rows": source["rows"], "source_bytes": source["bytes"],
        "zstd_level": ZSTD_LEVEL, "legs": figures, "memory_mb_by_scale": memory,
    }, checks
