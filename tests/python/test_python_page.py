"""The programs of docs/python.md, one after the other. Run by with_torch.sh."""
import pathlib
import re
import sys

page = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
programs = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
names: dict = {}
for number, program in enumerate(programs):
    exec(compile(program, f"docs/python.md, program {number}", "exec"), names)
print(f"{len(programs)} programs ran")
sys.exit(len(programs) < 4)
