#!/usr/bin/env python3
"""The rules of CONVENTIONS.md that can be read off the text; tests/lint/lint.sh adds the formatter.

usage: lint.py <repository root>; prints one line a finding, exit code 1 if there are any.
"""

import os
import re
import subprocess
import sys

C_NAMES = (".c", ".h", ".hip", ".def")
WIDTH = 100
LONGEST_FUNCTION = 60
# C and POSIX; what else stands in <> is a library, which the folder's row has to name.
LIBC = set("""assert.h cpuid.h ctype.h dirent.h dlfcn.h elf.h errno.h fcntl.h float.h fnmatch.h ftw.h getopt.h glob.h inttypes.h
limits.h link.h locale.h math.h poll.h pthread.h pwd.h sched.h semaphore.h setjmp.h signal.h spawn.h stdalign.h
linux/futex.h
stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h strings.h time.h unistd.h wordexp.h
sys/file.h sys/ioctl.h sys/mman.h sys/prctl.h sys/random.h sys/resource.h sys/stat.h sys/statfs.h sys/syscall.h sys/time.h
sys/types.h sys/uio.h sys/utsname.h sys/wait.h ucontext.h
sanitizer/asan_interface.h sanitizer/common_interface_defs.h""".split())
LIBRARIES = {"jansson": ("jansson.h",), "libsodium": ("sodium.h",), "zstd": ("zstd.h", "zstd_errors.h"),
             "msgpack-c": ("msgpack.h",), "curl": ("curl/curl.h",), "uthash": ("uthash.h", "utarray.h", "utlist.h"), "xxhash": ("xxhash.h",), "cmocka": ("cmocka.h",),
             "python": ("Python.h",)}

TOKENS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
NAME = re.compile(r"\b(?:kgen|KGEN)_+[A-Za-z]\w*")
FILE_NAME = re.compile(r"(?<![\w./<>*$-])(?:[\w.-]+/)*[\w.-]+\.(?:c|h|hip|def|py|sh|md|cmake)(?![\w*<(/-])")
FOREIGN = {"amd_comgr.h"}  # files that are spoken of and are others'


class Tree:
    """The files of a repository, read once."""

    def __init__(self, root):
        self.root = root
        self.paths = sorted(listed(root))
        self.text = {path: read(os.path.join(root, path)) for path in self.paths if is_text(path)}
        self.findings = []

    def find(self, path, line, message):
        self.findings.append(f"{path}:{line}: {message}" if line else f"{path}: {message}")

    def named(self, *endings):
        return [path for path in self.text if path.endswith(endings)]


def listed(root):
    """Files that git tracks or would; of a tree that is no repository, all."""
    command = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"]
    if os.path.exists(os.path.join(root, ".git")):
        names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
        return {name for name in names if name and os.path.isfile(os.path.join(root, name))}
    found = (os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names)
    return {path for path in found if not path.startswith("build/")}


def is_text(path):
    return not path.endswith((".png", ".bin", ".svg", ".json", ".jsonl"))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def line_at(text, offset):
    return text.count("\n", 0, offset) + 1


def blank(piece):
    return re.sub(r"[^\n]", " ", piece)


def code_of(text):
    """C without comments and strings, every line where it was."""
    return TOKENS.sub(lambda m: blank(m[0]), text)


def comments_of(text):
    """(offset, text) of every C comment."""
    return [(m.start(), m[0]) for m in TOKENS.finditer(text) if m[0][0] == "/"]


# ---- folders: the table of CONVENTIONS.md ------------------------------------------------------

def folder_rules(tree):
    """folder -> (folders, libraries) that it may include, of rows `| folder | what | sees | libraries |`."""
    rules = {}
    text = tree.text.get("CONVENTIONS.md", "")
    for cells in (line.strip()[1:-1].split("|") for line in text.split("\n") if line.startswith("| `")):
        folder = re.fullmatch(r"\s*`([a-z_]+)/`\s*", cells[0])
        if folder and len(cells) == 4:
            sees = set(re.findall(r"`([a-z_]+)/`", cells[2]))
            rules[folder[1]] = (sees | {folder[1]}, set(re.findall(r"[a-z][\w-]+", cells[3])))
    if not rules:
        tree.find("CONVENTIONS.md", 0, "no table of folders: | `folder/` | what | sees | libraries |")
    return rules


