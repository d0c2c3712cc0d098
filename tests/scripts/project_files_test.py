#!/usr/bin/env python3
"""Tests that the files about the project agree with it: version and dates in all places, and what
workflows, container files, hooks and the Kubernetes job call.

    tests/scripts/project_files_test.py [CLASS[.TEST] ...]

They are read as text, for Python's standard library reads no YAML.
"""

import json
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


KUBERNETES = "scripts/launch/kubernetes.yaml"
CALLERS = [
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(".github/workflows/*.yml")),
    "Containerfile",
    "Containerfile.cuda",
    ".pre-commit-config.yaml",
    KUBERNETES,
    "docs/releasing.md",
    "docs/containers.md",
]

# --- version and dates ----------------------------------------------------------------------------

VERSION = {
    "CMakeLists.txt": r"^project\(mpretrain VERSION ([\d.]+) ",
    "pyproject.toml": r'^version = "([\d.]+)"$',
    "CITATION.cff": r"^version: ([\d.]+)$",
    "CHANGELOG.md": r"^## ([\d.]+) - ",
    KUBERNETES: r"image: mpretrain:([\d.]+)-cuda$",
}
RELEASE = re.compile(r"^## (\d+)\.(\d+)\.(\d+) - (\d{4}-\d\d-\d\d)$", re.M)


def releases(changelog):
    """(version, date) of every heading of the changelog, in its order."""
    return [
        (tuple(map(int, found[:3])), found[3])
        for found in (match.groups() for match in RELEASE.finditer(changelog))
    ]


class Version(unittest.TestCase):
    def test_is_the_same_everywhere(self):
        found = {}
        for path, pattern in VERSION.items():
            match = re.search(pattern, text_of(path), re.M)
            self.assertIsNotNone(match, f"{path}: nothing looks like {pattern}")
            found[path] = match[1]
        self.assertEqual(len(set(found.values())), 1, found)

    def test_is_dated_the_same(self):
        cited = re.search(r"^date-released: (\S+)$", text_of("CITATION.cff"), re.M)[1]
        self.assertEqual(releases(text_of("CHANGELOG.md"))[0][1], cited)

    def test_the_newest_comes_first(self):
        changelog = text_of("CHANGELOG.md")
        found = releases(changelog)
        headings = re.findall(r"^## (?!Unreleased$).*", changelog, re.M)
        self.assertEqual(len(found), len(headings), headings)
        self.assertGreaterEqual(len(found), 2)
        self.assertEqual(found, sorted(found, reverse=True))


# --- what is called -------------------------------------------------------------------------------

SCRIPT = re.compile(r"(?<![\w-]/)\bscripts/[\w./-]*\w")
# After a script, up to what ends a command.
ARGUMENTS = re.compile(rf"({SCRIPT.pattern})((?: +[^&|;<>#`\n]*)?)")
OPTION = re.compile(r"(?<!\S)--[a-z][\w-]*")


def presets(kind):
    listed = json.loads(text_of("CMakePresets.json"))[kind]
    return {preset["name"] for preset in listed if not preset.get("hidden")}


def cmake_options():
    return set(re.findall(r"^(?:option|set)\((MPT_\w+) ", text_of("CMakeLists.txt"), re.M))


def known_to(script, option):
    """Whether a script reads the option: in a case, or for Python anywhere in its package."""
    if script.endswith(".py"):
        modules = (ROOT / "scripts/mpretrain_tools").rglob("*.py")
        return any(f'"{option}"' in path.read_text(encoding="utf-8") for path in modules)
    return re.search(rf"^[^#\n]*{option}(?:\)| \|)", text_of(script), re.M) is not None


def problems_of_scripts(text):
    for script in SCRIPT.findall(text):
        if not (ROOT / script).exists():
            yield f"{script} is not there"
    for script, arguments in ARGUMENTS.findall(text):
        if not (ROOT / script).is_file():
            continue
        for option in OPTION.findall(arguments):
            if not known_to(script, option):
                yield f"{script} knows no {option}"


