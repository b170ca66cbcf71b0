"""The documentation site: which pages it has, and where they stand. A hook of MkDocs; `make docs` builds the site.

- A page keeps its path in the repository. So a link means the same on the site, in an editor and on a code host.
  README, CONTRIBUTING and CHANGELOG are pages, though they do not stand in docs/.
- The pages `api/*.md` are no files. They are made here, from the lists below; their text is the docstrings'.
- A link to a source file becomes its text, for the site has no sources. A link to a file that is not there stays as it
  is, and MkDocs refuses it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import bookkeeper

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent
TOP_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


class Topic(NamedTuple):
    """A page of the API reference."""

    title: str
    intro: str
    names: tuple[str, ...]


API = {
    "api/client.md": Topic(
        "The client",
        "For asyncio. [The Python client](../docs/client.md) tells what is not in one call.",
        ("bookkeeper.connect", "bookkeeper.BookKeeper", "bookkeeper.BookieInfo", "bookkeeper.Opening"),
    ),
    "api/ledgers.md": Topic(
        "Ledgers",
        "What `create_ledger` and `open_ledger` give. A writer reads, too: it has all calls of a reader.",
        (
            "bookkeeper.LedgerWriter",
            "bookkeeper.LedgerAdvWriter",
            "bookkeeper.LedgerReader",
            "bookkeeper.LedgerEntry",
            "bookkeeper.LastConfirmedAndEntry",
        ),
    ),
    "api/streams.md": Topic(
        "Streams",
        "Unbounded logs over ledgers, by name. For asyncio.",
        (
            "bookkeeper.open_namespace",
            "bookkeeper.Namespace",
            "bookkeeper.StreamWriter",
            "bookkeeper.StreamReader",
            "bookkeeper.Subscriptions",
            "bookkeeper.Record",
            "bookkeeper.Position",
            "bookkeeper.TxId",
            "bookkeeper.EARLIEST",
            "bookkeeper.LATEST",
            "bookkeeper.StreamInfo",
            "bookkeeper.WritePolicy",
            "bookkeeper.Visibility",
            "bookkeeper.Compression",
            "bookkeeper.Replication",
            "bookkeeper.StreamPolicy",
            "bookkeeper.Codec",
            "bookkeeper.KeyedRecord",
            "bookkeeper.RetentionPolicy",
            "bookkeeper.RetentionMode",
            "bookkeeper.Retained",
            "bookkeeper.CheckedSegment",
            "bookkeeper.Maintained",
            "bookkeeper.Staging",
            "bookkeeper.StagedSegment",
            "bookkeeper.SegmentDraft",
            "bookkeeper.PublishKey",
            "bookkeeper.Published",
            "bookkeeper.Collected",
        ),
    ),
    "api/sync.md": Topic(
        "Without an event loop",
        "The names, arguments and errors of the client for asyncio, as plain calls. [The client](client.md), "
        "[ledgers](ledgers.md) and [streams](streams.md) say more about each.",
        (
            "bookkeeper.sync",
            "bookkeeper.sync.connect",
            "bookkeeper.sync.BookKeeper",
            "bookkeeper.sync.LedgerWriter",
            "bookkeeper.sync.LedgerAdvWriter",
            "bookkeeper.sync.LedgerReader",
            "bookkeeper.sync.open_namespace",
            "bookkeeper.sync.Namespace",
            "bookkeeper.sync.StreamWriter",
            "bookkeeper.sync.StreamReader",
            "bookkeeper.sync.Subscriptions",
            "bookkeeper.sync.Staging",
            "bookkeeper.sync.StagedSegment",
        ),
    ),
    "api/spark.md": Topic(
        "Apache Spark",
        "[Ledgers in Apache Spark](../docs/spark.md) has the options, the guarantees and the limits.",
        (
            "bookkeeper.spark.read_ledgers",
            "bookkeeper.spark.lag",
            "bookkeeper.spark.export",
            "bookkeeper.spark.ingest",
            "bookkeeper.spark.mend",
            "bookkeeper.spark.offload",
            "bookkeeper.spark.rebuild",
            "bookkeeper.spark.rereplicate",
            "bookkeeper.spark.scrub",
            "bookkeeper.spark.usage",
            "bookkeeper.spark.enable",
        ),
    ),
    "api/types.md": Topic(
        "Types and configuration",
        "[Settings](../docs/settings.md) has every key of the two configurations.",
        (
            "bookkeeper.BookieId",
            "bookkeeper.DigestType",
            "bookkeeper.WriteFlag",
            "bookkeeper.LedgerState",
            "bookkeeper.LedgerMetadata",
            "bookkeeper.ClientConfiguration",
            "bookkeeper.ServerConfiguration",
        ),
    ),
}

ERRORS = "api/errors.md"

SHOWN = {
    "bookkeeper.sync": [],
    "bookkeeper.ClientConfiguration": ["from_mapping", "from_file", "changed_settings", "refuse_promises"],
    "bookkeeper.ServerConfiguration": ["from_mapping", "from_file", "changed_settings", "refuse_promises"],
}
"""Members of what has too many, or others' too."""


def error_names() -> list[str]:
    """The public errors, bases before what is derived from them."""
    names = [name for name in bookkeeper.__all__ if name.endswith("Error")]
    return sorted(names, key=lambda name: [base.__name__ for base in reversed(getattr(bookkeeper, name).__mro__)])


def api_page(path: str) -> str:
    """The text of a page of the API reference, as MkDocs wants it."""
    if path == ERRORS:
        return _errors_page()
    topic = API[path]
    parts = [f"# {topic.title}", topic.intro]
    for name in topic.names:
        parts.append(f"::: {name}")
        if name in SHOWN:
            parts[-1] += f"\n    options:\n      members: {SHOWN[name]}"
    return "\n\n".join(parts) + "\n"


def _errors_page() -> str:
    rows = []
    for name in error_names():
        error = getattr(bookkeeper, name)
        code = error.__dict__.get("code", "")
        bases = ", ".join(base.__name__ for base in error.__bases__)
        rows.append(f"| `{name}` | {code} | {bases} | {' '.join((error.__doc__ or '').split())} |")
    return "\n".join(
        [
            "# Errors",
            "",
            "All are names of the package `bookkeeper`. The code is BookKeeper's number for what a client reports.",
            "[The Python client](../docs/client.md#errors) says which of them to catch.",
            "",
            "| error | code | kind of | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "::: bookkeeper.BKError",
            "    options:",
            "      members: [code, ledger_id, entry_id, bookie, acknowledged]",
            "      inherited_members: false",
            "",
        ]
    )


# --- called by MkDocs ---


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Give each page its path in the repository, and add those that do not stand in docs/."""
    from mkdocs.structure.files import File, Files

    own = [file for file in files if file.generated_by is not None or Path(file.src_dir or "") != ROOT / "docs"]
    placed = [
        File.generated(config, f"docs/{file.src_uri}", abs_src_path=file.abs_src_path)
        for file in files
        if file not in own
    ]
    top = [File.generated(config, name, abs_src_path=str(ROOT / name)) for name in TOP_PAGES]
    reference = [File.generated(config, path, content=api_page(path)) for path in (*API, ERRORS)]
    return Files([*own, *placed, *top, *reference])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave no link to what is a file of the repository and not of the site."""

    def kept(link: re.Match[str]) -> str:
        if "://" in link[2]:
            return link[0]
        path = os.path.normpath(os.path.join(os.path.dirname(page.file.src_uri), link[2]))
        source = files.get_file_from_path(path) is None and (ROOT / path).exists()
        return link[1] if source else link[0]

    return LINK.sub(kept, markdown)
