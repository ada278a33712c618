#!/usr/bin/env python3
"""Draws the table of `tiercel llama demo --json` as a picture, standard library only.

  tiercel llama demo -m MODEL.gguf --json >demo.json
  draw_llama.py demo.json docs/img/llama_demo.svg

Tokens that were restored are light, those that were computed dark, in one bar; the other bar is the time to the first token. It brings
its own background: white, or dark where the reader prefers dark.
"""
import html
import json
import pathlib
import sys

WIDTH, TOP, ROW, LEFT = 960, 96, 34, 24
COLUMNS = {"question": 24, "text": 44, "tokens": 326, "time": 526, "lower": 746, "answer": 772, "logits": 876}  # x of each
TOKENS_WIDTH, TIME_WIDTH = 96, 130  # of the bars
STYLE = """
.page { fill: #ffffff }
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px }
.head, .subtitle { fill: #57606a }
.strong { font-weight: 600 }
.grid { stroke: #d0d7de; stroke-width: 1 }
.restored { fill: #a8d5b5 }
.computed { fill: #2f7ed8 }
.time { fill: #e07b00 }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117 }
  text { fill: #d8dee6 }
  .head, .subtitle { fill: #9aa4b0 }
  .grid { stroke: #333b45 }
  .restored { fill: #2f5d3e }
}"""


def time_text(ms):
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


def text(x, y, words, css="", anchor="start"):
    look = f' class="{css}"' if css else ""
    end = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{look}{end}>{html.escape(words)}</text>'


def bar(x, y, width, css):
    return f'<rect class="{css}" x="{x:.1f}" y="{y - 10:.1f}" width="{max(width, 1.5):.1f}" height="12"/>'


def verdicts(run):
    """What stands under `answer` and `logits`."""
    if run["mode"] == "plain":
        return "", ""
    return ("same" if run["same_answer"] else f"other from {run['differs_from'] + 1}",
            "same bits" if run["same_logits"] else "other bits")


def row(run, y, most_tokens, most_ms):
    x = COLUMNS
    yield text(x["question"], y, run["question"])
    yield text(x["text"], y, run["text"], "strong" if run["restored_tokens"] else "")
    restored = run["restored_tokens"] * TOKENS_WIDTH / most_tokens
    if run["restored_tokens"]:
        yield bar(x["tokens"], y, restored, "restored")
    yield bar(x["tokens"] + restored, y, run["computed_tokens"] * TOKENS_WIDTH / most_tokens, "computed")
    yield text(x["tokens"] + TOKENS_WIDTH + 8, y, f"{run['restored_tokens']:,} + {run['computed_tokens']:,}")
    yield bar(x["time"], y, run["ttft_ms"] * TIME_WIDTH / most_ms, "time")
    yield text(x["time"] + run["ttft_ms"] * TIME_WIDTH / most_ms + 8, y, time_text(run["ttft_ms"]))
    if run["restored_tokens"]:
        yield text(x["lower"], y, f"{run['times_lower']:.0f}×", "strong", "end")
    answer, logits = verdicts(run)
    yield text(x["answer"], y, answer)
    yield text(x["logits"], y, logits)


def svg(demo):
    runs = demo["runs"]
    most_tokens = max(run["prompt_tokens"] for run in runs)
    most_ms = max(run["ttft_ms"] for run in runs)
    height = TOP + ROW * len(runs) + 12
    title = "A language model with a cache that outlives its process"
    threads = f"{demo['threads']} thread" + ("" if demo["threads"] == 1 else "s")
    subtitle = (f"{demo['file'].removesuffix('.gguf')}, {threads}. Two questions over one system prompt of "
                f"{demo['system_tokens']:,} tokens; each row is a process of its own")
    parts = [text(LEFT, 26, title, "title"), text(LEFT, 46, subtitle, "subtitle")]
    parts += [text(COLUMNS[column], TOP - 14, words, "head")
              for column, words in (("tokens", "tokens restored + computed"), ("time", "time to the first token"),
                                    ("answer", "answer"), ("logits", "logits"))]
    for number, run in enumerate(runs):
        y = TOP + ROW * number
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - LEFT}" y1="{y}" y2="{y}"/>')
        parts += row(run, y + 22, most_tokens, most_ms)
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-label="{html.escape(title)}; {html.escape(subtitle)}">\n<style>{STYLE}\n</style>\n'
            f'<rect class="page" width="{WIDTH}" height="{height}"/>\n{body}\n</svg>\n')


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    demo = json.loads(pathlib.Path(sys.argv[1]).read_text())
    out = pathlib.Path(sys.argv[2])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(svg(demo))
    print(out)


if __name__ == "__main__":
    main()
