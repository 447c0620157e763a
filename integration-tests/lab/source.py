#!/usr/bin/env python3
"""Makes a source table of any size in an SQL catalog of its own, with pyiceberg, and damages it on request.

usage: source.py make DIR [--files N] [--rows N]     table db.t in DIR/catalog.db: N files of N rows, an append each;
                                                     then a delete and an append that gives some keys new values
       source.py append DIR [--rows N]               one more append
       source.py alter DIR --table NAME              another table of such a catalog: row 11 gets another amount, row 7
                                                     goes, and a row comes
       source.py prunable DIR [--rows N] [--without-ids]
                                                     table db.t: 3 files of N rows with many row groups and pages, a page index
                                                     and bloom filters; without field ids they have a name mapping
       source.py damage DIR KIND                     truncated | manifest-gone | orc | unsupported-type: the newest data
                                                     file is cut in half; its manifest is removed; an ORC file is
                                                     added; a column of a type that few know is added to the schema
Prints one JSON object: uri, warehouse, table, metadata, and the snapshot ids "full" (after the first appends) and "last".
The columns are id long (unique), name string, amount decimal(12,2), day date. Needs: install.sh core.
"""
import argparse
import datetime
import decimal
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import labenv  # noqa: E402
import readback  # noqa: E402

TABLE = "db.t"


def catalog(folder):
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("iceferry", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/warehouse")


def rows(start, count, mark):
    import pyarrow as pa

    ids = range(start, start + count)
    first = datetime.date(2026, 1, 1)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"{mark}{i}" for i in ids], pa.string()),
            "amount": pa.array([decimal.Decimal(i) / 100 for i in ids], pa.decimal128(12, 2)),
            "day": pa.array([first + datetime.timedelta(days=i % 365) for i in ids], pa.date32()),
        }
    )


def make(folder, files, count):
    os.makedirs(f"{folder}/warehouse")
    known = catalog(folder)
    known.create_namespace("db")
    table = known.create_table(TABLE, rows(0, 0, "").schema)
    for number in range(files):
        table.append(rows(number * count, count, "n"))
    full = table.current_snapshot().snapshot_id
    table.delete(f"id < {count // 2}")
    table.append(rows(0, count // 4, "back"))
    return full


def prunable(folder, count, without_ids):
    import pyarrow as pa
    import pyarrow.parquet as pq

    os.makedirs(f"{folder}/warehouse")
    known = catalog(folder)
    known.create_namespace("db")
    table = known.create_table(TABLE, rows(0, 0, "").schema)
    paths = []
    for number in range(3):
        of_file = rows(number * count, count, "n")
        if not without_ids:
            ids = {field.name: field.field_id for field in table.schema().fields}
            fields = [field.with_metadata({"PARQUET:field_id": str(ids[field.name])}) for field in of_file.schema]
            of_file = of_file.cast(pa.schema(fields))
        paths.append(f"{folder}/warehouse/prunable-{number}.parquet")
        pq.write_table(
            of_file, paths[-1], compression="zstd", row_group_size=count // 4, write_page_index=True, max_rows_per_page=500,
            data_page_size=4096, bloom_filter_options={"name": {"ndv": count // 4, "fpp": 0.01}},
        )
    if without_ids:
        table.add_files(paths)
        return
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for path in paths:
            append.append_data_file(described(table, path))


def described(table, path):
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan, data_file_statistics_from_parquet_metadata, parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=pq.read_metadata(path), stats_columns=compute_statistics_plan(table.schema(), {}),
        parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path=path, file_format=FileFormat.PARQUET, partition=Record(),
        file_size_in_bytes=os.path.getsize(path), sort_order_id=None, spec_id=0, equality_ids=None, key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def alter(folder, name):
    table = catalog(folder).load_table(name)
    table.delete("id == 7")
    table.delete("id == 11")
    changed = rows(11, 1, "n")
    amount = changed.schema.get_field_index("amount")
    other = rows(1234, 1, "n").column("amount")
    changed = changed.set_column(amount, changed.schema.field(amount), other)
    table.append(changed)
    table.append(rows(30_000_000, 1, "extra"))


def damage(folder, kind):
    table = catalog(folder).load_table(TABLE)
    if kind == "orc":
        return add_orc(table, folder)
    if kind == "unsupported-type":
        return add_variant(readback.plain(table.metadata_location))
    newest = table.current_snapshot()
    manifest = next(m for m in newest.manifests(table.io) if m.added_snapshot_id == newest.snapshot_id)
    if kind == "manifest-gone":
        return os.remove(readback.plain(manifest.manifest_path))
    data = readback.plain(manifest.fetch_manifest_entry(table.io)[0].data_file.file_path)
    os.truncate(data, os.path.getsize(data) // 2)


def add_orc(table, folder):
    import pyarrow.orc
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    path = f"{folder}/warehouse/extra.orc"
    pyarrow.orc.write_table(rows(10_000_000, 10, "orc"), path)
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=path, file_format=FileFormat.ORC, partition=Record(),
        record_count=10, file_size_in_bytes=os.path.getsize(path), sort_order_id=None, spec_id=0,
        equality_ids=None, key_metadata=None, column_sizes={}, value_counts={}, null_value_counts={},
        nan_value_counts={}, lower_bounds={}, upper_bounds={}, split_offsets=None,
    )
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)


def add_variant(path):
    with open(path, encoding="utf-8") as f:
        metadata = json.load(f)
    metadata["format-version"] = 3
    metadata["next-row-id"] = 0
    for snapshot in metadata["snapshots"]:
        snapshot["first-row-id"] = metadata["next-row-id"]
        snapshot["added-rows"] = int(snapshot["summary"].get("added-records", 0))
        metadata["next-row-id"] += snapshot["added-rows"]
    metadata["last-column-id"] += 1
    field = {"id": metadata["last-column-id"], "name": "shape", "required": False, "type": "variant"}
    for schema in metadata["schemas"]:
        schema["fields"].append(field)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(metadata, f)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("make", "append", "alter", "prunable", "damage"):
        sub = verbs.add_parser(verb)
        sub.add_argument("dir")
        if verb == "make":
            sub.add_argument("--files", type=int, default=4)
        if verb == "prunable":
            sub.add_argument("--without-ids", action="store_true")
        if verb == "alter":
            sub.add_argument("--table", required=True)
        elif verb == "damage":
            sub.add_argument("kind", choices=("truncated", "manifest-gone", "orc", "unsupported-type"))
        else:
            sub.add_argument("--rows", type=int, default=1000)
    args = parser.parse_args()
    labenv.continue_in("core")
    folder = os.path.abspath(args.dir)
    if args.verb == "alter":
        return alter(folder, args.table)
    full = None
    if args.verb == "make":
        full = make(folder, args.files, args.rows)
    elif args.verb == "append":
        catalog(folder).load_table(TABLE).append(rows(20_000_000, args.rows, "more"))
    elif args.verb == "prunable":
        prunable(folder, args.rows, args.without_ids)
    else:
        damage(folder, args.kind)
    location = readback.plain(readback.sqlite_metadata(f"{folder}/catalog.db", TABLE))
    last = readback.load(location)["current-snapshot-id"]
    print(
        json.dumps(
            {
                "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse", "table": TABLE,
                "metadata": location, "full": None if full is None else str(full), "last": str(last),
            }
        )
    )


if __name__ == "__main__":
    main()
