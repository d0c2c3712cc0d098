#!/usr/bin/env python3
"""Tests that the Python of this repository is one package, which needs neither installation nor
anything that is not Python's own.

PYTHONPATH=scripts tests/scripts/package_test.py [CLASS[.TEST] ...]
"""

import os
import pathlib
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import mpretrain_tools

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What draws, and what is about PyTorch.
NEED_MORE = {"plots.pyplot", "bench.pytorch_step", "bench.torch_gpu_step", "torch_llama"}
CPP = {".h", ".cpp", ".cu", ".cuh"}
LONGEST_SCRIPT = 25  # lines, of a file that starts what is in the package


def modules():
    """Names of the package's modules, without its own."""
    prefix = f"{mpretrain_tools.__name__}."
    return [
        found.name.removeprefix(prefix)
        for found in pkgutil.walk_packages(mpretrain_tools.__path__, prefix)
    ]


def python_files():
    return [path for part in ("scripts", "tests", "bench") for path in (ROOT / part).rglob("*.py")]


def run_bare(code, directory, path):
    """Python without packages of the site, elsewhere."""
    return subprocess.run(
        [sys.executable, "-B", "-S", "-c", code],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(path)},
    )


class Package(unittest.TestCase):
    def test_every_module_is_imported_where_nothing_is_installed(self):
        names = [name for name in modules() if name not in NEED_MORE]
        self.assertGreater(len(names), 40)
        self.assertIn("with_parent", names)
        code = "import importlib\n" + "\n".join(
            f"importlib.import_module('mpretrain_tools.{name}')" for name in names
        )
        with tempfile.TemporaryDirectory() as elsewhere:
            done = run_bare(code, elsewhere, ROOT / "scripts")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_directory_of_it_is_a_package(self):
        found = {path.parent for path in (ROOT / "scripts/mpretrain_tools").rglob("*.py")}
        self.assertEqual([str(path) for path in found if not (path / "__init__.py").exists()], [])

    def test_alone_it_takes_the_working_directory_for_the_repository(self):
        code = "from mpretrain_tools import repository; print(repository.ROOT)"
        with tempfile.TemporaryDirectory() as elsewhere:
            package = pathlib.Path(elsewhere, "installed/mpretrain_tools")
            package.mkdir(parents=True)
            for name in ("__init__.py", "descriptors.py", "repository.py"):
                (package / name).write_bytes((ROOT / "scripts/mpretrain_tools" / name).read_bytes())
            done = run_bare(code, ROOT, package.parent)
            self.assertEqual(done.stdout.strip(), str(ROOT))
            done = run_bare(code, elsewhere, ROOT / "scripts")
            self.assertEqual(done.stdout.strip(), str(ROOT))


class Style(unittest.TestCase):
    def test_no_line_is_wider_than_100(self):
        wide = [
            f"{path.relative_to(ROOT)}:{number}"
            for path in python_files()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if len(line) > 100
        ]
        self.assertEqual(wide, [])

    def test_no_comment_of_the_sources_is_wider_than_100(self):
        """Of whole lines, which clang-format leaves alone; tables and formulas may be."""
        sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in CPP]
        wide = [
            f"{path.relative_to(ROOT)}:{number}"
            for path in sources
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if len(line) > 100 and re.match(r" *// \S", line)
        ]
        self.assertGreater(len(sources), 100)
        self.assertEqual(wide, [])

    @unittest.skipUnless(shutil.which("ruff"), "ruff is not installed")
    def test_ruff_has_nothing_to_say(self):
        done = subprocess.run(
            ["ruff", "check", "--no-cache", "-q", "scripts", "tests"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout)


class Scripts(unittest.TestCase):
    def test_no_file_looks_for_modules_itself(self):
        changed = "sys." + "path"
        found = [
            str(path.relative_to(ROOT))
            for path in python_files()
            if changed in path.read_text(encoding="utf-8")
        ]
        self.assertEqual(found, [])

    def test_scripts_only_start_what_is_in_the_package(self):
        for path in sorted((ROOT / "scripts").glob("*.py")):
            with self.subTest(script=path.name):
                text = path.read_text(encoding="utf-8")
                self.assertTrue(text.startswith("#!/usr/bin/env python3\n"))
                self.assertIn("from mpretrain_tools", text)
                self.assertLessEqual(text.count("\n"), LONGEST_SCRIPT)
                self.assertTrue(os.access(path, os.X_OK))


if __name__ == "__main__":
    unittest.main()
