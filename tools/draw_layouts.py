#!/usr/bin/env python3
"""Draws a picture of every named layout for docs/guide/layouts.md, and writes that guide's table; standard library only.

  draw_layouts.py [TOP]                 docs/img/layouts/NAME.svg and the table between its two marks in the guide
  draw_layouts.py --check [TOP]         changes nothing; fails when one of them is not what this program makes
  draw_layouts.py --order TEXT          prints the picture of an order written by hand
  draw_layouts.py --table L,P,H,D,B     prints the table for L layers, pages of P tokens, H heads of D elements of B bytes

The names and their orders come from the table in src/model/layout.cc and from nowhere else: a new row there is a new picture
here. tests/layout_pictures_test.cc compares what each picture says in its <desc> with what the library computes.
"""
import argparse
import dataclasses
import itertools
import os
import re
import sys

import sources

SOURCE = "src/model/layout.cc"
PICTURES = "docs/img/layouts"
GUIDE = "docs/guide/layouts.md"
BEGIN, END = "<!-- layout-table: begin -->", "<!-- layout-table: end -->"
AXES = ("component", "layer", "page", "token", "head", "dim")


class Mistake(Exception):
    """What is wrong with the input, in words."""


@dataclasses.dataclass(frozen=True)
class Layout:
    name: str
    text: str
    order: tuple       # axes, outermost first
    buffer_axes: int   # so many of them have buffers of their own
    own: dict          # component: the last four axes, in another order

    def order_of(self, component):
        return self.order[:2] + self.own[component] if component in self.own else self.order


def read_layout(name, text):
    order, *behind = text.split(";")
    if any(part.startswith("align=") for part in behind):
        raise Mistake(f"layout {name}: an alignment is not drawn; leave it out of '{text}'")
    first, bar, rest = order.partition("|")
    axes = tuple(first.split(",") + (rest.split(",") if bar else []))
    own = {part.partition(":")[0]: tuple(part.partition(":")[2].split(",")) for part in behind}
    for each in (axes, *(axes[:2] + inner for inner in own.values())):
        if sorted(each) != sorted(AXES):
            raise Mistake(f"layout {name}: wanted each of {', '.join(AXES)} once, got '{text}'")
    return Layout(name, text, axes, len(first.split(",")) if bar else 0, own)


def named_layouts(top):
    table = re.search(r"std::array<NamedText, (\d+)> kNamed = \{\{(.*?)\n\}\};", sources.read(top, SOURCE), re.S)
    if not table:
        raise Mistake(f"{SOURCE}: wanted the table kNamed of names and orders, there is none")
    rows = re.findall(r'\{\s*"(\w+)",((?:\s*"[^"]*")+)\s*\}', table.group(2))
    if len(rows) != int(table.group(1)):
        raise Mistake(f"{SOURCE}: kNamed has {table.group(1)} rows, of which {len(rows)} could be read")
    return [read_layout(name, "".join(re.findall('"([^"]*)"', text))) for name, text in rows]


@dataclasses.dataclass(frozen=True)
class Pool:
    """Components of one shape: what the guide's pictures and table need."""
    layer: int
    page: int
    token: int
    head: int
    dim: int
    element_bytes: int = 1
    components: tuple = ("k", "v")

    def extent(self, axis):
        return len(self.components) if axis == "component" else getattr(self, axis)


SMALL = Pool(layer=2, page=3, token=2, head=2, dim=2)
LLAMA = Pool(layer=32, page=1024, token=64, head=8, dim=128, element_bytes=2)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a component lies; a step is how many bytes lie between neighbours along an axis."""
    first_buffer: int
    layer_buffers: int  # not 0: each layer has a buffer of its own, so many further on
    offset: int
    steps: dict

    def at(self, index):
        """Buffer and byte of one element; `index` by axis."""
        return (self.first_buffer + index["layer"] * self.layer_buffers,
                self.offset + sum(step * index[axis] for axis, step in self.steps.items()))


def place(layout, pool, component):
    outer, number = layout.order[:layout.buffer_axes], pool.components.index(component)
    steps, size, offset = dict.fromkeys(AXES[1:], 0), pool.element_bytes, 0
    for axis in reversed(layout.order_of(component)[layout.buffer_axes:]):
        if axis == "component":
            offset = number * size
        else:
            steps[axis] = size
        size *= pool.extent(axis)
    step, buffers = 1, {}
    for axis in reversed(outer):
        buffers[axis] = step
        step *= pool.extent(axis)
    return Place(number * buffers.get("component", 0), buffers.get("layer", 0), offset, steps), size


def buffer_bytes(layout, pool):
    count = 1
    for axis in layout.order[:layout.buffer_axes]:
        count *= pool.extent(axis)
    return [place(layout, pool, pool.components[0])[1]] * count


def every_index(pool, **fixed):
    """Indices by axis of all elements of one component, those of `fixed` held."""
    axes = AXES[1:]
    for index in itertools.product(*([fixed[axis]] if axis in fixed else range(pool.extent(axis)) for axis in axes)):
        yield dict(zip(axes, index))


def segments(layout, pool, component, page):
    """(buffer, offset, length) of a page's bytes, found element by element; neighbours are one."""
    where = place(layout, pool, component)[0]
    merged = []
    for buffer, offset in sorted(where.at(index) for index in every_index(pool, page=page)):
        if merged and merged[-1][0] == buffer and sum(merged[-1][1:]) == offset:
            merged[-1][2] += pool.element_bytes
        else:
            merged.append([buffer, offset, pool.element_bytes])
    return [tuple(each) for each in merged]


