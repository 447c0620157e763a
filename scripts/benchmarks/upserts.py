"""Following a table that a streaming writer upserts into: every commit has new rows and an equality delete file with their
keys. A mirror goes on commit by commit, and what it reads for a commit must not grow with the table.

  read MB      bytes of data and delete files that the run read
  planned KB   bytes of manifests and manifest lists that planning read
"""
import json
import os
import shutil
import statistics
import subprocess
import tempfile

import measure
from measure import THREADS, labenv, say

ROWS, FILES, COMMITS, KEYS = 6_000_000, 100, 50, 1_000
SMALL = (60_000, 10, 6, 100)


def source_of(bins, sizes):
    folder = os.path.join(labenv.CACHE, "bench", "upserts-" + "-".join(map(str, sizes)))
    if not os.path.exists(f"{folder}/db/t/metadata/version-hint.text"):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([os.path.join(bins, "upsert_history"), folder, *map(str, sizes)], check=True)
    return folder


def job(warehouse, folder, through):
    return {
        "name": "bench",
        "source": {
            "table": "db.t",
            "catalog_properties": {"type": "hadoop", "warehouse": warehouse},
            "to_snapshot": through,
        },
        "target": {
            "table": "bench.t",
            "catalog_properties": {"type": "hadoop", "warehouse": f"{folder}/out"},
            "mode": "merge-on-read",
            "equality_columns": ["id"],
        },
    }


def run(args, bins):
    """Carries the first snapshot, then each commit in a run of its own."""
    sizes = SMALL if args.quick else (ROWS, FILES, COMMITS, KEYS)
    say(f"{sizes[0]:,} rows in {sizes[1]} files, and {sizes[2]} commits of {sizes[3]:,} keys ...")
    warehouse = source_of(bins, sizes)
    iceferry = os.path.join(bins, "iceferry")
    folder = tempfile.mkdtemp(prefix="upserts-", dir=os.path.join(labenv.CACHE, "bench"))
    epochs = []
    try:
        for through in range(1, sizes[2] + 2):
            with open(f"{folder}/job.yaml", "w", encoding="utf-8") as f:
                json.dump(job(warehouse, folder, through), f)
            plan = json.loads(subprocess.run([iceferry, "plan", f"{folder}/job.yaml", "--output", "json"], check=True, capture_output=True).stdout)
            command = [iceferry, "run", f"{folder}/job.yaml", "--output", "json", "--slots", str(THREADS)]
            figures, printed = measure.run(f"commit {through}", command, folder)
            rows = json.loads(printed)["epochs"][0]["rows"]
            planned = plan["epochs"][0]["plan"]["metadata_bytes_read"]
            epochs.append({**figures, "bytes_read": rows["bytes_read"], "planned_bytes": planned, "inserted": rows["inserted"], "deleted": rows["deleted"]})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    first, upserts = epochs[0], epochs[1:]
    shown = sorted({0, 1, len(upserts) // 2, len(upserts) - 1})
    print(f"Following {len(upserts)} commits of {sizes[3]:,} upserts into {sizes[0]:,} rows in {sizes[1]} files\n")
    print(f"| {'commit':>8} | {'wall s':>7} | {'CPU s':>7} | {'peak MB':>7} | {'read MB':>8} | {'planned KB':>10} | {'rows':>9} |")
    print(f"|{'-' * 10}|{'-' * 9}|{'-' * 9}|{'-' * 9}|{'-' * 10}|{'-' * 12}|{'-' * 11}|")
    for name, f in [("backfill", first), *((str(at + 1), upserts[at]) for at in shown)]:
        print(
            f"| {name:>8} | {f['wall_s']:7.2f} | {f['cpu_s']:7.2f} | {f['memory_mb']:7.0f} | {f['bytes_read'] / 1e6:8.3f} |"
            f" {f['planned_bytes'] / 1e3:10.0f} | {f['inserted']:9,} |"
        )
    read = [f["bytes_read"] for f in upserts]
    early, late = statistics.mean(read[: len(read) // 5 or 1]), statistics.mean(read[-(len(read) // 5 or 1):])
    checks = [
        ("bytes read, last fifth / first fifth", late / early, (1.05,)),
        ("bytes read for a commit / the backfill's", max(read) / first["bytes_read"] if first["bytes_read"] else 0.0, None),
        ("planned bytes, last / first, KB more a commit", (upserts[-1]["planned_bytes"] - upserts[0]["planned_bytes"]) / 1e3 / len(upserts), None),
    ]
    print()
    print("\n".join(measure.check_lines(checks)))
    return {"rows": sizes[0], "files": sizes[1], "commits": sizes[2], "keys": sizes[3], "epochs": epochs}, checks