def check_system(tree, path, line, header, libraries):
    if header in LIBC or header.startswith("kgen/"):
        return
    if not any(header in LIBRARIES[library] for library in libraries if library in LIBRARIES):
        tree.find(path, line, f"<{header}> is not allowed in {path.split('/')[0]}/ "
                              "(<kgen/...>, libc and the libraries of its row in CONVENTIONS.md)")


def check_local(tree, path, line, header, sees):
    """Files of the same folder by name, all others by their path from the root."""
    folder = os.path.dirname(path)
    here = f"{folder}/{header}"
    target = here if "/" not in header and here in tree.text else header
    if target not in tree.text:
        found = os.path.normpath(here)
        known = f'; write "{found}"' if found in tree.text else ""
        tree.find(path, line, f'"{header}" is not a file of this repository{known}')
    elif os.path.dirname(target) == folder and target == header:
        tree.find(path, line, f'"{header}": a file of the same folder is included by its name alone')
    elif target.split("/")[0] not in sees:
        tree.find(path, line, f'{path.split("/")[0]}/ may not include "{header}"')


# Rows of a family, which its file names; headers of every family, which the file that asks names.
MACRO_INCLUDES = re.compile(r".*: #include ARGS_DEF$|include/kgen/families.def: #include KGEN_FAMILY_HEADER\(\w+\)$")


def check_includes(tree):
    rules = folder_rules(tree)
    for path in tree.named(*C_NAMES):
        folder = path.split("/")[0]
        if folder == "templates":
            continue  # no headers but templates/kg, which the flattener looks up
        if folder not in rules:
            tree.find(path, 0, f"{folder}/ has no row in CONVENTIONS.md")
            continue
        for number, line in enumerate(tree.text[path].split("\n"), 1):
            found = re.match(r'\s*#\s*include\s*([<"]?)([^>"]*)', line)
            if found and found[1] == "<":
                check_system(tree, path, number, found[2], rules[folder][1])
            elif found and found[1]:
                check_local(tree, path, number, found[2], rules[folder][0])
            elif found and not MACRO_INCLUDES.match(f"{path}: {line.strip()}"):
                tree.find(path, number, "#include of a macro")
            family = re.match(r"#define KGEN_FAMILY_HEADER\(name\) KGEN_QUOTED\((.*)\)$", line)
            if family and os.path.dirname(family[1]) not in ("", os.path.dirname(path)):
                tree.find(path, number, f"headers of families in another folder: {family[1]}")


# ---- files ------------------------------------------------------------------------------------

def check_base_names(tree):
    """An editor's tab and a line of a stack trace name a file: no two have one name."""
    seen = {}
    for path in tree.named(*C_NAMES, ".py"):
        other = seen.setdefault(os.path.basename(path), path)
        if other != path:
            tree.find(path, 0, f"has the name of {other}")


def check_heads(tree):
    for path in tree.named(".c", ".py"):
        head = ("/*",) if path.endswith(".c") else ('"""', "#!/usr/bin/env python3\n\"\"\"")
        if not tree.text[path].startswith(head):
            tree.find(path, 1, "no comment that says what the file is")


def check_guards(tree):
    for path in tree.named(".h"):
        if path.startswith("templates/") or "ARGS_DEF" in tree.text[path]:
            continue  # each is flattened once; expands the rows of the file that includes it
        want = "KGEN_" + re.sub(r"\W", "_", path.removeprefix("include/kgen/")).upper()
        if f"#ifndef {want}\n#define {want}\n" not in tree.text[path]:
            tree.find(path, 0, f"no guard {want}")


