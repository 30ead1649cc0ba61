#!/usr/bin/env python3
"""A picture of a terminal session, of what the commands print here and now: docs/recording.svg of README.md.

usage: recording.py KGEN OUT.svg [COMMAND ...]; without commands those below. They run one after the other, in a fresh
folder with an empty cache, by the name kgen. A command that fails makes no picture.
"""

import html
import os
import subprocess
import sys
import tempfile

SESSION = [
    "kgen plan plan/configs/Llama-3.1-70B-Instruct.json --tp 8 --kv-dtype fp8 --spec-width 3 --prompts none -o llama.manifest",
    "kgen build --manifest llama.manifest",
    "kgen verify --manifest llama.manifest",
    "kgen pack -o llama.kgb",
    "kgen verify --deep llama.kgb",
    "kgen build --manifest llama.manifest --quiet",
]
FONT, CELL, LINE, MARGIN = 12, 7.25, 17, 14  # pixels; a cell is 0.6 of a font, and some
COLOURS = {"$": "#7ee787", " ": "#e6edf3"}


def record(kgen, commands):
    """Lines of the session, each with what it is: a command or what one printed."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(root, "plan"), os.path.join(folder, "plan"))
        path = os.path.dirname(os.path.abspath(kgen)) + ":" + os.environ["PATH"]
        there = {**os.environ, "PATH": path, "KGEN_CACHE_DIR": "cache", "KGEN_TUNING": "", "KGEN_CACHE_LAYERS": ""}
        for command in commands:
            yield "$", "$ " + command
            done = subprocess.run(command, shell=True, cwd=folder, env=there, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                sys.exit(f"recording: error: exit code {done.returncode}: {command}\n{done.stdout}")
            yield from ((" ", line) for line in done.stdout.rstrip("\n").split("\n"))
            yield " ", ""


def draw(lines):
    width = round(max(len(line) for _, line in lines) * CELL + 2 * MARGIN)
    height = len(lines) * LINE + 2 * MARGIN
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    yield '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>'
    yield f'<g font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="{FONT}">'
    for i, (kind, line) in enumerate(lines):
        if line:
            yield (f'<text x="{MARGIN}" y="{MARGIN + (i + 0.75) * LINE:g}" fill="{COLOURS[kind]}" '
                   f'xml:space="preserve">{html.escape(line, quote=False)}</text>')
    yield "</g></svg>"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    lines = list(record(sys.argv[1], sys.argv[3:] or SESSION))[:-1]
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(draw(lines)) + "\n")


main()