def problems_of_cmake(text):
    for preset in re.findall(r"--preset[ =]([\w-]+)", text):
        if preset not in presets("configurePresets"):
            yield f"preset {preset}"
    for preset in re.findall(r"\bMPT_PRESET(?:=|: )([\w-]+)", text):
        if preset not in presets("testPresets"):
            yield f"MPT_PRESET {preset}"
    for preset in re.findall(r"\bbuild/([a-z][\w-]*)", text):
        if preset not in presets("configurePresets"):
            yield f"build/{preset} is of no preset"
    for option in re.findall(r"-D(MPT_\w+)", text):
        if option not in cmake_options():
            yield f"CMake option {option}"


def problems_of_copies(text):
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M):
        for source in sources.split():
            if not (ROOT / source).exists():
                yield f"COPY {source}"


def problems_of_images(text):
    for major, minor in re.findall(r"(?:nvidia/cuda:|^ARG CUDA=)(\d+)\.(\d+)", text, re.M):
        if (int(major), int(minor)) < (12, 8):
            yield f"CUDA {major}.{minor} is older than 12.8"


def problems(text):
    yield from problems_of_scripts(text)
    yield from problems_of_cmake(text)
    yield from problems_of_copies(text)
    yield from problems_of_images(text)


class Calls(unittest.TestCase):
    def test_everything_called_is_there(self):
        for name in CALLERS:
            with self.subTest(file=name):
                self.assertEqual(list(problems(text_of(name))), [])

    def test_the_callers_call_what_the_project_has(self):
        called = {name: set(SCRIPT.findall(text_of(name))) for name in CALLERS}
        self.assertLessEqual(
            {"scripts/quickstart.sh", "scripts/test.sh"}, called[".github/workflows/build.yml"]
        )
        self.assertIn("scripts/test.sh", called[".github/workflows/cuda.yml"])
        self.assertIn("scripts/fuzz.sh", called[".github/workflows/fuzz.yml"])
        self.assertIn("mkdocs build --strict", text_of(".github/workflows/docs.yml"))
        self.assertIn("pre-commit run --all-files", text_of(".github/workflows/style.yml"))
        for name in ("Containerfile", "Containerfile.cuda"):
            self.assertIn("scripts/install_deps.sh", called[name])

    def test_others_are_reported(self):
        for text, part in (
            ("- run: scripts/tests.sh", "scripts/tests.sh is not there"),
            ("scripts/quickstart.sh --smoky", "knows no --smoky"),
            ("scripts/install_deps.sh --dev --all && true", "knows no --all"),
            ("scripts/bench.py report --checks", "knows no --checks"),
            ("cmake --preset programs", "preset programs"),
            ("MPT_PRESET: program", "MPT_PRESET program"),
            ("cmake --install build/cpus", "build/cpus"),
            ("-DMPT_NATIV=OFF", "MPT_NATIV"),
            ("COPY src sources /there", "COPY sources"),
            ("FROM nvidia/cuda:12.4.1-devel-ubuntu22.04", "older than 12.8"),
            ("ARG CUDA=11.8.0", "older than 12.8"),
        ):
            found = list(problems(text))
            self.assertEqual(len(found), 1, (text, found))
            self.assertIn(part, found[0])

    def test_what_is_there_is_not(self):
        for text in (
            "scripts/install_deps.sh --dev --tools && other --unknown",
            "scripts/bench.py report --check",
            "MPT_PRESET=cuda scripts/test.sh -E '^gpu/'",
            'cmake --preset program -DMPT_NATIVE=OFF "-DCMAKE_CXX_FLAGS=-march=x"',
            "FROM nvidia/cuda:13.0.1-devel-ubuntu24.04",
        ):
            self.assertEqual(list(problems(text)), [], text)


@unittest.skipUnless(shutil.which("dpkg-query"), "no system of Debian's")
class RuntimePackages(unittest.TestCase):
    def run_script(self, *programs):
        return subprocess.run(
            [str(ROOT / "scripts/runtime_packages.sh"), *programs],
            capture_output=True,
            text=True,
            check=False,
        )

    def test_of_a_shell_is_the_c_library(self):
        done = self.run_script("/bin/sh", "/bin/sh")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "libc6\n", ""))

    def test_what_is_no_program_is_an_error(self):
        for programs in ((), ("/no/such/program",), (str(ROOT / "LICENSE"),)):
            done = self.run_script(*programs)
            self.assertNotEqual(done.returncode, 0, programs)
            self.assertNotEqual(done.stderr, "", programs)


