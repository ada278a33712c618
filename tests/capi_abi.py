#!/usr/bin/env python3
"""The shape of the C ABI: exported symbols, sizes and offsets of structs, values of constants, against tests/capi_golden.txt.

Every call that the header declares is exported, nothing else is, and capi_whole_abi.c makes it. Version 1 may only grow:
a line that changes or goes is a break.

Usage: capi_abi.py C_COMPILER LIBRARY [--update]
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
INCLUDE = os.path.join(os.path.dirname(HERE), "include")
GOLDEN = os.path.join(HERE, "capi_golden.txt")


def text_of(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)


def all_headers():
    """The C headers, one behind the other: what declares calls and values."""
    folder = os.path.join(INCLUDE, "tiercel")
    return "\n".join(text_of(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".h"))


def declared_calls():
    return sorted(set(re.findall(r"\bTIERCEL_API\b[^;]*?\b(tiercel_\w+)\s*\(", all_headers())))


def exported(library):
    out = subprocess.run(["nm", "--dynamic", "--defined-only", "--extern-only", library], check=True, capture_output=True,
                         text=True).stdout
    names = {line.split()[-1].split("@")[0] for line in out.splitlines()}
    return sorted(name for name in names if name != "TIERCEL_1")


def structs(types):
    """{name: fields in order} of the structs that stand in the header whole."""
    found = {}
    for name, body in re.findall(r"typedef struct (tiercel_\w+) \{(.*?)\} \1;", types, re.S):
        fields = []
        for statement in body.split(";"):
            names = re.sub(r"\[[^\]]*\]", "", statement).split(",")
            fields += [re.findall(r"\w+", part)[-1] for part in names if re.findall(r"\w+", part)]
        found[name] = fields
    return found


def measured(compiler, types):
    """Lines 'struct NAME SIZE', 'field NAME.FIELD OFFSET SIZE', 'constant NAME VALUE' as the C compiler has them."""
    lines = ["#include <stdio.h>", "#include <stddef.h>", "#include <tiercel/connector.h>", "#include <tiercel/tiercel.h>", "int main(void) {"]
    for name, fields in structs(types).items():
        lines.append(f'printf("struct {name} %zu\\n", sizeof({name}));')
        for field in fields:
            lines.append(f'printf("field {name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
    constants = re.findall(r"\b(TIERCEL_[A-Z0-9_]+)\s*=", types) + re.findall(r"#define (TIERCEL_(?!API\b)[A-Z0-9_]+) \S", types)
    for name in constants:
        lines.append(f'printf("constant {name} %llu\\n", (unsigned long long)({name}));')
    lines += ["return 0;", "}"]
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "abi.c"), os.path.join(folder, "abi")
        with open(source, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
        subprocess.run([compiler, "-std=c11", f"-I{INCLUDE}", source, "-o", program], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    compiler, library = sys.argv[1:3]
    calls, types, findings = declared_calls(), all_headers(), []
    symbols = exported(library)
    findings += [f"{name}: declared, but not exported" for name in calls if name not in symbols]
    findings += [f"{name}: exported, but not declared" for name in symbols if name not in calls]
    program = text_of(HERE, "capi_whole_abi.c")
    findings += [f"{name}: capi_whole_abi.c does not call it" for name in calls if not re.search(rf"\b{name}\(", program)]

    lines = [f"call {name}" for name in calls] + measured(compiler, types)
    if "--update" in sys.argv:
        with open(GOLDEN, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    with open(GOLDEN, encoding="utf-8") as file:
        golden = file.read().splitlines()
    findings += [f"golden, but not so now: {line}" for line in golden if line not in set(lines)]
    findings += [f"now, but not golden (capi_abi.py --update): {line}" for line in lines if line not in set(golden)]
    for finding in findings:
        print(finding)
    print(f"{len(calls)} calls, {len(lines) - len(calls)} sizes and values, {len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
