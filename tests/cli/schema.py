#!/usr/bin/env python3
"""Is what a command printed with --json what docs/kgen.schema.json says? usage: schema.py COMMAND FILE

The part of JSON Schema that the file uses; a word that is not known here is an error.
"""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {"object": dict, "array": list, "string": str, "null": type(None), "boolean": bool}
KNOWN = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "$ref", "$defs", "$schema",
         "title", "description"}


def has_type(value, name):
    if name in ("integer", "number"):
        return isinstance(value, int if name == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def check_object(value, schema, root, at):
    known = schema.get("properties", {})
    more = schema.get("additionalProperties", True)
    for key in schema.get("required", []):
        if key not in value:
            yield f"{at}: no {key}"
    for key, member in value.items():
        if key in known:
            yield from check(member, known[key], root, f"{at}.{key}")
        elif more is False:
            yield f"{at}.{key}: not in the schema"
        elif more is not True:
            yield from check(member, more, root, f"{at}.{key}")


def check(value, schema, root, at):
    for word in set(schema) - KNOWN:
        yield f"{at}: the schema says {word}, which {os.path.basename(__file__)} does not know"
    if "$ref" in schema:
        yield from check(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, at)
    if "anyOf" in schema:
        each = [list(check(value, one, root, at)) for one in schema["anyOf"]]
        yield from min(each, key=len)
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(has_type(value, name) for name in types):
        yield f"{at}: {value!r} is no {' or '.join(types)}"
    elif isinstance(value, dict):
        yield from check_object(value, schema, root, at)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from check(item, schema.get("items", {}), root, f"{at}[{i}]")


def documents(text):
    """`tune` prints one for each architecture."""
    decoder, text = json.JSONDecoder(), text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:].strip()


def main():
    with open(os.path.join(HERE, "../../docs/kgen.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        values = list(documents(file.read()))
    found = [line for value in values for line in check({sys.argv[1]: value}, schema, schema, "kgen")]
    found += [] if values else ["no document"]
    print("\n".join(found[:10]))
    return 1 if found else 0


sys.exit(main())
