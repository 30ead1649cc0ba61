"""The adaptor itself: a file such as peers publish, with a test of each outcome."""
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

if importlib.util.find_spec("pytest") is None:
    print("skipped: no pytest")
    sys.exit(77)

PUBLISHED = """
import pytest, torch, triton
from vllm.distributed import something
from vllm.v1.attention.ops.triton_merge_attn_states import merge_attn_states, mask_empty_context_lse

@triton.jit
def kernel(x):
    pass

def merged(wanted):
    parts, lse = torch.ones(2, 4, 1, 64, dtype=torch.float16, device="cuda"), torch.zeros(1, 4, device="cuda")
    out = torch.empty_like(parts[0])
    merge_attn_states(out, parts[0], lse, parts[1], lse)
    torch.cuda.synchronize()
    assert (out.cuda() == wanted).all()

def test_passes():
    merged(1)

def test_differs():
    merged(2)

def test_is_not_offered():
    mask_empty_context_lse(torch.zeros(1))

def test_launches_triton():
    kernel[(1,)](torch.zeros(1))

def test_asks_nothing():
    assert something is not None

def test_is_skipped():
    pytest.skip("its own reason")

def test_cannot_run():
    torch.zeros(1)[7]
"""
WANTED = {"passed": 1, "differs": 1, "not offered": 2, "without kgen": 1, "skipped by the test": 1, "could not run": 1}

PROGRAM = """
import argparse, aiter, torch
from aiter.test_common import benchmark, checkAllclose, run_perftest

@benchmark()
def test_convolution(wanted, mode):
    x = torch.ones(1, 64, 1, device="cuda")
    none, pool, out = torch.empty(0), torch.ones(1, 64, 1), torch.zeros_like(x)
    if mode == "refused":
        aiter.fmoe(x)
    if mode != "idle":
        run_perftest(aiter.causal_conv1d_update, x, pool, torch.ones(64, 2), none, out, False, none.int(), none.int(), -1)
        checkAllclose(torch.full_like(out, wanted), out)
    return {"all_close": mode != "apart", "other": False}

parser = argparse.ArgumentParser()
parser.add_argument("--modes", nargs="*")
for mode in parser.parse_args().modes:
    assert test_convolution(3.0 if mode == "three" else 2.0, mode)["mode"] == mode
"""
OF_PROGRAM = {"passed": 1, "differs": 2, "not offered": 1, "without kgen": 1}


def outcomes(project, text, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        published = pathlib.Path(folder, "test_published.py")
        published.write_text(text)
        adaptor = pathlib.Path(__file__).with_name("run_peers.py")
        before = ["--program"] if arguments else []
        run = subprocess.run([sys.executable, "-W", "ignore", adaptor, project, *before, published, *arguments],
                             capture_output=True, text=True)
    assert run.returncode == 1, (run.returncode, run.stderr)  # some have failed
    return {kind: int(count) for count, kind in re.findall(r"(\d+) ([a-z ]+)", re.search("^kgen: (.*)$", run.stdout, re.M)[1])}


found = outcomes("vllm", PUBLISHED)
assert found == WANTED, found
found = outcomes("aiter", PROGRAM, "--modes", "right", "three", "apart", "refused", "idle")
assert found == OF_PROGRAM, found
print("each outcome is told from the others")
