#!/usr/bin/env python3
"""Writes scatter_vectors.h: random inputs of family scatter, and what this file's own implementation makes of them.

usage: scatter_vectors.py [--seed N] [--check]

Written from the operations' definitions in docs/scatter.md, with lists and no bounds of a kernel, so that a mistake
in check/scatter_ref.c is not made here as well. --check compares the header with what its seed gives.
"""

import argparse
import math
import os
import random
import re
import sys
import textwrap

HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scatter_vectors.h")
UNTOUCHED = -99
COLUMNS = 80  # of a request's row of slots
PAGES, DRAFTS, SPLITS, TREES, VERIFIED = 14, 8, 24, 14, 16


def ceil_div(a, b):
    return -(-a // b)


# ---- the operations ----------------------------------------------------------------------------

def page_row(slots, page, width, first, mapping):
    """The page of each block of slots, by its first slot or its last; and through the mapping of a sliding window."""
    row, window = [UNTOUCHED] * width, [UNTOUCHED] * width
    for block in range(min(ceil_div(len(slots), page), width)):
        slot = slots[block * page:(block + 1) * page][0 if first else -1]
        row[block] = slot // page if slot >= 0 else -1
        if mapping:
            target = mapping[slot] if slot >= 0 else -1
            window[block] = target // page if target >= 0 else -1
    return row, window


def draft_indices(rows, lens, topk, steps, page):
    """Slots that each branch attends to in the last step: what is committed, then its own drafts."""
    indptr, indices = [0], []
    for row, length in zip(rows, lens):
        for branch in range(topk):
            if page == 1 or topk == 1:
                begin = length + branch * steps
            else:  # each branch begins pages of its own, with a copy of the last, partial one
                partial = length % page
                begin = length - partial + branch * ceil_div(partial + steps, page) * page + partial
            indices += row[:length] + row[begin:begin + steps]
            indptr.append(len(indices))
    return indptr, indices


def kv_splits(lens, groups, heads, kv_heads, most, units):
    """Splits of each sequence, so that waves are of one length and the device is filled; None near a rounding."""
    longest, shortest = max(lens), min(lens)
    if longest * 8 < shortest * 10:
        shortest = longest
    even = ceil_div(longest, min(ceil_div(longest, shortest), most))
    wanted = units * max(math.log2(longest / 64), 1)
    if abs(wanted - round(wanted)) < 1e-3 and wanted != units:
        return None
    group = heads // kv_heads
    blocks = len(lens) * groups * (heads if group == 1 else ceil_div(heads, min(16, group)))
    filling = ceil_div(longest, min(ceil_div(int(wanted), blocks), most))
    return [max(ceil_div(n, even), ceil_div(n, filling)) for n in lens for _ in range(groups)]


def tree_of(parents, selected, topk):
    """Parent of each node of the tree; node 0 is the root, node i the draft selected[i - 1]."""
    found = [-1]
    for draft in selected:
        above = parents[draft // topk] if draft // topk else None
        found.append(0 if above is None else selected.index(above) + 1)
    return found


def children_of(parent):
    """First child and next sibling of each node, -1 for none."""
    child, sibling = [-1] * len(parent), [-1] * len(parent)
    for node in range(len(parent) - 1, 0, -1):
        sibling[node], child[parent[node]] = child[parent[node]], node
    return child, sibling


def ancestors(parent, node):
    """The node and all above it."""
    chain = [node]
    while parent[chain[-1]] >= 0:
        chain.append(parent[chain[-1]])
    return chain


def verify(tokens, targets, child, sibling, columns):
    """Greedy: from the root, to the child whose token the target names, as long as there is one and a column."""
    count, node, path = len(tokens), 0, [0]
    predicts = [-1] * count
    while True:
        predicts[node] = targets[node]
        below = child[node] if len(path) < columns else -1
        while below >= 0 and tokens[below] != targets[node]:
            below = sibling[below]
        if below < 0:
            accepted = [count + n for n in path]  # the row stands second
            return predicts, accepted + [-1] * (columns - len(path)), len(path) - 1
        node = below
        path.append(node)


# ---- random inputs -----------------------------------------------------------------------------

def paged_slots(rng, count, page, pages):
    """Slots of a sequence: whole pages at random places, now and then a slot that is not there."""
    slots = [p * page + i for p in rng.choices(range(pages), k=ceil_div(count, page)) for i in range(page)][:count]
    return [-1 if rng.random() < 0.03 else slot for slot in slots]


def page_vector(rng):
    page, width, count = rng.choice((1, 4, 16)), rng.randint(1, 7), rng.randint(1, 20)
    first, swa = rng.randint(0, 1), rng.randint(0, 1)
    slots = paged_slots(rng, count, page, 64 // page)
    mapping = [-1 if rng.random() < 0.04 else rng.randrange(64 // page) * page for _ in range(64)]
    return (page, width, count, first, swa, slots, mapping, *page_row(slots, page, width, first, mapping if swa else None))


def draft_vector(rng):
    while True:
        page, topk, steps = rng.choice((1, 4, 16)), rng.randint(1, 3), rng.randint(1, 3)
        requests, lens = [rng.randrange(3) for _ in range(2)], [rng.randint(1, 12) for _ in range(2)]
        slots = [[rng.randrange(500) for _ in range(COLUMNS)] for _ in range(3)]
        indptr, indices = draft_indices([slots[r] for r in requests], lens, topk, steps, page)
        if len(indices) <= COLUMNS:
            return page, topk, steps, requests, lens, sum(slots, []), indptr, indices


def split_vector(rng):
    while True:
        count = rng.randint(1, 5)
        lens = [int(2 ** rng.uniform(4, 17)) for _ in range(count)]
        kv_heads = rng.choice((1, 2, 4, 8))
        rest = rng.randint(1, 3), kv_heads * rng.choice((1, 2, 4, 8, 16)), kv_heads, rng.choice((1, 8, 16, 32)), \
            rng.choice((80, 132, 256, 304))
        splits = kv_splits(lens, *rest)
        if splits:
            return count, lens, *rest, splits


def tree_vector(rng):
    topk, steps = rng.randint(1, 3), rng.randint(1, 4)
    parents, above, nodes = [-1], list(range(topk)), {d: None for d in range(topk)}
    for step in range(1, steps):  # each step expands topk nodes of the one before
        parents += above
        begin = topk + (step - 1) * topk * topk
        level = {begin + b * topk + k: above[b] for b in range(topk) for k in range(topk)}
        nodes.update(level)
        above = rng.sample(sorted(level), topk)
    selected = []
    while len(selected) < min(11, rng.randint(1, len(nodes))):  # a node after the one above it
        selected.append(rng.choice([d for d in nodes if d not in selected and nodes[d] in [None, *selected]]))
    selected.sort()
    length, parent = rng.randint(0, 50), tree_of(parents, selected, topk)
    chains = [ancestors(parent, node) for node in range(len(parent))]
    return (topk, steps, len(parent), length, len(parents), parents, selected, [sum(1 << n for n in c) for c in chains],
            [length + len(c) - 1 for c in chains], *children_of(parent))


def verify_vector(rng):
    count, columns = rng.randint(2, 10), rng.randint(1, 6)
    child, sibling = children_of([-1] + [rng.randrange(max(0, n - 4), n) for n in range(1, count)])
    tokens = [rng.randrange(21) for _ in range(count)]
    targets = [tokens[child[n]] if child[n] >= 0 and rng.random() < 0.5 else rng.randrange(21) for n in range(count)]
    for node in range(count):  # a later sibling, half of the time
        if child[node] >= 0 and sibling[child[node]] >= 0 and rng.random() < 0.5:
            targets[node] = tokens[sibling[child[node]]]
    return count, columns, tokens, child, sibling, targets, *verify(tokens, targets, child, sibling, columns)


# ---- the header --------------------------------------------------------------------------------

TABLES = (
    ("page", page_vector, PAGES, """    int page, width, count, first, swa;
    int32_t slots[20];
    int64_t mapping[64];
    int32_t row[8], window[8]; /* -99: untouched */"""),
    ("draft", draft_vector, DRAFTS, """    int page, topk, steps;
    int64_t requests[2];
    int32_t lens[2], slots[3 * 80];
    int32_t indptr[7], indices[80]; /* of the last step */"""),
    ("split", split_vector, SPLITS, """    int count;
    int32_t lens[5];
    int groups, heads, kv_heads, max_splits, compute_units;
    int32_t splits[15];"""),
    ("tree", tree_vector, TREES, """    int topk, steps, tokens, length, parent_count;
    int64_t parents[13], selected[11];
    int32_t words[12];
    int64_t positions[12], next[12], sibling[12];"""),
    ("verify", verify_vector, VERIFIED, """    int tokens, columns;
    int64_t candidates[10], next[10], sibling[10], targets[10];
    int32_t predicts[10], accepted[6]; /* of row 1 */
    int count;"""),
)


def braces(value):
    return "{" + ", ".join(map(braces, value)) + "}" if isinstance(value, (list, tuple)) else str(value)


def header(seed):
    rng = random.Random(seed)
    text = [f"""/* Random inputs, and what an implementation of its own made of them: the
 * reference and the kernels must agree. Written by scatter_vectors.py --seed {seed}. */
#ifndef KGEN_TESTS_UNIT_SCATTER_VECTORS_H
#define KGEN_TESTS_UNIT_SCATTER_VECTORS_H

#include <stdint.h>

/* clang-format off */
"""]
    for name, draw, count, members in TABLES:
        rows = [textwrap.fill(braces(draw(rng)) + ",", 99, initial_indent="    ", subsequent_indent="     ")
                for _ in range(count)]
        text.append(f"static const struct {name}_vector {{\n{members}\n}} {name}_vectors[] = {{\n" + "\n".join(rows) + "\n};\n\n")
    return "".join(text).rstrip() + "\n/* clang-format on */\n\n#endif\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=20261122)
    p.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the header is another's")
    options = p.parse_args()
    if options.check:
        with open(HEADER, encoding="utf-8") as file:
            text = file.read()
        seed = re.search(r"--seed (\d+)", text)
        sys.exit(0 if seed and text == header(int(seed[1])) else "scatter_vectors.h: not what its seed gives")
    with open(HEADER, "w", encoding="utf-8") as file:
        file.write(header(options.seed))


main()
