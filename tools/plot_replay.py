#!/usr/bin/env python3
"""Draws the pictures of README.md from the results of tools/compare_replays.py, standard library only.

  plot_replay.py RESULTS.json OUT_FOLDER [MODEL]

hit_ratio_by_bytes.svg: policies and snapshot rules over the bytes of the whole cache; hit_ratio_by_snapshots.svg: snapshot
rules over snapshots made, bytes unlimited. They bring their own background: white, or dark where the reader prefers dark.
"""
import html
import json
import math
import pathlib
import sys

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 200, 62, 52
COLOURS = ("#2f7ed8", "#e07b00", "#2e9e4f", "#c43c8c", "#8a63d2", "#8c7a5b", "#d23f31", "#1a9ba1")
STYLE = """
.page { fill: #ffffff }
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px }
.subtitle { fill: #57606a }
.grid { stroke: #d0d7de; stroke-width: 1 }
.axis { stroke: #57606a; stroke-width: 1 }
.rule { stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 5 4; fill: none }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117 }
  text { fill: #d8dee6 }
  .subtitle { fill: #9aa4b0 }
  .grid { stroke: #333b45 }
  .axis, .rule { stroke: #9aa4b0 }
}"""


class Chart:
    """One picture with a logarithmic x axis."""

    def __init__(self, title, subtitle, x_label, xs, ys, x_text):
        self.title, self.subtitle, self.x_label, self.x_text = title, subtitle, x_label, x_text
        self.low, self.high = math.log10(min(xs) / 1.15), math.log10(max(xs) * 1.15)
        self.top = math.ceil(max(ys) * 20 + 0.2) / 20
        self.parts, self.labels, self.marks = [], [], []

    def x(self, value):
        return LEFT + (math.log10(value) - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)

    def line(self, name, points, colour, css=None):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        look = f'class="{css}"' if css else f'fill="none" stroke="{colour}" stroke-width="2.2"'
        self.parts.append(f'<polyline points="{path}" {look}/>')
        if not css:
            self.dots(points, colour)
        self.labels.append((self.y(points[-1][1]), name, colour if not css else None))

    def dots(self, points, colour):
        self.parts += [f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.4" fill="{colour}"/>' for x, y in points]

    def mark(self, name, x, y, colour):
        """A point with its name below it, lower where it would touch another's."""
        self.dots([(x, y)], colour)
        at, half, low = self.x(x), 4 * len(name), self.y(y) + 17
        while any(abs(at - other) < half + other_half and abs(low - other_low) < 14.5
                  for other, other_half, other_low in self.marks):
            low += 15
        self.marks.append((at, half, low))
        self.parts.append(f'<text x="{at:.1f}" y="{low:.1f}" text-anchor="middle">{name}</text>')

    def level(self, name, y):
        self.parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(y):.1f}" y2="{self.y(y):.1f}"/>')
        self.labels.append((self.y(y), name, None))

    def ticks(self):
        for exponent in range(math.floor(self.low), math.ceil(self.high) + 1):
            for step in (1, 2, 5):
                value = step * 10**exponent
                if self.low <= math.log10(value) <= self.high:
                    yield value

    def frame(self):
        count = round(self.top / 0.05)
        for i in range(count + 1):
            y = self.y(i * 0.05)
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{i * 5} %</text>'
        for value in self.ticks():
            x = self.x(value)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{self.x_text(value)}</text>'
        yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
        middle = (LEFT + WIDTH - RIGHT) / 2
        yield f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{self.x_label}</text>'
        yield f'<text class="title" x="{LEFT}" y="24">{self.title}</text>'
        yield f'<text class="subtitle" x="{LEFT}" y="44">{self.subtitle}</text>'

    def names(self):
        """Beside the ends of their lines, moved apart where they would touch."""
        below = -math.inf
        for y, name, colour in sorted(self.labels, key=lambda label: label[0]):
            below = max(y, below + 17)
            look = f' style="fill: {colour}"' if colour else ""
            yield f'<text x="{WIDTH - RIGHT + 10}" y="{below + 4:.1f}"{look}>{name}</text>'

    def svg(self):
        body = "\n".join([*self.frame(), *self.parts, *self.names()])
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
                f'aria-label="{self.title}; {self.subtitle}">\n<style>{STYLE}\n</style>\n'
                f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>\n{body}\n</svg>\n')


def job(result, name, default=None):
    return result["job"].get(name, default)


def of_what(results):
    """Model and trace, which all of `results` share; as XML text."""
    first = results[0]
    return html.escape(f"model {first['model']}, trace {first['trace']}: {first['requests']:,} requests, {first['pages']:,} pages")


def by_bytes(results):
    limited = [r for r in results if job(r, "host_bytes")]
    unlimited = {job(r, "rule"): r for r in results if not job(r, "host_bytes") and not job(r, "snapshot_budget")}

    def curve(policy, rule):
        return sorted((job(r, "host_bytes") / 2**30, r["hit_ratio"]) for r in limited
                      if job(r, "policy") == policy and job(r, "rule") == rule)
    curves = [(f"{policy}, branch", curve(policy, "branch")) for policy in ("lru", "s3fifo", "tinylfu", "value")]
    curves += [(f"value, {rule}", curve("value", rule)) for rule in ("end", "all", "advice")]
    curves = [(name, points) for name, points in curves if points]
    bound = sorted((job(r, "host_bytes") / 2**30, r["bound_hit_pages"] / r["pages"]) for r in limited
                   if "bound_hit_pages" in r)
    everything = [point for _, points in curves for point in points] + bound
    chart = Chart("Hit ratio over bytes of the whole cache", of_what(results), "bytes of the whole cache: pages, windows, snapshots",
                  [x for x, _ in everything], [y for _, y in everything],
                  lambda value: f"{value:,g} GiB")
    for (name, points), colour in zip(curves, COLOURS):
        chart.line(name, points, colour)
    chart.line("full-attention bound", bound, None, css="rule")
    if "branch" in unlimited:
        chart.level("branch, unlimited", unlimited["branch"]["hit_ratio"])
    return chart.svg()


def by_snapshots(results):
    unlimited = [r for r in results if not job(r, "host_bytes")]
    fixed = {job(r, "rule"): r for r in unlimited if not job(r, "snapshot_budget")}
    advised = sorted((r["snapshots_made"], r["hit_ratio"]) for r in unlimited if job(r, "snapshot_budget"))
    full = 1 - fixed["branch"]["missed"].get("never_stored", 0) / fixed["branch"]["pages"]
    points = [(r["snapshots_made"], r["hit_ratio"]) for r in fixed.values()] + advised
    chart = Chart("Hit ratio over snapshots made, bytes unlimited", of_what(results), "snapshots made",
                  [x for x, _ in points], [y for _, y in points] + [full], lambda value: f"{value:,}")
    chart.level("full attention", full)
    if advised:
        chart.line("advice", advised, COLOURS[0])
    for rule, result in sorted(fixed.items(), key=lambda item: item[1]["snapshots_made"]):
        chart.mark(rule, result["snapshots_made"], result["hit_ratio"], COLOURS[1])
    return chart.svg()


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    results = json.loads(pathlib.Path(sys.argv[1]).read_text())
    model = sys.argv[3] if len(sys.argv) == 4 else results[0]["model"]
    results = [result for result in results if result["model"] == model]
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name, draw in (("hit_ratio_by_bytes", by_bytes), ("hit_ratio_by_snapshots", by_snapshots)):
        (out / f"{name}.svg").write_text(draw(results))
        print(out / f"{name}.svg")


if __name__ == "__main__":
    main()