def runs(layout, pool, component, **count):
    """How many runs of how many bytes the elements of a page are, of which only `count` are wanted along some axes."""
    where = place(layout, pool, component)[0]
    number, length, loops = 1, pool.element_bytes, []
    for axis in ("layer", "token", "head", "dim"):
        wanted = count.get(axis, pool.extent(axis))
        if axis == "layer" and where.layer_buffers:
            number *= wanted
        elif wanted > 1:
            loops.append((where.steps[axis], wanted))
    loops.sort()
    while loops and loops[0][0] == length:
        length *= loops.pop(0)[1]
    for _, wanted in loops:
        number *= wanted
    return number, length


# ---- The table ----

def size_text(size):
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size:,} B"


def table(layouts, pool):
    whats = (("a page", {}), ("one layer of a page", {"layer": 1}),
             *((("half of the heads of a page", {"head": pool.head // 2}),) if pool.head % 2 == 0 else ()),
             ("one token, one layer", {"layer": 1, "token": 1}))
    yield "| layout | buffers | " + " | ".join(name for name, _ in whats) + " | 4 KiB |"
    yield "|---|---|" + "---|" * (len(whats) + 1)
    for layout in layouts:
        cells = []
        for _, count in whats:
            each = {name: runs(layout, pool, name, **count) for name in pool.components}
            texts = {name: f"{number:,} × {size_text(length)}" for name, (number, length) in each.items()}
            cells.append(texts[pool.components[0]] if len(set(each.values())) == 1
                         else "<br>".join(f"{name}: {text}" for name, text in texts.items()))
        aligned = all(is_aligned(layout, pool, name, 4096) for name in pool.components)
        count = f"{len(buffer_bytes(layout, pool)):,}"
        yield f"| `{layout.name}` | {count} | " + " | ".join(cells) + f" | {'yes' if aligned else 'no'} |"


def is_aligned(layout, pool, component, alignment):
    """Whether every segment of every page begins at a multiple of `alignment` and is one long."""
    where = place(layout, pool, component)[0]
    length = runs(layout, pool, component)[1]
    # Steps inside a segment are shorter than it; each other one separates segments.
    apart = [step for axis, step in where.steps.items() if pool.extent(axis) > 1 and step >= length]
    return all(value % alignment == 0 for value in (length, where.offset, *apart))


# ---- The pictures ----

UNIT, GAP, LEFT, STRIP, HEIGHT = 8, 12, 16, 84, 26  # pixels of a byte, between buffers; where the strip stands
WIDTH = 2 * LEFT + UNIT * 96 + 3 * GAP
STYLE = """
.ground { fill: #ffffff }
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px }
.order, .quiet { fill: #57606a }
.order { font-family: ui-monospace, monospace }
.end { text-anchor: end }
.cell { font: 9px ui-monospace, monospace; text-anchor: middle }
.seg { text-anchor: middle; font-size: 11px }
.frame { fill: none; stroke: #8c959f }
.k0 { fill: #9cc9f5 } .k1 { fill: #1f6fc9 } .v0 { fill: #ffc27a } .v1 { fill: #b85f00 }
.k0p { fill: #eef5fd } .k1p { fill: #dbe8f7 } .v0p { fill: #fdf3e6 } .v1p { fill: #f7e4cf }
.t0 { fill: #10233a } .t1 { fill: #ffffff } .tp { fill: #6e7781 }
.ks { stroke: #1f6fc9 } .vs { stroke: #b85f00 } .ks, .vs { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117 }
  text { fill: #d8dee6 }
  .order, .quiet { fill: #9aa4b0 }
  .frame { stroke: #6e7781 }
  .k0p { fill: #1b2a3a } .k1p { fill: #14304f } .v0p { fill: #33291b } .v1p { fill: #452d12 }
  .t0 { fill: #10233a } .t1 { fill: #ffffff } .tp { fill: #8b949e }
  .ks { stroke: #7db8f0 } .vs { stroke: #f2b062 }
}"""


class Picture:
    """The small pool in one layout: each buffer a strip of memory, page 1 in strong colours."""

    def __init__(self, layout, page=1):
        self.layout, self.page, self.pool = layout, page, SMALL
        self.bytes = buffer_bytes(layout, self.pool)
        self.segments = {name: segments(layout, self.pool, name, page) for name in self.pool.components}

    def x(self, buffer, offset):
        return LEFT + buffer * GAP + UNIT * (sum(self.bytes[:buffer]) + offset)

    def cells(self):
        """(css class, label, x, width) of each head of each token, or of each element where those lie apart."""
        for component in self.pool.components:
            where = place(self.layout, self.pool, component)[0]
            joined = where.steps["dim"] == self.pool.element_bytes
            for index in every_index(self.pool, **({"dim": 0} if joined else {})):
                label = str(index["page"] * self.pool.token + index["token"])
                if joined:
                    label += "ab"[index["head"]]
                yield (component, index["layer"], index["page"] == self.page, label, self.x(*where.at(index)),
                       UNIT * (self.pool.dim if joined else 1))

    def strip(self):
        paths, labels = {}, {}
        for component, layer, strong, label, x, width in sorted(self.cells(), key=lambda cell: cell[4]):
            paths.setdefault(f"{component}{layer}" + ("" if strong else "p"), []).append(
                f"M{x} {STRIP}h{width}v{HEIGHT}h-{width}z")
            labels.setdefault(f"t{layer}" if strong else "tp", []).append(
                f'<tspan x="{x + width // 2}">{label}</tspan>')
        for css, path in sorted(paths.items()):
            yield f'<path class="{css}" d="{"".join(path)}"/>'
        for css, spans in sorted(labels.items()):
            yield f'<text class="cell {css}" y="{STRIP + 17}">{"".join(spans)}</text>'
        for buffer, size in enumerate(self.bytes):
            x = self.x(buffer, 0)
            yield f'<rect class="frame" x="{x - 0.5}" y="{STRIP - 0.5}" width="{UNIT * size + 1}" height="{HEIGHT + 1}"/>'
            yield f'<text x="{x}" y="{STRIP - 7}">{self.buffer_name(buffer)}</text>'

    def buffer_name(self, buffer):
        parts = []
        for axis in reversed(self.layout.order[:self.layout.buffer_axes]):
            buffer, at = divmod(buffer, self.pool.extent(axis))
            parts.insert(0, f"{axis} {self.pool.components[at] if axis == 'component' else at}")
        return ", ".join(parts) if parts else "one buffer"

    def brackets(self):
        y = STRIP + HEIGHT + 6
        for component, parts in self.segments.items():
            path, spans = [], []
            for number, (buffer, offset, length) in enumerate(parts):
                x, width = self.x(buffer, offset) + 2, UNIT * length - 4
                path.append(f"M{x} {y}v5h{width}v-5")
                spans.append(f'<tspan x="{x + width // 2}">{component}{number + 1}</tspan>')
            yield f'<path class="{component}s" d="{"".join(path)}"/>'
            yield f'<text class="seg" y="{y + 18}">{"".join(spans)}</text>'

    def legend(self):
        y, x = STRIP + HEIGHT + 56, LEFT
        for component, layer in itertools.product(self.pool.components, range(self.pool.layer)):
            yield f'<rect class="{component}{layer}" x="{x}" y="{y - 10}" width="12" height="12"/>'
            yield f'<text class="quiet" x="{x + 17}" y="{y}">{component}, layer {layer}</text>'
            x += 88
        joined = all(self.layout.order_of(name)[-1] == "dim" for name in self.pool.components)
        note = "3b: token 3, head b" + ("" if joined else "; 3: one element of it")
        yield f'<text class="quiet" x="{x + 4}" y="{y}">pale: pages 0 and 2</text>'
        yield f'<text class="quiet" x="{x + 136}" y="{y}">{note}</text>'

    def summary(self):
        parts = [f"{name} in {len(each)} segment{'s' if len(each) > 1 else ''}" for name, each in self.segments.items()]
        return f"page {self.page}: " + ", ".join(parts)

    def description(self):
        """What the picture shows, in numbers; tests/layout_pictures_test.cc writes the same lines."""
        yield "buffers of " + " ".join(map(str, self.bytes)) + " bytes"
        for component, parts in self.segments.items():
            where = place(self.layout, self.pool, component)[0]
            steps = ", ".join(f"{axis} {step}" for axis, step in where.steps.items())
            yield (f"{component}: buffer {where.first_buffer}, {where.layer_buffers} further for each layer, offset {where.offset}, "
                   f"steps {steps}; page {self.page}: " + " ".join(f"{b}:{o}+{n}" for b, o, n in parts))

    def svg(self):
        height = STRIP + HEIGHT + 72
        head = [f'<text class="title" x="{LEFT}" y="26">{self.layout.name}</text>',
                f'<text class="order" x="{LEFT}" y="47">{self.layout.text}</text>',
                f'<text class="end" x="{WIDTH - LEFT}" y="26">{self.summary()}</text>']
        body = "\n".join([*head, *self.strip(), *self.brackets(), *self.legend()])
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
                f'aria-label="Layout {self.layout.name}; {self.summary()}">\n<desc>\n' + "\n".join(self.description()) +
                f'\n</desc>\n<style>{STYLE}\n</style>\n<rect class="ground" width="{WIDTH}" height="{height}"/>\n{body}\n</svg>\n')


# ---- What is written and checked ----

def guide_with_table(text, layouts):
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise Mistake(f"{GUIDE}: wanted the table between '{BEGIN}' and '{END}'")
    return before + begin + "\n" + "\n".join(table(layouts, LLAMA)) + "\n" + end + after


def wanted_files(top):
    layouts = named_layouts(top)
    files = {f"{PICTURES}/{layout.name}.svg": Picture(layout).svg() for layout in layouts}
    files[GUIDE] = guide_with_table(sources.read(top, GUIDE), layouts)
    return files


def check(top, files):
    for name, text in sorted(files.items()):
        if not os.path.isfile(os.path.join(top, name)):
            yield f"{name}: is missing; run tools/draw_layouts.py"
        elif sources.read(top, name) != text:
            yield f"{name}: is not what {SOURCE} gives; run tools/draw_layouts.py"
        if name != GUIDE and f"({os.path.relpath(name, os.path.dirname(GUIDE))})" not in files[GUIDE]:
            yield f"{GUIDE}: does not show {name}"
    folder = os.path.join(top, PICTURES)
    for name in sorted(os.listdir(folder) if os.path.isdir(folder) else []):
        if f"{PICTURES}/{name}" not in files:
            yield f"{PICTURES}/{name}: is the picture of no layout; remove it"


def write(top, files):
    os.makedirs(os.path.join(top, PICTURES), exist_ok=True)
    for name, text in files.items():
        with open(os.path.join(top, name), "w", encoding="utf-8") as file:
            file.write(text)


def pool_from_text(text):
    numbers = text.split(",")
    if len(numbers) != 5 or not all(each.isdecimal() and int(each) > 0 for each in numbers):
        raise Mistake(f"--table: wanted LAYERS,PAGE_TOKENS,HEADS,DIM,ELEMENT_BYTES, each above 0, got '{text}'")
    layer, token, head, dim, element_bytes = map(int, numbers)
    return Pool(layer, LLAMA.page, token, head, dim, element_bytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("top", nargs="?", default=sources.HERE, metavar="TOP")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true")
    what.add_argument("--order", metavar="TEXT")
    what.add_argument("--table", metavar="L,P,H,D,B")
    arguments = parser.parse_args()
    try:
        if arguments.order:
            print(Picture(read_layout("a layout by hand", arguments.order)).svg(), end="")
        elif arguments.table:
            print("\n".join(table(named_layouts(arguments.top), pool_from_text(arguments.table))))
        elif arguments.check:
            files = wanted_files(arguments.top)
            sources.report("layouts", list(check(arguments.top, files)), f"{len(files)} files")
        else:
            write(arguments.top, wanted_files(arguments.top))
    except Mistake as mistake:
        sys.exit(f"draw_layouts: {mistake}")


if __name__ == "__main__":
    main()
