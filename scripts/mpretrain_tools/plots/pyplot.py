"""matplotlib.pyplot, drawing into files, as `plt`; ends the script with what to install where it is
missing.
"""

import pathlib
import sys

try:
    import matplotlib
except ModuleNotFoundError:
    sys.exit(
        f"{pathlib.Path(sys.argv[0]).name}: error: {sys.executable} has no matplotlib; install"
        " python3-matplotlib and use /usr/bin/python3"
    )
matplotlib.use("Agg")
import matplotlib.pyplot as plt

# Letters of an SVG as text, a quarter of the bytes; the same bytes every time.
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "mpretrain"})
