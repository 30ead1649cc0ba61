"""libkgen from Python, as far as a benchmark needs it: open, prepare, launch with torch tensors.

Specs and arguments are what `kgen explain FAMILY --json` says; the rest mirrors
include/kgen/{status,tensor,args,runtime}.h. `python3 kgen_ctypes.py` compares all offsets with
those that the library and the C compiler have.
"""
import ctypes as c
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import places

OFFLINE, AUTO = 3, 0
MAX_RANK = 5
LAYOUTS = {"none": 0, "nhd": 1, "hnd": 2, "shuffle": 3, "xpacked": 4, "interleaved": 5, "flat": 6,
           "presplit": 7, "vk": 8, "kv": 9, "sd": 10, "ds": 11}
DTYPES = {"bfloat16": 1, "float16": 2, "float8_e4m3fn": 3, "float8_e4m3fnuz": 4, "float8_e5m2": 5,
          "float32": 7, "int32": 8, "int64": 9, "uint8": 10, "bool": 10, "int8": 12}


class KgenError(RuntimeError):
    pass


def explain(family):
    done = subprocess.run([places.command(), "explain", family, "--json"], check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)


FAMILIES = re.findall(r"^KGEN_FAMILY\((\w+)", (places.ROOT / "include/kgen/families.def").read_text(), re.M)
EXPLAINED = {family: explain(family) for family in FAMILIES}


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("text", c.c_char * 1024)]


def spec_of(family):
    fields = [(row["key"], c.c_int32) for row in EXPLAINED[family]["parameters"]]
    return type(f"{family}_spec", (c.Structure,), {"_fields_": fields})


class SpecUnion(c.Union):
    _fields_ = [(family, spec_of(family)) for family in FAMILIES]


class Spec(c.Structure):
    _anonymous_ = ["of"]
    _fields_ = [("family", c.c_int), ("of", SpecUnion)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("layout", c.c_int), ("rank", c.c_int32),
                ("shape", c.c_int64 * MAX_RANK), ("stride", c.c_int64 * MAX_RANK)]


NUMBERS = {"int64_t": c.c_int64, "int32_t": c.c_int32, "float": c.c_float}


def launch_of(family, name):
    """The struct of a family's launch, or of an op of scatter, whose live and error stand before it."""
    rows = EXPLAINED[family]["launches"][name]
    fields, skip = [], ("live", "error") if family == "scatter" else ()
    for row in rows["tensors"]:
        if not row["form"] and row["name"] not in skip:
            fields.append((row["name"], Tensor))
    fields += [(row["name"], NUMBERS[row["type"]]) for row in rows["numbers"]]
    return type(f"{name}_args", (c.Structure,), {"_fields_": fields})


class ScatterUnion(c.Union):
    _fields_ = [(op, launch_of("scatter", op)) for op in EXPLAINED["scatter"]["launches"]]


class ScatterArgs(c.Structure):
    """op: a number of SCATTER_OPS, that of the kernel."""
    _anonymous_ = ["of"]
    _fields_ = [("op", c.c_int), ("live", Tensor), ("error", Tensor), ("of", ScatterUnion)]


SCATTER_OPS = next(row["words"] for row in EXPLAINED["scatter"]["parameters"] if row["key"] == "op")


STRUCTS = {family: ScatterArgs if family == "scatter" else launch_of(family, family) for family in FAMILIES}


class Args(c.Structure):
    """What a launch takes; `part` is the family's struct, and lives as long."""
    _fields_ = [("family", c.c_int), ("workspace", c.c_void_p), ("workspace_bytes", c.c_size_t),
                ("any", c.c_void_p)]

    def __init__(self, family):
        self.part = STRUCTS[family]()
        super().__init__(FAMILIES.index(family), None, 0, c.addressof(self.part))


class OpenOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("device", c.c_char_p), ("cache_dir", c.c_char_p),
                ("mode", c.c_int), ("tuning", c.c_char_p), ("driver", c.c_char_p),
                ("log", c.c_void_p), ("log_user", c.c_void_p)]


class Problem(c.Structure):
    _fields_ = [(name, c.c_int32) for name in ("batch", "context", "heads")]


class Request(c.Structure):
    """A spec for a problem, and its kernel."""
    _fields_ = [("size", c.c_size_t), ("spec", Spec), ("problem", Problem), ("kernel", c.c_void_p),
                ("compiled", c.c_int32), ("error", Error)]


C_NAMES = {"kgen_error": Error, "kgen_spec": Spec, "kgen_tensor": Tensor, "kgen_problem": Problem,
           "kgen_request": Request, "kgen_args": Args, "kgen_open_options": OpenOptions} | {
               f"kgen_{family}_args": structure for family, structure in STRUCTS.items()}

PROTOTYPES = {
    "kgen_open": [c.POINTER(c.c_void_p), c.POINTER(OpenOptions), c.POINTER(Error)],
    "kgen_spec_parse": [c.POINTER(Spec), c.c_char_p, c.POINTER(Error)],
    "kgen_prepare_for": [c.c_void_p, c.POINTER(Request), c.c_size_t, c.c_void_p, c.POINTER(Error)],
    "kgen_workspace_size": [c.c_void_p, c.POINTER(Args), c.POINTER(c.c_size_t), c.POINTER(Error)],
    "kgen_workspace_init": [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.POINTER(Error)],
    "kgen_launch": [c.c_void_p, c.POINTER(Args), c.c_void_p, c.POINTER(Error)],
    "kgen_stream_sync": [c.c_void_p, c.c_void_p, c.POINTER(Error)],
}


