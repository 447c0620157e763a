"""One process, measured: time on the clock, CPU time of it and its children, largest resident set. Imported."""
import os
import socket
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAB = os.path.join(ROOT, "integration-tests", "lab")
sys.dont_write_bytecode = True
sys.path.insert(0, LAB)
import labenv  # noqa: E402

THREADS = 2
LIMIT_S = 900


def say(text):
    print(text, file=sys.stderr, flush=True)


def build():
    """Release binaries; their folder."""
    target = os.environ.setdefault("CARGO_TARGET_DIR", os.path.join(labenv.CACHE, "target"))
    command = ["cargo", "build", "--release", "--locked", "--workspace", "--bins"]
    subprocess.run(command, cwd=ROOT, check=True)
    return os.path.join(target, "release")


def run(what, command, folder):
    """Figures of a command, and what it printed. Ends the benchmark when the command fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "ARROW_NUM_THREADS": str(THREADS)}
    begin = time.perf_counter()
    with open(f"{folder}/log", "wb") as log, open(f"{folder}/printed", "wb") as printed:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=printed, stderr=log, env=environment)
        limit = threading.Timer(LIMIT_S, child.kill)
        limit.start()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begin
        limit.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        for name in ("log", "printed"):
            with open(f"{folder}/{name}", encoding="utf-8", errors="replace") as text:
                sys.stderr.write(text.read()[-4000:])
        print(f"error: {what} ended with {child.returncode}", file=sys.stderr)
        sys.exit(2)
    with open(f"{folder}/printed", encoding="utf-8", errors="replace") as text:
        output = text.read()
    return {"wall_s": wall, "cpu_s": usage.ru_utime + usage.ru_stime, "memory_mb": usage.ru_maxrss / 1024}, output


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def verdict(figure, aim):
    """An aim is (most,) or (None, least)."""
    if aim is None:
        return "-"
    most, least = (*aim, None)[:2]
    return "PASS" if (most is None or figure <= most) and (least is None or figure >= least) else "FAIL"


def check_lines(checks):
    lines = []
    for what, figure, aim in checks:
        wanted = ""
        if aim is not None:
            most, least = (*aim, None)[:2]
            wanted = f"aim: at most {most:g}" if most is not None else f"aim: at least {least:g}"
        lines.append(f"{verdict(figure, aim):5}{what:44}{figure:12.2f}   {wanted}".rstrip())
    return lines
