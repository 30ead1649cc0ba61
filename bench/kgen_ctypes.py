"""libkgen from Python, as far as a benchmark needs it: open, prepare, launch with torch tensors.

The fields of specs and arguments are read from include/kgen/<family>_params.def and <family>_args.def, their
one home. Everything else mirrors include/kgen/{status,spec,tensor,args,runtime}.h; sizes and offsets are
checked by `python3 kgen_ctypes.py`.
"""
import ctypes as c
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OFFLINE, AUTO = 3, 0
MAX_RANK = 5
ATTN, GDN, SCATTER, KV_WRITE, KV_GATHER = 0, 1, 2, 3, 4
LAYOUTS = {"none": 0, "nhd": 1, "hnd": 2, "shuffle": 3, "xpacked": 4, "interleaved": 5, "flat": 6,
           "presplit": 7, "vk": 8, "kv": 9, "sd": 10, "ds": 11}
DTYPES = {"bfloat16": 1, "float16": 2, "float8_e4m3fn": 3, "float8_e4m3fnuz": 4, "float8_e5m2": 5,
          "float32": 7, "int32": 8, "int64": 9, "uint8": 10, "bool": 10, "int8": 12}


def spec_fields(family):
    text = (ROOT / f"include/kgen/{family}_params.def").read_text()
    return [(name, c.c_int32) for name in re.findall(r"^KGEN_PARAM\((\w+),", text, re.M)]


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("text", c.c_char * 1024)]


class AttnSpec(c.Structure):
    _fields_ = spec_fields("attn")


class GdnSpec(c.Structure):
    _fields_ = spec_fields("gdn")


class ScatterSpec(c.Structure):
    _fields_ = spec_fields("scatter")


class KvWriteSpec(c.Structure):
    _fields_ = spec_fields("kv_write")


class KvGatherSpec(c.Structure):
    _fields_ = spec_fields("kv_gather")


class SpecUnion(c.Union):
    _fields_ = [("attn", AttnSpec), ("gdn", GdnSpec), ("scatter", ScatterSpec),
                ("kv_write", KvWriteSpec), ("kv_gather", KvGatherSpec)]


class Spec(c.Structure):
    _anonymous_ = ["of"]
    _fields_ = [("family", c.c_int), ("of", SpecUnion)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("layout", c.c_int), ("rank", c.c_int32),
                ("shape", c.c_int64 * MAX_RANK), ("stride", c.c_int64 * MAX_RANK)]


NUMBERS = {"int64_t": c.c_int64, "int32_t": c.c_int32, "float": c.c_float}


def members_of(text):
    """The rows of a .def that are tensors and numbers, which are the members of its struct."""
    rows = re.findall(r"^KGEN_(?:TENSOR\(\w+,\s*(\w+)|NUMBER\((?:[a-z_]+,\s*)?(\w+),\s*(\w+_t|float))", text, re.M)
    return [(tensor, Tensor) if tensor else (number, NUMBERS[kind]) for tensor, number, kind in rows]


def args_fields(family):
    return members_of((ROOT / f"include/kgen/{family}_args.def").read_text())


def op_args():
    """op -> its struct, in the order of scatter_ops.def; and its number."""
    text = (ROOT / "include/kgen/scatter_args.def").read_text()
    sections = dict(re.findall(r"^KGEN_OP_ARGS\(\w+, (\w+)\)\n(.*?)^KGEN_OP_END", text, re.M | re.S))
    ops = re.findall(r"^KGEN_OP\(\w+, (\d+), (\w+)\)", (ROOT / "include/kgen/scatter_ops.def").read_text(), re.M)
    return {op: (type(op, (c.Structure,), {"_fields_": members_of(sections[op])}), int(number)) for number, op in ops}


class AttnArgs(c.Structure):
    _fields_ = args_fields("attn")


class GdnArgs(c.Structure):
    _fields_ = args_fields("gdn")


OP_ARGS = op_args()


class OpUnion(c.Union):
    _fields_ = [(op, structure) for op, (structure, _) in OP_ARGS.items()]


class ScatterArgs(c.Structure):
    """The arguments of one op, tagged with its number: OP_ARGS[op][1]."""
    _anonymous_ = ["of"]
    _fields_ = [("op", c.c_int), ("live", Tensor), ("error", Tensor), ("of", OpUnion)]


class KvWriteArgs(c.Structure):
    _fields_ = args_fields("kv_write")


class KvGatherArgs(c.Structure):
    _fields_ = args_fields("kv_gather")


