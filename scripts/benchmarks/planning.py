"""Planning a long range of a large table: metadata of 100,000 data files in 1,000 manifests and of 1,000 snapshots after it,
of which no data file exists. A planner reads metadata alone.

  net            the difference of the range's ends, as a mirror has it: one epoch
  per snapshot   the changes of every snapshot, as a changelog has it: 1,000 epochs
"""
import json
import os
import shutil
import subprocess
import tempfile

import measure
from measure import labenv, say

FILES, MANIFESTS, SNAPSHOTS = 100_000, 1_000, 1_000
SMALL = (1_000, 10, 20)


def source_of(bins, sizes):
    """The warehouse with a history of these sizes; made once."""
    folder = os.path.join(labenv.CACHE, "bench", "history-" + "-".join(map(str, sizes)))
    if not os.path.exists(f"{folder}/db/t/metadata/version-hint.text"):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([os.path.join(bins, "synthesised_history"), folder, *map(str, sizes)], check=True)
    return folder


def job(warehouse, folder, changes):
    return {
        "name": "bench",
        "source": {
            "table": "db.t",
            "catalog_properties": {"type": "hadoop", "warehouse": warehouse},
            "after_snapshot": 1,
            "changes": changes,
        },
        "target": {
            "table": "bench.log",
            "catalog_properties": {"type": "hadoop", "warehouse": f"{folder}/out"},
            "mode": "append",
            "change_type_column": "change",
        },
    }


def run(args, bins):
    """Plans the range both ways; what was read, and what it cost."""
    sizes = SMALL if args.quick else (FILES, MANIFESTS, SNAPSHOTS)
    say(f"a history of {sizes[2]:,} snapshots after {sizes[0]:,} files in {sizes[1]:,} manifests ...")
    warehouse = source_of(bins, sizes)
    legs, checks = {}, []
    print(f"Planning {sizes[2]:,} snapshots of a table of {sizes[0]:,} data files in {sizes[1]:,} manifests\n")
    print(f"| {'changes':12} | {'wall s':>7} | {'CPU s':>7} | {'peak MB':>7} | {'epochs':>6} | {'lists':>6} | {'manifests':>9} | {'files':>6} |")
    print(f"|{'-' * 14}|{'-' * 9}|{'-' * 9}|{'-' * 9}|{'-' * 8}|{'-' * 8}|{'-' * 11}|{'-' * 8}|")
    for changes in ("net", "per_snapshot"):
        folder = tempfile.mkdtemp(prefix="plan-", dir=os.path.join(labenv.CACHE, "bench"))
        try:
            with open(f"{folder}/job.yaml", "w", encoding="utf-8") as f:
                json.dump(job(warehouse, folder, changes), f)
            command = [os.path.join(bins, "iceferry"), "plan", f"{folder}/job.yaml", "--output", "json"]
            figures, output = measure.run(f"plan {changes}", command, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        plans = [epoch["plan"] for epoch in json.loads(output)["epochs"]]
        total = {key: sum(plan[key] for plan in plans) for key in ("manifest_lists_read", "manifests_opened")}
        files = sum(plan["files_added"] + plan["files_removed"] for plan in plans)
        legs[changes] = {**figures, **total, "epochs": len(plans), "files": files}
        print(
            f"| {changes:12} | {figures['wall_s']:7.2f} | {figures['cpu_s']:7.2f} | {figures['memory_mb']:7.0f} | {len(plans):6} |"
            f" {total['manifest_lists_read']:6} | {total['manifests_opened']:9} | {files:6} |"
        )
        # One new manifest for each snapshot, and for every tenth the one that it rewrote, before and after.
        changed = sizes[2] + 2 * (sizes[2] // 10)
        checks.append((f"manifests opened, {changes}", total["manifests_opened"], (changed,)))
    print()
    print("\n".join(measure.check_lines(checks)) + "\n")
    return {"files": sizes[0], "manifests": sizes[1], "snapshots": sizes[2], "legs": legs}, checks
