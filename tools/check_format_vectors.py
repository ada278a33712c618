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


def identity(case):
    lines = identity_lines(case["identity"], True)
    return {"text": lines.splitlines(), "root": hashlib.sha256(identity_lines(case["identity"], False).encode()).hexdigest()}


def form(case):
    return {"fingerprint": hashlib.sha256("".join(line + "\n" for line in case["text"]).encode()).hexdigest()}


COMPUTE = {"identity": identity, "form": form, "chain": chain, "external": external, "probe": probe, "record": record,
           "arena": arena}


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