class ArgsUnion(c.Union):
    _fields_ = [("attn", AttnArgs), ("gdn", GdnArgs), ("scatter", ScatterArgs),
                ("kv_write", KvWriteArgs), ("kv_gather", KvGatherArgs)]


class Args(c.Structure):
    """What a launch takes; the families share their memory."""
    _anonymous_ = ["of"]
    _fields_ = [("family", c.c_int), ("workspace", c.c_void_p), ("workspace_bytes", c.c_size_t),
                ("of", ArgsUnion)]


class OpenOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("device", c.c_char_p), ("cache_dir", c.c_char_p),
                ("mode", c.c_int), ("tuning", c.c_char_p), ("driver", c.c_char_p),
                ("log", c.c_void_p), ("log_user", c.c_void_p)]


C_NAMES = {**{f"kgen_{op}_args": structure for op, (structure, _) in OP_ARGS.items()}, "kgen_error": Error, "kgen_attn_spec": AttnSpec, "kgen_gdn_spec": GdnSpec,
           "kgen_spec": Spec, "kgen_tensor": Tensor, "kgen_attn_args": AttnArgs,
           "kgen_gdn_args": GdnArgs, "kgen_scatter_spec": ScatterSpec,
           "kgen_scatter_args": ScatterArgs, "kgen_kv_write_spec": KvWriteSpec,
           "kgen_kv_write_args": KvWriteArgs, "kgen_kv_gather_spec": KvGatherSpec,
           "kgen_kv_gather_args": KvGatherArgs, "kgen_args": Args, "kgen_open_options": OpenOptions}

PROTOTYPES = {
    "kgen_open": [c.POINTER(c.c_void_p), c.POINTER(OpenOptions), c.POINTER(Error)],
    "kgen_spec_parse": [c.POINTER(Spec), c.c_char_p, c.POINTER(Error)],
    "kgen_prepare": [c.c_void_p, c.POINTER(Spec), c.c_size_t, c.POINTER(c.c_void_p),
                     c.POINTER(Error)],
    "kgen_workspace_size": [c.c_void_p, c.POINTER(Args), c.POINTER(c.c_size_t), c.POINTER(Error)],
    "kgen_workspace_init": [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.POINTER(Error)],
    "kgen_launch": [c.c_void_p, c.POINTER(Args), c.c_void_p, c.POINTER(Error)],
    "kgen_stream_sync": [c.c_void_p, c.c_void_p, c.POINTER(Error)],
}


class KgenError(RuntimeError):
    pass


def tensor(t, layout="none"):
    """A torch tensor as a kgen_tensor; the caller keeps it alive."""
    shape = list(t.shape) + [0] * (MAX_RANK - t.dim())
    stride = list(t.stride()) + [0] * (MAX_RANK - t.dim())
    return Tensor(t.data_ptr(), DTYPES[str(t.dtype).split(".")[1]], LAYOUTS[layout], t.dim(),
                  (c.c_int64 * MAX_RANK)(*shape), (c.c_int64 * MAX_RANK)(*stride))


def find_library():
    named = os.environ.get("KGEN_LIB")
    places = [named] if named else [ROOT / p / name for p in ("out/lib", "build/release/lib")
                                    for name in ("libkgen.so", "libkgen.so.0.1")]
    for place in places:
        if os.path.exists(place):
            return str(place)
    raise KgenError("libkgen.so: not in out/lib or build/release/lib; name it with KGEN_LIB")


class Context:
    """One open device. close() ends it: no stream may use a kernel by then."""

    def __init__(self, device, cache_dir, mode):
        self.lib = c.CDLL(find_library())
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

    def prepare(self, line):
        spec, kernel = self.parse(line), c.c_void_p()
        self.call("kgen_prepare", self.handle, c.byref(spec), 1, c.byref(kernel))
        return kernel

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
        subprocess.run(["cc", "-I", ROOT / "include", source, "-o", binary], check=True)
        done = subprocess.run([binary], check=True, capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def check_sizes():
    """Compares every structure with what the C compiler makes of the headers."""
    here = {f"sizeof({name})": c.sizeof(structure) for name, structure in C_NAMES.items()}
    here |= {f"offsetof({name}, {member})": offset for name, member, offset in c_members()}
    there = dict(zip(here, ask_compiler(here)))
    for line in here:
        if here[line] != there[line]:
            print(f"{line}: {here[line]} here, {there[line]} in C")
    print(f"{len(here)} sizes and offsets compared with C")
    return int(here != there)


if __name__ == "__main__":
    sys.exit(check_sizes())