def tensor(t, layout="none"):
    """A torch tensor as a kgen_tensor; the caller keeps it alive."""
    shape = list(t.shape) + [0] * (MAX_RANK - t.dim())
    stride = list(t.stride()) + [0] * (MAX_RANK - t.dim())
    return Tensor(t.data_ptr(), DTYPES[str(t.dtype).split(".")[1]], LAYOUTS[layout], t.dim(),
                  (c.c_int64 * MAX_RANK)(*shape), (c.c_int64 * MAX_RANK)(*stride))


class Context:
    """One open device. close() ends it: no stream may use a kernel by then."""

    def __init__(self, device, cache_dir, mode):
        self.lib = c.CDLL(places.library())
        for name, arguments in PROTOTYPES.items():
            getattr(self.lib, name).argtypes = arguments
        self.lib.kgen_context_device.argtypes = self.lib.kgen_close.argtypes = [c.c_void_p]
        self.lib.kgen_context_device.restype = c.c_char_p
        self.error = Error()
        self.handle = c.c_void_p()
        options = OpenOptions(c.sizeof(OpenOptions), device.encode(), str(cache_dir).encode(), mode)
        self.call("kgen_open", c.byref(self.handle), c.byref(options))
        self.name = self.lib.kgen_context_device(self.handle).decode()

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments, c.byref(self.error)) != 0:
            raise KgenError(f"{name}: {self.error.text.decode()}")

    def parse(self, line):
        spec = Spec()
        self.call("kgen_spec_parse", c.byref(spec), line.encode())
        return spec

    def prepare(self, line, problem=(0, 0, 0)):
        """problem: (batch, context, KV heads), 0 where it is not known"""
        request = Request(c.sizeof(Request), self.parse(line), Problem(*problem))
        self.call("kgen_prepare_for", self.handle, c.byref(request), 1, None)
        return request.kernel

    def workspace_bytes(self, kernel, args):
        size = c.c_size_t()
        self.call("kgen_workspace_size", kernel, c.byref(args), c.byref(size))
        return size.value

    def workspace_init(self, memory, size, stream=0):
        self.call("kgen_workspace_init", self.handle, memory, size, stream)

    def launch(self, kernel, args, stream=0):
        self.call("kgen_launch", kernel, c.byref(args), stream)

    def sync(self, stream=0):
        self.call("kgen_stream_sync", self.handle, stream)

    def close(self):
        self.lib.kgen_close(self.handle)


def c_members():
    """(C type, C member, offset here) of every field; members of unions count as their own."""
    for name, structure in C_NAMES.items():
        unions = getattr(structure, "_anonymous_", ())
        for field, kind in structure._fields_:
            inner = [part for part, _ in kind._fields_] if field in unions else [field]
            for member in inner:
                yield name, member, getattr(structure, member).offset


def ask_compiler(lines):
    body = "".join(f'    printf("%zu\\n", {line});\n' for line in lines)
    program = f"#include <kgen/kgen.h>\n#include <stdio.h>\nint main(void) {{\n{body}    return 0;\n}}\n"
    with tempfile.TemporaryDirectory() as folder:
        source, binary = f"{folder}/sizes.c", f"{folder}/sizes"
        pathlib.Path(source).write_text(program)
        subprocess.run(["cc", "-I", places.ROOT / "include", source, "-o", binary], check=True)
        done = subprocess.run([binary], check=True, capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def library_offsets():
    """(what, offset here, offset that the library says) of every parameter, tensor and number."""
    for family, said in EXPLAINED.items():
        spec = dict(SpecUnion._fields_)[family]
        for row in said["parameters"]:
            yield f"{family} {row['key']}", Spec.of.offset + getattr(spec, row["key"]).offset, row["offset"]
        for name, launch in said["launches"].items():
            for row in launch["tensors"] + launch["numbers"]:
                kind, base = STRUCTS[family], 0
                if family == "scatter" and row["name"] not in ("live", "error"):
                    kind, base = dict(ScatterUnion._fields_)[name], ScatterArgs.of.offset
                yield f"{name} {row['name']}", base + getattr(kind, row["name"]).offset, row["offset"]


def check_sizes():
    """Compares every structure with what the library says and the C compiler makes of the headers."""
    here = {f"sizeof({name})": c.sizeof(structure) for name, structure in C_NAMES.items()}
    here |= {f"offsetof({name}, {member})": offset for name, member, offset in c_members()}
    there = dict(zip(here, ask_compiler(here)))
    rows = [(line, here[line], there[line]) for line in here] + list(library_offsets())
    wrong = [row for row in rows if row[1] != row[2]]
    for line, mine, theirs in wrong:
        print(f"{line}: {mine} here, {theirs} in C")
    print(f"{len(rows)} sizes and offsets compared with C")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(check_sizes())
