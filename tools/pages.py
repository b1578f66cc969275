# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Pages of docs/ of which commands write a part."""
import pathlib

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
TO = "<!-- Up to here. -->\n"


def write(page, target, text):
    """Puts a text where a target of make writes in a page."""
    start = f"<!-- Written by `make {target}`. -->\n"
    path = DOCS / page
    before, rest = path.read_text().split(start)
    path.write_text(before + start + text + TO + rest.split(TO)[1])
