"""Where the kgen command and its library are: what $KGEN and $KGEN_LIB name, or in out/ or build/release/."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREES = (ROOT / "out", ROOT / "build/release")


def _find(what, variable, places):
    """The first that is there; without one a program ends, by a line that says so."""
    named = os.environ.get(variable)
    for place in [named] if named else places:
        if os.path.isfile(place):
            return str(place)
    where = f"not at {named}" if named else "not in out/ or build/release/"
    sys.exit(f"{what}: {where}; build it (./run setup), or name it by ${variable}")


def command():
    return _find("kgen", "KGEN", [tree / "bin/kgen" for tree in TREES])


def library():
    return _find("libkgen.so", "KGEN_LIB", [tree / "lib" / name for tree in TREES for name in ("libkgen.so", "libkgen.so.0.1")])
