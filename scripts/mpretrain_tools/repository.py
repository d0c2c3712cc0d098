"""Where the repository is: around this package, or the working directory where the package is
installed by itself.
"""

import pathlib


def _found():
    around = pathlib.Path(__file__).resolve().parents[2]
    return around if (around / "configs/schema.json").exists() else pathlib.Path.cwd()


ROOT = _found()
CONFIGS = ROOT / "configs"
