#!/usr/bin/env python3
"""Holds the write lock of a SQLite database, so that a test can stop a commit in the middle.

usage: hold.py DATABASE       says "held" on standard output, and lets go when standard input ends
"""
import sqlite3
import sys


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("begin immediate")
    print("held", flush=True)
    sys.stdin.read()
    connection.execute("rollback")


if __name__ == "__main__":
    main()
