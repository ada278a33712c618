#!/usr/bin/env python3
"""The test vectors of docs/format.md, computed once more from what that page says, with nothing of ours: hashlib and a
CRC32C of twelve lines. `--print` writes the vectors anew (to look at; what the page says stays the judge)."""
import hashlib
import json
import struct
import sys
import sources

BLOCK = "<!-- vectors -->\n```json\n"
TAGS = {"page": 1, "tail": 2, "external": 3, "page_of_pairs": 4, "probe_page": 5, "probe_page_of_pairs": 6, "probe_external": 7}


def u32(value):
    return struct.pack("<I", value)


def text(data):
    return u32(len(data)) + data


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def escape(value, name=False):
    return "".join(chr(b) if 0x20 <= b <= 0x7E and b != 0x5C and not (name and b == 0x3D) else f"\\x{b:02x}"
                   for b in value.encode())


def identity_lines(given, salt_hashed):
    scheme = given["scheme"]
    lines = [("tiercel_identity", "1")]
    lines += [(field, escape(str(given[field]))) for field in
              ("model", "weights", "weights_epoch", "dtype", "quantisation", "rope", "attention", "page_tokens", "adapter")]
    lines += [(f"scheme.{field}", escape(scheme[field])) for field in ("name", "algorithm", "seed", "encoding")]
    lines += [("scheme.granule_tokens", str(scheme["granule_tokens"] or given["page_tokens"]))]
    lines += [("other." + escape(name, True), escape(value))
              for name, value in sorted(given["other"].items(), key=lambda item: item[0].encode())]
    salt = given["tenant_salt"]
    if salt and salt_hashed:
        lines.append(("tenant_salt.sha256", hashlib.sha256(salt.encode()).hexdigest()))
    else:
        lines.append(("tenant_salt", escape(salt)))
    return "".join(f"{name}={value}\n" for name, value in lines)


def page_bytes(tokens, extras):
    """A page's count, tokens and extras; a token is a number or a pair of them."""
    words = [word for token in tokens for word in (token if isinstance(token, list) else [token])]
    return (u32(len(tokens)) + b"".join(u32(word) for word in words) + u32(len(extras)) +
            b"".join(text(bytes.fromhex(extra)) for extra in extras))


def tag_of(case, kind):
    pairs = any(isinstance(token, list) for token in case["tokens"])
    return bytes([TAGS[kind + ("_of_pairs" if pairs else "")]])


