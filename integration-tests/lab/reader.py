#!/usr/bin/env python3
"""Reads many Iceberg tables in one process, so that a test pays for an engine's start once. Not called by hand.

usage: reader.py --venv core|side|spark
One request a line on stdin, one answer a line on stdout, in order, both JSON; the end of stdin ends the process.
  {"op": "rows", "engine": E, "metadata": FILE, "snapshot": ID?, "where": SQL?}   -> {"lines": [canonical line, ...]}
  {"op": "rows", "engine": "pyiceberg", "catalog": {...}, "table": T}   the same, through the catalog of these properties
  {"op": "digest", "metadata": FILE, "snapshot": ID?}                -> {"rows": N, "digest": "..."}   (DuckDB; any row order)
  {"op": "files", "metadata": FILE}                                  -> {"files": [...]}   (pyiceberg)
An answer to a request that failed is {"error": "..."}; the process goes on. Snapshot ids may be strings.
"files" lists what the manifests of all snapshots hold: path, content (data, position-deletes, equality-deletes), the
snapshots that show it, and whether the current one does.
"""
import argparse
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import canon  # noqa: E402
import labenv  # noqa: E402
import readback  # noqa: E402

CONTENT = ("data", "position-deletes", "equality-deletes")


class Reader:
    def __init__(self):
        self.duck = None

    def duckdb(self):
        if self.duck is None:
            self.duck = readback.duck_connection()
        return self.duck

    def rows(self, request):
        if "catalog" in request:
            from pyiceberg.catalog import load_catalog

            table = load_catalog("iceferry", **request["catalog"]).load_table(request["table"])
            schema = canon.schema_of(json.loads(table.metadata.model_dump_json(by_alias=True)))
            return {"lines": canon.lines(table.scan().to_arrow().to_pylist(), schema)}
        location, snapshot = place(request)
        if request["engine"] != "duckdb":
            return {"lines": readback.canonical(request["engine"], location, snapshot, request.get("where"))}
        where = f" where {request['where']}" if request.get("where") else ""
        found = self.duckdb().execute(f"select * from {readback.duck_scan(location, snapshot)}{where}").to_arrow_table()
        return {"lines": canon.lines(found.to_pylist(), canon.schema_of(readback.load(location), snapshot))}

    def digest(self, request):
        """A count and a sum of row hashes: equal for equal bags of rows, whatever their order."""
        scan = readback.duck_scan(*place(request))
        found = self.duckdb().execute(f"select count(*), sum(hash(t)::hugeint)::varchar from {scan} t").fetchone()
        return {"rows": found[0], "digest": found[1] or "0"}

    def files(self, request):
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(place(request)[0])
        current = table.current_snapshot()
        found = {}
        for snapshot in table.snapshots():
            for manifest in snapshot.manifests(table.io):
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    path = readback.plain(entry.data_file.file_path)
                    listed = found.setdefault(
                        path,
                        {
                            "path": path, "content": CONTENT[int(entry.data_file.content)], "current": False,
                            "records": entry.data_file.record_count, "snapshots": [],
                        },
                    )
                    listed["snapshots"].append(str(snapshot.snapshot_id))
                    if current is not None and snapshot.snapshot_id == current.snapshot_id:
                        listed["current"] = True
        return {"files": sorted(found.values(), key=lambda f: f["path"])}

    def answer(self, request):
        try:
            return {"rows": self.rows, "digest": self.digest, "files": self.files}[request.get("op", "rows")](request)
        except Exception as error:  # an engine may fail in any way
            return {"error": f"{type(error).__name__}: {error}"}


def place(request):
    snapshot = request.get("snapshot")
    return readback.plain(request["metadata"]), None if snapshot is None else int(snapshot)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", required=True, choices=sorted(set(readback.VENV.values())))
    labenv.continue_in(parser.parse_args().venv)
    readback.utc()
    # answers own stdout: whatever a library or a JVM prints goes to stderr
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    reader = Reader()
    for line in sys.stdin:
        answers.write(json.dumps(reader.answer(json.loads(line)), ensure_ascii=False) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