def check_tables_of_uthash(tree):
    """Without memory uthash ends the process, unless its user says otherwise before the include."""
    for path in tree.named(".c", ".h"):
        before, found, _ = tree.text[path].partition("#include <uthash.h>")
        if found and "#define HASH_NONFATAL_OOM 1" not in before:
            tree.find(path, before.count("\n") + 1, "uthash without HASH_NONFATAL_OOM")


def check_environment(tree):
    """A library may be in a program that runs with more rights than its caller."""
    for path in tree.named(".c"):
        if path.startswith(("cli/", "examples/", "tests/")):
            continue
        for m in re.finditer(r"(?<!\w)getenv\(", tree.text[path]):
            tree.find(path, line_at(tree.text[path], m.start()), "getenv: secure_getenv")


def check_width(tree):
    """Tables may be wider: .def files, generated samples, and what was set by hand."""
    for path in tree.named(*C_NAMES):
        by_hand = path.endswith(".def") or path.startswith("templates/kg/prelude/")
        for number, line in enumerate(tree.text[path].split("\n"), 1):
            if "/* clang-format o" in line:
                by_hand = "/* clang-format off */" in line
            if len(line) > WIDTH and not by_hand:
                tree.find(path, number, f"{len(line)} columns, at most {WIDTH}")


def check_length(tree):
    """A function begins in column 1 and ends at a } in column 1; its reason to be long stands right above."""
    for path in tree.named(".c", ".h", ".hip"):
        head = start = reason = 0
        for number, line in enumerate(tree.text[path].split("\n"), 1):
            if line.startswith("/* long: "):
                reason = 1
            elif not start and re.match(r"[a-zA-Z_].*\(", line):
                head = number
            if not start and head and line.endswith("{") and not re.search(r"= *\{$", line):
                start = head
            elif not start and line.endswith(";"):
                head = reason = 0
            if start and line.startswith("}"):
                if number - start >= LONGEST_FUNCTION and not reason:
                    tree.find(path, start, f"a function of {number - start + 1} lines, at most {LONGEST_FUNCTION}")
                head = start = reason = 0


# ---- names ------------------------------------------------------------------------------------

def names_of(tree, paths):
    return {name for path in paths for name in NAME.findall(code_of(tree.text[path]))}


def pasted(tree):
    """KGEN_FAMILY_ATTN of `KGEN_FAMILY_##NAME`: what stands before ##, as a prefix."""
    return {m for path in tree.named(*C_NAMES) for m in re.findall(r"\b((?:kgen|KGEN)_\w+)##", tree.text[path])}


def check_public(tree):
    """kgen_ and KGEN_ are the API; kgen__ and KGEN__ are shared inside."""
    headers = [path for path in tree.named(".h", ".def") if path.startswith("include/")]
    public, prefixes = names_of(tree, headers), tuple(pasted(tree))
    for path in (path for path in headers if path.endswith(".h")):  # rows may name what only the library expands
        for m in re.finditer(r"\b(?:kgen|KGEN)__\w+", code_of(tree.text[path])):
            tree.find(path, line_at(tree.text[path], m.start()), f"{m[0]}: private, in a public header")
    defined = re.compile(r"^(?!static)[\w *]*?\b(kgen_(?!_)\w+)\(|^typedef [^;{]*?\b(kgen_(?!_)\w+);|"
                         r"^\} (kgen_(?!_)\w+);|^\s*#\s*define (KGEN_(?!_)\w+)|^(?:static )?[\w *]*?\b(kgen_(?!_)\w+)\(", re.M)
    for path in tree.named(".c", ".h"):
        if path.startswith(("include/", "templates/", "tests/")):
            continue
        code = code_of(tree.text[path])
        for m in re.finditer(r"\bKGEN_API\b[^;{(]*?\b(kgen__\w+)\(", code):
            tree.find(path, line_at(code, m.start()), f"{m[1]}: exported, so kgen_ and of include/")
        for m in defined.finditer(code):
            name = next(filter(None, m.groups()))
            if name not in public and not (prefixes and name.startswith(prefixes)) and not name.endswith("_H"):
                tree.find(path, line_at(code, m.start()), f"{name}: not of include/, so {name[:4]}__")