# --- the Kubernetes job ---------------------------------------------------------------------------


def statuses():
    """Exit statuses of the program by the names that its sources give them."""
    sources = text_of("src/cli/verbs.h") + text_of("src/cli/program.cpp")
    return {name: int(value) for name, value in re.findall(r"int (k\w+) = (\d+);", sources)}


def config_keys(schema, path=""):
    for key, value in schema.get("properties", {}).items():
        if "properties" in value:
            yield from config_keys(value, f"{path}{key}.")
        elif not value.get("deprecated"):
            yield path + key


class Kubernetes(unittest.TestCase):
    job = text_of(KUBERNETES)

    def test_exit_codes_are_those_of_the_program(self):
        known = statuses()
        listed = re.findall(r"values: \[([\d, ]+)\]", self.job)
        self.assertEqual(
            [[int(code) for code in codes.split(",")] for codes in listed],
            [[known["kStoppedStatus"]], [known["kUsage"], known["kBug"]]],
        )

    def test_variables_are_set_and_used(self):
        names = set(re.findall(r"- name: ([A-Z_]+)", self.job)) - {"OMP_NUM_THREADS"}
        self.assertEqual(names, set(re.findall(r"\$\((\w+)\)", self.job)))
        self.assertIn("NODE_RANK", names)

    def test_options_keys_and_configurations_are_known(self):
        sources = text_of("src/cli/train_verbs.cpp")
        arguments = re.findall(r"- (--[\w-]+)=(\S+)", self.job)
        keys = set(config_keys(json.loads(text_of("configs/schema.json"))))
        of_launch = {"--ranks", "--nodes", "--node", "--master", "--run-id"}
        self.assertEqual(
            {option for option, _ in arguments}, {"--config", "--set", "--resume"} | of_launch
        )
        for option, value in arguments:
            self.assertIn(f'"{option}"', sources)
            if option == "--config":
                self.assertTrue((ROOT / "configs" / value).exists(), value)
            if option == "--set":
                self.assertIn(value.partition("=")[0], keys)

    def test_machines_are_counted_once(self):
        counts = re.findall(r"(?:completions|parallelism): (\d+)", self.job)
        counts += re.findall(r"--nodes=(\d+)", self.job)
        self.assertEqual(len(counts), 3)
        self.assertEqual(len(set(counts)), 1, counts)
        ranks = re.findall(r"(?:--ranks=|nvidia\.com/gpu: )(\d+)", self.job)
        self.assertEqual((len(ranks), len(set(ranks))), (2, 1), ranks)


# --- linters --------------------------------------------------------------------------------------


class Linters(unittest.TestCase):
    def test_hooks_are_those_of_the_contribution_guide(self):
        programs = re.findall(r"^ +entry: (\S+)", text_of(".pre-commit-config.yaml"), re.M)
        self.assertEqual(set(programs), {"clang-format", "shellcheck", "ruff"})
        guide = text_of("CONTRIBUTING.md")
        for program in programs:
            self.assertIn(program, guide)

    def test_debian_has_those_that_pip_has_not(self):
        installer = text_of("scripts/install_deps.sh")
        lists = dict(re.findall(r"^(dev|tools)=\((.*)\)$", installer, re.M))
        self.assertLessEqual({"clang-format", "shellcheck"}, set(lists["tools"].split()))
        self.assertIn("ccache", lists["dev"].split())
        self.assertIn('pip" install ruff==', text_of(".github/workflows/style.yml"))

    def test_widths_are_the_same(self):
        widths = set(re.findall(r"max_line_length = (\d+)", text_of(".editorconfig")))
        widths |= set(re.findall(r"^ColumnLimit: (\d+)", text_of(".clang-format"), re.M))
        widths |= set(re.findall(r"^line-length = (\d+)", text_of("pyproject.toml"), re.M))
        self.assertEqual(widths, {"100"})


if __name__ == "__main__":
    unittest.main()
