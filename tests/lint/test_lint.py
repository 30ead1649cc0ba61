#!/usr/bin/env python3
"""Breaks each rule of lint.py once in a scratch tree: every one must be caught.

With a formatter (see lint.sh) its rule too; lint.sh without one must fail.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

CONVENTIONS = """# Conventions
| folder | what it is | sees | libraries |
|---|---|---|---|
| `include/` | headers | | |
| `gen/` | text | | jansson |
| `cache/` | entries | | libsodium |
| `runtime/` | launches | `gen/` `cache/` | |
| `cli/` | command | `runtime/` | |
| `examples/` | programs | | |
| `templates/` | kernels | | |
"""


def guarded(name, text):
    return f"/* {name} */\n#ifndef {name}\n#define {name}\n{text}#endif\n"


CLEAN = {
    "CONVENTIONS.md": CONVENTIONS,
    "README.md": "```c\nint b;\n```\nSee [the rules](CONVENTIONS.md), gen/text.h and `kgen_good`.\n",
    "include/kgen/api.h": guarded("KGEN_API_H", "#include <stddef.h>\nint kgen_good(int a);\n"),
    "include/kgen/rows.def": "KGEN_ROW(" + "wide, " * 30 + ")\n",
    "gen/text.h": guarded("KGEN_GEN_TEXT_H", "#include <kgen/api.h>\n#include <jansson.h>\nint kgen__inside(int a);\n"),
    "gen/text.c": '/* Text. */\n#include "text.h"\n\nint kgen__inside(int a) { return kgen_good(a); }\n',
    "cache/entry.h": guarded("KGEN_CACHE_ENTRY_H", "#include <sodium.h>\n"),
    "runtime/launch.h": guarded("KGEN_RUNTIME_LAUNCH_H", '#include <dlfcn.h>\n#include "gen/text.h"\n'),
    "examples/decode.c": "/* A program. */\nint b;\n",
    "templates/a.hip": "int a;\n",
}
CALLS = "    a();\n" * 60

# what, the text that lint must print, file, content
BROKEN = (
    ("HIP header", "gen/a.c:2: <hip/hip_runtime.h> is not allowed", "gen/a.c", "/* */\n#include <hip/hip_runtime.h>\n"),
    ("CUDA header", "runtime/a.c:3: <cuda.h> is not allowed", "runtime/a.c", "/* */\n\n  # include <cuda.h>\n"),
    ("HSA header of the API", "include/kgen/a.h:4: <hsa/hsa.h>", "include/kgen/a.h",
     guarded("KGEN_A_H", "#include <hsa/hsa.h>\n")),
    ("library of another folder", "cache/a.c:2: <jansson.h> is not allowed", "cache/a.c", "/* */\n#include <jansson.h>\n"),
    ("local file that is not there", '"none.h" is not a file', "gen/a.c", '/* */\n#include "none.h"\n'),
    ("gen sees runtime", 'gen/ may not include "runtime/launch.h"', "gen/a.c", '/* */\n#include "runtime/launch.h"\n'),
    ("include by ..", 'write "cache/entry.h"', "runtime/a.c", '/* */\n#include "../cache/entry.h"\n'),
    ("own file by its path", "by its name alone", "gen/a.c", '/* */\n#include "gen/text.h"\n'),
    ("cli sees gen", 'cli/ may not include "gen/text.h"', "cli/a.c", '/* */\n#include "gen/text.h"\n'),
    ("include of a macro", "#include of a macro", "gen/a.c", "/* */\n#include GPU_HEADER\n"),
    ("headers of families elsewhere", "headers of families in another folder: gen/name##_rows.h", "cli/a.c",
     "/* */\n#define KGEN_FAMILY_HEADER(name) KGEN_QUOTED(gen/name##_rows.h)\n"),
    ("the caller's environment, whoever runs", "gen/a.c:2: getenv: secure_getenv", "gen/a.c", '/* */\nchar *a(void) { return getenv("A"); }\n'),
    ("uthash that exits", "gen/a.c:2: uthash without HASH_NONFATAL_OOM", "gen/a.c", "/* */\n#include <uthash.h>\n"),
    ("folder without a row", "attic/ has no row", "attic/a.c", "/* */\n"),
    ("no table of folders", "no table of folders", "CONVENTIONS.md", "# Conventions\n"),
    ("one name, two files", "has the name of include/kgen/api.h", "runtime/api.h", guarded("KGEN_RUNTIME_API_H", "")),
    ("file without a head", "gen/a.c:1: no comment that says", "gen/a.c", "int a;\n"),
    ("script without a head", "bench/a.py:1: no comment that says", "bench/a.py", "a = 1\n"),
    ("guard of another name", "no guard KGEN_GEN_A_H", "gen/a.h", guarded("KGEN_OLD_A_H", "")),
    ("101 columns", "gen/a.c:2: 101 columns", "gen/a.c", "/* */\n" + "a" * 100 + ";\n"),
    ("function of 62 lines", "cache/a.c:2: a function of 62 lines", "cache/a.c",
     f"/* */\nstatic void f(void) {{\n{CALLS}}}\n"),
    ("long signature", "cache/a.c:2: a function of 63 lines", "cache/a.c",
     f"/* */\nstatic void f(int a,\n              int b) {{\n{CALLS}}}\n"),
    ("long function after a table", "cache/a.c:5: a function of 62 lines", "cache/a.c",
     f"/* */\nstatic const int t[] = {{\n    1,\n}};\nvoid f(void) {{\n{CALLS}}}\n"),
    ("long kernel", "templates/b.hip:1: a function of 62 lines", "templates/b.hip", f"void f() {{\n{CALLS}}}\n"),
    ("kgen_ outside include", "gen/a.c:2: kgen_bad: not of include/", "gen/a.c", "/* */\nint kgen_bad(int a) { return a; }\n"),
    ("type kgen_ outside include", "kgen_bad: not of include/", "gen/a.c", "/* */\ntypedef struct a {\n    int b;\n} kgen_bad;\n"),
    ("macro KGEN_ outside include", "KGEN_BAD: not of include/", "gen/a.c", "/* */\n#define KGEN_BAD 1\n"),
    ("kgen__ in the API", "kgen__bad: private, in a public header", "include/kgen/a.h",
     guarded("KGEN_A_H", "int kgen__bad;\n")),
    ("kgen__ that is exported", "kgen__bad: exported", "gen/a.h",
     guarded("KGEN_GEN_A_H", "KGEN_API const int *\nkgen__bad(int a);\n")),
    ("name that is gone, in a comment", "gen/a.c:2: kgen_gone is no name", "gen/a.c", "/* Like\n * kgen_gone. */\n"),
    ("name that is gone, in a document", "docs/a.md:2: KGEN_GONE is no name", "docs/a.md", "One\n`KGEN_GONE`\n"),
    ("name that is gone, in the manual", "KGEN_GONE is no name", "docs/a.1", ".B KGEN_GONE\n"),
    ("name that is gone, in a script", "kgen_gone is no name", "bench/a.py", '"""As kgen_gone does."""\n'),
    ("file that is gone, in a comment", "gen/a.c:1: gone.h is no file", "gen/a.c", "/* See gone.h. */\n"),
    ("file that is gone, in a document", "gen/gone.c is no file", "docs/a.md", "See `gen/gone.c`.\n"),
    ("script that is gone", "bench/gone.py is no file", "bench/a.py", '"""Like bench/gone.py."""\n'),
    ("table without a heading", "docs/a.md:4: a row of a table", "docs/a.md", "| a |\n|---|\n\n| b |\n"),
    ("link to nothing", "link to gone, which is not there", "docs/a.md", "[a](gone)\n"),
    ("program of README.md", "its C program is not a part", "README.md", "```c\nint a;\n```\n"),
)
# what, file, content: no finding
FINE = (
    ("reason to be long", "cache/a.c", f"/* */\n/* long: a table of calls */\nvoid f(void) {{\n{CALLS}}}\n"),
    ("wide table", "cache/a.c", "/* */\n/* clang-format off */\n" + "a" * 120 + ";\n/* clang-format on */\n"),
    ("names with a gap", "docs/a.md", "`kgen_goo*`, `gen/<family>.c`, `<family>_launch.c`\n"),
    ("file beside the document", "docs/a.md", "../gen/text.c and text.c\n"),
)

failed = 0


def tree_with(folder, path, content):
    for name, text in {**CLEAN, path: content}.items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def lint(path, content, command, **environment):
    """(exit code, output) over a clean tree with one more file."""
    with tempfile.TemporaryDirectory() as folder:
        tree_with(folder, path, content)
        done = subprocess.run(command + [folder], capture_output=True, text=True, env={**os.environ, **environment})
        return done.returncode, done.stdout + done.stderr


def expect(what, words, code, answer):
    global failed
    good = answer[0] == code and words in answer[1]
    print(f"{'caught' if good else 'NOT caught'}: {what}" + ("" if good else f" (exit code {answer[0]})\n{answer[1]}"))
    failed += not good


def main():
    text = [sys.executable, os.path.join(HERE, "lint.py")]
    whole = ["bash", os.path.join(HERE, "lint.sh")]
    formatter = os.environ.get("KGEN_CLANG_FORMAT") or os.path.join(ROOT, "build/tools/bin/clang-format")
    expect("nothing in a clean tree", "nothing to say", 0, lint("gen/a.c", "/* */\n", text))
    for what, words, path, content in BROKEN:
        expect(what, words, 1, lint(path, content, text))
    for what, path, content in FINE:
        expect(f"nothing of a {what}", "nothing to say", 0, lint(path, content, text))
    expect("no formatter", "no clang-format", 1, lint("gen/a.c", "/* */\n", whole, KGEN_CLANG_FORMAT="/none"))
    if os.access(formatter, os.X_OK):
        for path in "gen/a.c", "templates/b.hip":
            answer = lint(path, "/* */\nint  a;\n", whole, KGEN_CLANG_FORMAT=formatter)
            expect(f"format of {path}", f"{path}:2: clang-format", 1, answer)
    sys.exit(failed > 0)


main()
