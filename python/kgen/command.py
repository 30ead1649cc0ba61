"""The command `kgen` of the wheel."""
import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin" / "kgen"
    os.execv(program, [str(program), *sys.argv[1:]])