def known_names(tree):
    """Names in code and strings of all sources; a comment is no witness."""
    known = set()
    for path in tree.text:
        text = tree.text[path]
        if path.endswith((".md", ".1")):
            continue
        for _, prose in prose_of(tree, path):
            text = text.replace(prose, " ")
        known.update(NAME.findall(text))
    return known


def prose_of(tree, path):
    """(offset, text) of what people read in a file: comments, or a whole document."""
    text = tree.text[path]
    if path.endswith((".md", ".1")):
        return [(0, text)]
    if path.endswith(C_NAMES):
        return comments_of(text)
    if path.endswith(".py"):
        return [(m.start(), m[0]) for m in re.finditer(r'(?:^|:\n\s+)"""(?:.|\n)*?"""|(?m:(?<=\s)# .*$)', text)]
    return []


def is_there(tree, path, name):
    """A path from the root, from the document, or the end of one. Other projects have .py files too: ours have a folder."""
    if name.endswith(".py") and name.split("/")[0] not in {other.split("/")[0] for other in tree.paths if "/" in other}:
        return True
    near = os.path.normpath(os.path.join(os.path.dirname(path), name))
    return name in FOREIGN or near in tree.paths or any(p == name or p.endswith("/" + name) for p in tree.paths)


def check_prose(tree):
    """Identifiers and files that comments and documents speak of are there."""
    known, prefixes = known_names(tree), tuple(pasted(tree))
    for path in tree.text:
        if path.startswith("tests/lint/"):
            continue  # speaks of what must not be
        for offset, prose in prose_of(tree, path):
            plain = prose.replace("\\-", "-").replace("\\fI", "").replace("\\fR", "")
            for m in NAME.finditer(plain):
                after = plain[m.end():m.end() + 1]
                if m[0] in known or (prefixes and m[0].startswith(prefixes)):
                    continue
                if after in "*<" and after and any(name.startswith(m[0]) for name in known):
                    continue
                tree.find(path, line_at(tree.text[path], offset + m.start()), f"{m[0]} is no name of this tree")
            for m in FILE_NAME.finditer(plain):
                if not is_there(tree, path, m[0]):
                    tree.find(path, line_at(tree.text[path], offset + m.start()), f"{m[0]} is no file of this tree")


# ---- documents ---------------------------------------------------------------------------------

def check_tables(tree):
    for path in tree.named(".md"):
        before = fenced = False
        lines = tree.text[path].split("\n")
        for number, line in enumerate(lines, 1):
            fenced ^= line.startswith("```")
            row = line.startswith("|") and not fenced
            if row and not before and not re.match(r"\|[-:| ]+\|$", lines[number] if number < len(lines) else ""):
                tree.find(path, number, "a row of a table without its heading")
            before = row


def check_links(tree):
    for path in tree.named(".md"):
        for m in re.finditer(r"\]\(([^)#:]+)(?:#[^)]*)?\)", tree.text[path]):
            target = os.path.normpath(os.path.join(os.path.dirname(path), m[1]))
            if not os.path.exists(os.path.join(tree.root, target)):
                tree.find(path, line_at(tree.text[path], m.start()), f"link to {m[1]}, which is not there")


def check_readme(tree):
    program = re.search(r"^```c\n(.*?)^```", tree.text.get("README.md", ""), re.S | re.M)
    if "README.md" in tree.text and not (program and program[1] in tree.text["examples/decode.c"]):
        tree.find("README.md", 0, "its C program is not a part of examples/decode.c")


CHECKS = (check_includes, check_base_names, check_heads, check_guards, check_tables_of_uthash, check_environment, check_width,
          check_length, check_public, check_prose, check_tables, check_links, check_readme)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: lint.py <repository root>")
    tree = Tree(sys.argv[1])
    for check in CHECKS:
        check(tree)
    for finding in tree.findings:
        print(finding)
    if tree.findings:
        print(f"lint: {len(tree.findings)} findings")
        sys.exit(1)
    print(f"lint: {len(tree.text)} files, nothing to say")


main()
