#!/usr/bin/env python3
"""Speaks the protocol of the checker's program without a GPU; a candidate is a text file that says how it behaves."""

import json
import os
import random
import sys
import time
from pathlib import Path

role, options = sys.argv[1], sys.argv[2:]
if "--answers" in options:
    out, commands = os.fdopen(int(options[options.index("--answers") + 1]), "w"), sys.stdin
else:
    out = os.fdopen(os.open(options[options.index("--replies") + 1], os.O_WRONLY | os.O_CREAT), "w")
    commands = Path(options[options.index("--script") + 1]).read_text().splitlines()
behaviour, calls = "", 0
output = ""
INFO = {
    "gpu": "NVIDIA H200",
    "sm_count": 132,
    "clock_khz": 1980000,
    "memory_clock_khz": 3201000,
    "memory_bus_bits": 6144,
}


def timing(delay_us, count):
    time_us = {"reference": 900.0}.get(role, 1000.0)
    time_us *= random.uniform(0.99, 1.01) * count
    event = time_us * (0.5 if behaviour == "second stream" else 1.0)
    if behaviour == "too fast":
        time_us = event = 100.0 * count
    return {
        "span_us": time_us,
        "event_us": event,
        "wall_us": time_us + delay_us + 20,
        "host_us": 5.0,
        "stray": int(behaviour == "stray"),
        "wrong_rows": 7 * (behaviour == "stale" and calls > 20),
        "activities": ["foreign_kernel" if behaviour == "foreign" else "kernel"],
        "activity_count": 1,
    }


for line in commands:
    command, *words = line.split()
    given = dict(word.split("=", 1) for word in words)
    answer = {"done": True}
    if command == "hello":
        answer = INFO
    elif command == "output":
        output = given["path"]
    elif command == "load":
        behaviour = Path(given["path"]).read_text().strip()
    elif command == "case":
        calls += 1
        if behaviour == "dies":
            sys.exit(0)
        if behaviour == "hangs":
            time.sleep(100)
        if behaviour == "forges":
            out.write('{"nonce": "0", "inputs_changed": false, "guard_bytes": 0}\n')
            out.flush()
        answer = {"inputs_changed": behaviour == "overwrites", "guard_bytes": 2 * (behaviour == "spills")}
        bad = behaviour == "wrong" or (behaviour == "cached" and calls == 3)
        with Path(output).open("r+") as file:
            file.write("bad " if bad else "good")
    elif command == "judge":
        with Path(output).open() as file:
            wrong = file.read(4) == "bad "
        answer = {
            "wrong": 3 * wrong,
            "unwritten": 0,
            "close": 0,
            "max_absolute_error": 0.5 if wrong else 0.001,
            "max_relative_error": 0.25 if wrong else 0.001,
            "reference_error": 1e-6,
            "first": [{"row": 1, "column": 2, "got": 3.0, "expected": 4.0}] * wrong,
        }
    elif command in ("time", "serve", "batch"):
        calls += 1
        answer = timing(int(given["delay_ns"]) * 1e-3, int(given.get("calls", 1)))
    out.write(json.dumps({"nonce": given["nonce"], **answer}) + "\n")
    out.flush()
