"""docs/streams.md, run from top to bottom in one shell."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.pages import BLOCK, run, save

PAGE = Path(__file__).parents[2] / "docs" / "streams.md"


def script(text: str) -> str:
    """Shell as it stands; Python saved under the name that the text before it says, or run at once."""
    parts = []
    end = 0
    for block in BLOCK.finditer(text):
        language, body = block.groups()
        named = re.search(r"Save this as `([\w.]+)`:\s*$", text[end : block.start()])
        end = block.end()
        if language == "sh":
            parts.append(body)
        elif named:
            parts.append(save(named[1], body))
        else:
            parts.append(save("block.py", body) + "python3 block.py\n")
    return "".join(parts)


def test_the_page(tmp_path: Path) -> None:
    printed = run(script(PAGE.read_text().replace("/tmp/", f"{tmp_path}/")), tmp_path)
    assert '"data": "998"' in printed
    assert "nothing is wrong" in printed
    assert "0 b'one'\n1 b'two'\n2 b'three'\n" in printed
    assert "10004 b'9999'" in printed
    assert re.search(r"(?m)^501$", printed), printed
    assert "open\ncolour is blue\nsize is 10\nsize = 11\n" in printed
    assert not (tmp_path / "streams").exists()