def chain(case):
    digest = bytes.fromhex(case["root"])
    size = case["page_tokens"]
    keys = []
    for page in range(len(case["tokens"]) // size):
        extras = case["extras"][page] if case["extras"] else []
        digest = hashlib.sha256(tag_of(case, "page") + digest +
                                page_bytes(case["tokens"][page * size:(page + 1) * size], extras)).digest()
        keys.append(digest[:16].hex())
    return {"keys": keys, "digest": digest.hex()}


def external(case):
    name = text(case["scheme"].encode()) + text(bytes.fromhex(case["digest"]))
    return {"key": hashlib.sha256(bytes([TAGS["external"]]) + bytes.fromhex(case["root"]) + name).hexdigest()[:32],
            "probe": hashlib.sha256(bytes([TAGS["probe_external"]]) + name).hexdigest()[:32]}


def probe(case):
    return {"probe": hashlib.sha256(tag_of(case, "probe_page") + page_bytes(case["tokens"], case["extras"])).hexdigest()[:32]}


def record(case):
    digest = bytes.fromhex(case["external_digest"])
    head = b"TIERCREC" + struct.pack("<HBBI", 1, len(digest), 0, len(case["run_checksums"]))
    head += bytes.fromhex(case["form"]) + bytes.fromhex(case["root"]) + bytes.fromhex(case["key"])
    head += struct.pack("<HHIQQ", case["class"], case["shard"], case["generation"], case["payload_bytes"], case["kept_bytes"])
    head += digest.ljust(64, b"\0") + b"".join(u32(crc) for crc in case["run_checksums"])
    head += bytes(-(len(head) + 4) % 64)
    return {"header": (head + u32(crc32c(head))).hex()}


def arena(case):
    page, mib2 = 4096, 2 << 20
    up = lambda value: -(-value // mib2) * mib2
    leases = up(page + case["index_bytes"])
    extents = up(leases + case["leases_bytes"])
    total = up(extents + case["extent_bytes"] * case["extents"])
    head = b"TIERCARN" + struct.pack("<II9Q", 1, 128, int(case["epoch"], 16), total, page, case["index_bytes"], leases,
                                     case["leases_bytes"], extents, case["extent_bytes"], case["extents"])
    head = head.ljust(124, b"\0")
    return {"header": (head + u32(crc32c(head))).hex()}


def frame(magic, case):
    return magic + struct.pack("<H6x", 1) + bytes.fromhex(case["uuid"])


def block(magic, layout, case, *fields):
    """A block that is one by itself: all but the zeros."""
    head = frame(magic, case) + struct.pack(layout, *fields)
    return {"fields": head.hex(), "checksum": u32(crc32c(head.ljust(4092, b"\0"))).hex()}


def disk_superblock(case):
    names = ("sequence", "epoch", "size_bytes", "region_bytes", "regions", "index_buckets", "catalogue_bytes", "removals_max")
    image = case["image"]
    return block(b"TIERCLOG", "<13QII", case, *(case[name] for name in names), *case["image_offset"], case["image_bytes"],
                 case["regions_offset"], case["image_sequence"], 0 if image is None else image + 1, case["closed"])


def disk_region(case):
    return block(b"TIERCRGN", "<I4xQQ", case, case["region"], case["life"], case["first_at"])


def disk_image(case):
    names = ("sequence", "from_at", "to_at", "last_life", "from_life", "index_buckets", "catalogue_used", "checksums_crc")
    return block(b"TIERCIMG", "<7QI", case, *(case[name] for name in names))


def descriptors(entries):
    return b"".join(struct.pack("<BBHI", entry["kind"], entry["class"], entry["shards"], entry["space"]) +
                    bytes.fromhex(entry["key"]) + bytes.fromhex(entry["parent"]) +
                    struct.pack("<QQII", entry["born"], entry["length"], entry["block"], entry["blocks"]) for entry in entries)


def disk_segment(case):
    names = ("life", "epoch", "first_at", "durable_at", "block", "blocks")
    head = frame(b"TIERCSEG", case) + struct.pack("<4Q3I", *(case[name] for name in names), len(case["entries"]))
    head, entries = head.ljust(124, b"\0"), descriptors(case["entries"])
    return {"directory": (head + u32(crc32c(head + entries)) + entries).hex()}


def disk_footer(case):
    tail = frame(b"TIERCFTR", case) + struct.pack("<I4xQQQI", case["region"], case["life"], case["first_at"], case["last_at"],
                                                  len(case["entries"]))
    tail, entries = tail.ljust(124, b"\0"), descriptors(case["entries"])
    return {"entries": entries.hex(), "tail": (tail + u32(crc32c(entries + tail))).hex()}


def mix(value):
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def disk_index_entry(case):
    low, high = struct.unpack("<QQ", bytes.fromhex(case["key"]))
    count = case["buckets"]
    hashed = mix(low ^ mix((high + 0x9E3779B97F4A7C15) % 2**64))
    first = hashed * count >> 64
    second = (first + 1 + (mix(hashed ^ 0xC2B2AE3D27D4EB4F) * (count - 1) >> 64)) % count
    entry = bytes.fromhex(case["key"]) + struct.pack("<II", case["block"], case["space"]) + struct.pack("<Q", case["born"])[:5]
    return {"entry": (entry + bytes([case["class"], case["uses"], case["life"]])).hex(), "buckets": [first, second]}


def space_name(case):
    runs = struct.pack("<H", len(case["runs"]))
    for groups in case["runs"]:
        runs += u32(len(groups)) + b"".join(struct.pack("<IQ", count, length) for count, length in groups)
    return u32(case["id"]) + bytes.fromhex(case["root"]) + bytes.fromhex(case["form"]) + text(case["text"].encode()) + runs


def disk_name(case):
    name = space_name(case)
    return {"payload": (name + u32(crc32c(name))).hex()}


def disk_catalogue(case):
    names = b"".join(space_name(name) for name in case["names"])
    forms = b"".join(bytes.fromhex(form["form"]) + struct.pack("<QQ", form["cleared_at"], form["weights_epoch"])
                     for form in case["forms"])
    head = struct.pack("<IIQ", len(case["names"]), len(case["forms"]), 16 + len(names) + len(forms))
    return {"bytes": (head + names + forms).hex()}


def disk_removals(case):
    spaces = b"".join(struct.pack("<IQQ", *space) for space in case["spaces"])
    pages = b"".join(u32(space) + bytes.fromhex(key) + struct.pack("<Q", at) for space, key, at in case["pages"])
    return {"bytes": (struct.pack("<IQ", len(case["spaces"]), len(case["pages"])) + spaces + pages).hex()}


def tagged(tag, *parts):
    return hashlib.sha256(tag.encode() + b"\0" + b"".join(parts)).digest()


def remote_object(case):
    given = case
    space = tagged("tiercel.object_space", *(bytes.fromhex(given[part]) for part in ("root", "form", "form_marker", "namespace_marker")))
    header = (b"TIERCOBJ" + struct.pack("<HHHH", 1, 128, given["bundle"], given["shard"]) + space + bytes.fromhex(given["key"]) +
              struct.pack("<IIQQ", given["pages"], 0, given["bytes"], int(given["computation"], 16)) + bytes(36))
    return {"name": f"t1.{space[:16].hex()}.{given['key']}.b{given['bundle']}.n{given['pages']}.s{given['shard']}",
            "header": (header + u32(crc32c(header))).hex()}


def remote_marker(case):
    given = case
    root, form = bytes.fromhex(given["root"]), bytes.fromhex(given["form"])
    marker = b"TIERCMRK" + struct.pack("<H", 1) + bytes(6) + bytes.fromhex(given["number"]) + bytes(28)
    return {"form_name": "t1.marker." + tagged("tiercel.form_marker", form)[:16].hex(),
            "namespace_name": "t1.marker." + tagged("tiercel.namespace_marker", root, form)[:16].hex(),
            "bytes": (marker + u32(crc32c(marker))).hex()}


def identity(case):
    lines = identity_lines(case["identity"], True)
    return {"text": lines.splitlines(), "root": hashlib.sha256(identity_lines(case["identity"], False).encode()).hexdigest()}


def form(case):
    return {"fingerprint": hashlib.sha256("".join(line + "\n" for line in case["text"]).encode()).hexdigest()}


COMPUTE = {"identity": identity, "form": form, "chain": chain, "external": external, "probe": probe, "record": record,
           "arena": arena, "remote_object": remote_object, "remote_marker": remote_marker,
           "disk_superblock": disk_superblock, "disk_region": disk_region, "disk_image": disk_image,
           "disk_segment": disk_segment, "disk_footer": disk_footer, "disk_index_entry": disk_index_entry, "disk_name": disk_name,
           "disk_catalogue": disk_catalogue, "disk_removals": disk_removals}


def vectors(page):
    start = page.index(BLOCK) + len(BLOCK)
    return json.loads(page[start:page.index("\n```", start)])


def main():
    cases = vectors(sources.read(sources.root(), "docs/format.md"))
    findings = []
    for case in cases:
        computed = COMPUTE[case["kind"]](case["given"])
        if "--print" in sys.argv:
            print(json.dumps({**case, "gives": computed}))
        if computed != case["gives"]:
            findings.append(f"docs/format.md: vector '{case['name']}' says {case['gives']}, computed {computed}")
    kinds = {case["kind"] for case in cases}
    findings += [f"docs/format.md: no vector of kind {kind}" for kind in COMPUTE if kind not in kinds]
    sources.report("format vectors", findings, f"{len(cases)} vectors")


if __name__ == "__main__":
    main()
