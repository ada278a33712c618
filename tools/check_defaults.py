#!/usr/bin/env python3
"""docs/guide/defaults.md and the code agree: each field of the option structs below has a row under the heading that names its struct,
each row has a field, and where the code's default is a plain value the row begins with it.
"""
import re
import sources

STRUCTS = {"NodeOptions": "src/node/options.h", "SpaceOptions": "src/memory/space.h",
           "DiskTierOptions": "src/node/options.h", "DiskLogOptions": "src/disk/disk_options.h",
           "RemoteSideOptions": "src/node/options.h", "RemoteTierOptions": "src/remote/remote_options.h"}
DOCUMENT = "docs/guide/defaults.md"
FIELD = re.compile(r"^\s*[\w:<>]+(?:\s[\w:<>]+)*\s+(\w+)(?:\s*=\s*([^;]+))?;", re.M)
UNITS = {10: "KiB", 20: "MiB", 30: "GiB"}


def fields(code, struct):
    """{name: initialiser or nothing} of a plain struct."""
    body = re.search(r"\bstruct\s+%s\s*\{(.*?)^\};" % struct, code, re.S | re.M)
    return dict(FIELD.findall(body.group(1))) if body else {}


def for_people(initialiser):
    """The initialiser as the document writes it; nothing when it is not a plain value."""
    value = initialiser.strip()
    if shifted := re.fullmatch(r"(\d+)U?L*\s*<<\s*(\d+)", value):
        return f"{shifted.group(1)} {UNITS.get(int(shifted.group(2)), '?')}"
    if seconds := re.fullmatch(r"std::chrono::seconds\((\d+)\)", value):
        return f"{seconds.group(1)} s"
    if enumerator := re.fullmatch(r"\w+::k(\w+)", value):
        return "`" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enumerator.group(1)).lower() + "`"
    if re.fullmatch(r"\d+", value) and value != "0":
        return f"{int(value):,}"
    if re.fullmatch(r"\d+\.\d+", value):
        return value
    return {"false": "off", "true": "on"}.get(value)


def rows(text, struct):
    """{knob: (line number, default)} of the table under the heading that names `struct`."""
    found, inside = {}, False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            inside = f"`{struct}`" in line
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if inside and line.startswith("| `"):
            found[cells[0].strip("`")] = (number, cells[1])
    return found


def check(top):
    text, count, findings = sources.read(top, DOCUMENT), 0, []
    for struct, header in STRUCTS.items():
        declared = fields(sources.code_only(sources.read(top, header)), struct)
        documented = rows(text, struct)
        count += len(declared)
        findings += [f"{DOCUMENT}: {struct}::{name} ({header}) has no row" for name in declared if name not in documented]
        for name, (number, shown) in documented.items():
            if name not in declared:
                findings.append(f"{DOCUMENT}:{number}: {struct} ({header}) has no field '{name}'")
            elif (plain := for_people(declared[name])) and not shown.startswith(plain):
                findings.append(f"{DOCUMENT}:{number}: '{name}' is {plain} in {header}, the document says '{shown}'")
    return findings, count


def main():
    findings, count = check(sources.root())
    sources.report("defaults", findings, f"{count} defaults")


if __name__ == "__main__":
    main()
