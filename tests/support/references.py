"""References into docs/spec, and the codes that its pages define.

`python -m tests.support.references docs/spec/codes.md` writes the table of codes (`make docs` does); `test_references`
checks that it is what this module writes, and that every reference leads somewhere. How to cite is in
`docs/spec/README.md`, and so are the reasons why some codes have no test: that table is kept by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.scenarios.register import read_register

ROOT = Path(__file__).parent.parent.parent
SPEC = ROOT / "docs" / "spec"
README, CODES = SPEC / "README.md", SPEC / "codes.md"
OWN = {ROOT / "tests" / "support" / "references.py", ROOT / "tests" / "test_references.py"}
"""They speak about references."""


# --- pages and their sections ---


@dataclass(frozen=True)
class Section:
    """What a number of a page leads to: a heading, or a paragraph or row with a number of its own below one."""

    number: str
    anchor: str
    lines: range


@dataclass
class Page:
    """One page of the specification."""

    name: str
    lines: list[str]
    sections: dict[str, Section] = field(default_factory=dict)
    anchors: set[str] = field(default_factory=set)

    def body(self, number: str) -> str:
        return "\n".join(self.lines[line] for line in self.sections[number].lines)

    def section_at(self, line: int) -> Section:
        """The innermost section around a line."""
        around = [section for section in self.sections.values() if line in section.lines]
        return min(around, key=lambda section: len(section.lines))

    def resolves(self, number: str) -> bool:
        """Whether there is such a section, or such a numbered row or item in the section above it."""
        above, _, row = number.rpartition(".")
        return number in self.sections or (above in self.sections and int(row) in self.rows(above))

    def rows(self, number: str) -> set[int]:
        """The numbers of the list items and of the rows of tables in a section."""
        return {int(row) for row in re.findall(r"^(?:\| )?(\d+)(?:\. | \|)", self.body(number), re.M)}


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


_HEADING = re.compile(r"(#{1,6}) (.+)")
_NUMBER = re.compile(r"(?:§ ?)?(\d+(?:\.\d+)*)\.?(?: |$)")
_PARAGRAPH = re.compile(r"\*\*(\d+\.\d+)(?: / (\d+\.\d+))?\b")
_ANCHOR = re.compile(r'<a (?:id|name)="([^"]+)"')


def read_page(path: Path) -> Page:
    """A page, its sections and anchors."""
    page = Page(path.stem, path.read_text().splitlines())
    headings: list[tuple[int, int, str, str]] = []
    """Line, level, number (may be empty), anchor."""
    fenced = False
    for index, line in enumerate(page.lines):
        fenced ^= line.startswith("```")
        page.anchors.update(_ANCHOR.findall(line))
        if fenced:
            continue
        if heading := _HEADING.fullmatch(line):
            anchor = free = slug(heading[2])
            again = 0
            while free in page.anchors:
                again += 1
                free = f"{anchor}-{again}"
            page.anchors.add(free)
            numbered = _NUMBER.match(heading[2])
            headings.append((index, len(heading[1]), numbered[1] if numbered else "", free))
        elif headings and (paragraph := _PARAGRAPH.match(line)):
            headings += [(index, 7, number, headings[-1][3]) for number in paragraph.groups() if number]
    for position, (index, level, number, anchor) in enumerate(headings):
        ends = (start for start, other, *_ in headings[position + 1 :] if other <= level and start > index)
        if number and number not in page.sections:
            page.sections[number] = Section(number, anchor, range(index, next(ends, len(page.lines))))
    return page


@cache
def pages() -> dict[str, Page]:
    """The pages of the specification by name."""
    return {path.stem: read_page(path) for path in sorted(SPEC.glob("*.md")) if path not in (README, CODES)}


# --- what refers to them ---


@cache
def sources() -> dict[Path, str]:
    """Everything that may cite the specification, itself left out."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "decisions").glob("*.md")]
    for directory in ("src", "tests", "bench"):
        found += [path for kind in ("py", "md", "txt") for path in (ROOT / directory).rglob(f"*.{kind}")]
    return {path: path.read_text() for path in sorted(found) if path not in OWN}


@dataclass(frozen=True)
class Reference:
    """A place that says: look there."""

    place: str
    """file:line"""
    text: str
    page: str | None
    number: str
    rows: tuple[int, ...] = ()

    def resolves(self) -> bool:
        if self.page not in pages() or not pages()[self.page].resolves(self.number):
            return False
        return not self.rows or set(self.rows) <= pages()[self.page].rows(self.number)


_NAMES = "autorecovery-admin|bookie-server|bookie-storage|client|metadata|safety|streams|wire-protocol"
_GAP = r"(?:\s|#\s)*"  # a line may end between the words of a reference, also in a comment
_ROWS = r"\d+(?:(?:,| to| and|\u2013)" + _GAP + r" ?\d+(?!\w|\.\d))*"
_SECTION = re.compile(
    rf"(?:(?P<page>\b(?:{_NAMES}))(?:\.md)?[`)]*{_GAP}|(?P<more>(?:,|;|\u2013| to| and| or){_GAP} ?))?"
    rf"§ ?(?P<number>\d+(?:\.\d+)*)(?:(?:: | no\. )(?P<rows>{_ROWS}))?"
)
_PLAIN = re.compile(rf"\b(?P<page>{_NAMES})(?:\.md)?`? (?P<number>\d+\.\d+(?:\.\d+)?)\b")
_WORDS = re.compile(rf"\b[Ss]ections? (?P<number>\d+(?:\.\d+)*)(?:(?:,| and){_GAP} ?(?P<next>\d+(?:\.\d+)*))?\b")
_SCENARIO = re.compile(rf"\b[Ss]cenarios? (?P<rows>{_ROWS})(?!\w|\.\d)")
_CONFORMANCE = re.compile(rf"\b[Cc]onformance tests? (?P<rows>{_ROWS})")


def _numbers(rows: str | None) -> tuple[int, ...]:
    """`1, 3 to 5 and 7` written out."""
    found: list[int] = []
    for joint, number in re.findall(r"(to|\u2013)?[\s#]*(\d+)", rows or ""):
        found += range(found[-1] + 1, int(number)) if joint and found else ()
        found.append(int(number))
    return tuple(found)


def references(place: str, text: str, own: str | None = None) -> Iterator[Reference]:
    """The references of a text. A bare § means the page named before it; on a page (`own`), that page itself."""

    def reference(match: re.Match[str], page: str | None, number: str, rows: str | None = None) -> Reference:
        line = text.count("\n", 0, match.start()) + 1
        return Reference(f"{place}:{line}", " ".join(match[0].split()), page, number, _numbers(rows))

    named, end = own, -1
    for match in _SECTION.finditer(text):
        if match["page"]:
            named = match["page"]
        elif own and not (match["more"] and match.start() == end):
            named = own
        end = match.end()
        yield reference(match, named, match["number"], match["rows"])
    for match in _PLAIN.finditer(text):
        yield reference(match, match["page"], match["number"])
    if own:
        for match in _WORDS.finditer(text):
            yield from (reference(match, own, number) for number in match.groups() if number)
    elif place.startswith("tests/"):
        for match in _SCENARIO.finditer(text):
            yield reference(match, "client", "17", match["rows"])
        for match in _CONFORMANCE.finditer(text):
            yield reference(match, "metadata", "13", match["rows"])


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def references_of_sources() -> list[Reference]:
    return [found for path, text in sources().items() for found in references(relative(path), text)]


def references_of_pages() -> list[Reference]:
    return [
        found
        for page in pages().values()
        for found in references(f"docs/spec/{page.name}.md", "\n".join(page.lines), page.name)
    ]


# --- codes ---


@dataclass(frozen=True)
class Family:
    """Codes with the same letters, defined in one section."""

    letters: str
    page: str
    section: str
    about: str
    column: int = 0
    """Of a table: where the words are, counted behind the code."""
    hyphen: bool = True

    def code(self, number: int) -> str:
        return f"{self.letters}{'-' if self.hyphen else ''}{number}"


FAMILIES = {
    family.letters: family
    for family in (
        Family("PI", "safety", "1.4", "what holds in every state of the protocol"),
        Family("LC", "safety", "1.4", "what holds for a chain of ledgers"),
        Family("LV", "safety", "1.5", "what must happen at last"),
        Family("ACT", "safety", "1.3", "the steps of the protocol"),
        Family("S", "safety", "2.3", "scenarios of safety"),
        Family("MU", "safety", "2.2", "planted bugs"),
        Family("DF", "safety", "3.1", "faults of disks", column=1),
        Family("BI", "safety", "3.2", "what one bookie promises, across crashes"),
        Family("JH", "safety", "3.3", "hazards of the Java code"),
        Family("RI", "safety", "4.1", "what readers and writers can rely on"),
        Family("H", "safety", "4.3", "rules of the history checker", hyphen=False),
        Family("MI", "safety", "5.1", "what the protocol needs of a metadata store"),
        Family("MF", "safety", "5.3", "failures of a metadata store"),
        Family("SR", "safety", "6.4", "rules that keep the code deterministic"),
        Family("RT", "safety", "7.2", "tests with real processes"),
        Family("FX", "safety", "8", "what has hurt users of BookKeeper", column=1),
        Family("SEC", "safety", "9", "hostile and malformed input"),
        Family("GATE", "safety", "10.1", "gates of a release"),
        Family("C", "client", "17", "scenarios of the client"),
        Family("A", "bookie-storage", "15", "defects of Java's storage: to be avoided", hyphen=False),
        Family("R", "bookie-storage", "15", "facts of Java's storage: to be reproduced", hyphen=False),
        Family("G", "bookie-server", "9", "gaps of Java's bookie", hyphen=False),
        Family("I", "bookie-server", "3.2", "the order of things inside a bookie", hyphen=False),
    )
}
LOCAL = {("bookie-server", "A"), ("bookie-storage", "I")}
"""Letters that mean something else on a page: the steps of a start; a mark."""


def _letters(hyphen: bool) -> str:
    return "|".join(sorted((each.letters for each in FAMILIES.values() if each.hyphen == hyphen), reverse=True))


def _range(letters: str, hyphen: str) -> re.Pattern[str]:
    """A code, and what may follow to make it several: `..4`, ` to PI-4`, `,2,3`."""
    return re.compile(
        rf"(?<![\w.§-])(?P<letters>{letters}){hyphen}(?P<first>\d{{1,3}})(?!\w|-\d)"
        rf"(?:(?:\.\.\.?|…|\u2013)(?:(?P=letters){hyphen})?(?P<last>\d+)\b| to (?P=letters){hyphen}(?P<until>\d+)\b"
        r"|(?P<list>(?:[,/]\d+)+)\b)?"
    )


_RANGES = (_range(_letters(True), "-"), _range(_letters(False), ""))


def codes_in(text: str, page: str | None = None) -> Iterator[tuple[int, str]]:
    """Offset and name of the codes in a text, ranges (`PI-1..4`, `A1 to A3`, `PI-1,2`) written out.

    On a page (`page`), codes without a hyphen are looked for only where they are defined.
    """
    for pattern in _RANGES:
        for match in pattern.finditer(text):
            family = FAMILIES[match["letters"]]
            if page and not family.hyphen and (page != family.page or (page, family.letters) in LOCAL):
                continue
            first = int(match["first"])
            last = int(match["last"] or match["until"] or first)
            more = [int(number) for number in re.findall(r"\d+", match["list"] or "")]
            for number in (*range(first, last + 1), *more):
                yield match.start(), family.code(number)


@dataclass(frozen=True)
class Definition:
    """The line that says what a code is."""

    code: str
    page: str
    line: int
    words: str

    @property
    def letters(self) -> str:
        return self.code.rstrip("0123456789").rstrip("-")


_ROW = re.compile(r"\| \**([A-Z]{1,4})(-?)(\d+)\**(?: ([^|]+?))?\** \|(.*)\|\s*")
_BULLET = re.compile(r"\* \*\*([A-Z]{1,4})(-?)(\d+)(?:\*\* (.+)| (.+?)\.?(?:\*\*.*|$))")
_PLANTED = re.compile(r"\|[^|]*\| [^|]*?\**(MU)(-)(\d+)\**(?: \(| |: )([^|]+)\|.*")
_ITEM = re.compile(r"(\d+)\. (.+)")


def definitions() -> list[Definition]:
    """All of them, in the order of the pages; those of one code that is defined twice, too."""
    return [found for page in pages().values() for found in _definitions(page)]


def _definitions(page: Page) -> Iterator[Definition]:
    for index, line in enumerate(page.lines):
        found = _ROW.fullmatch(line) or _BULLET.fullmatch(line)
        if found is None:
            continue
        family = FAMILIES.get(found[1])
        if family is None or family.hyphen != bool(found[2]) or (page.name, family.letters) in LOCAL:
            continue
        words = found[4] or (found[5] if found.re is _BULLET else "")
        if found.re is _ROW and not words:
            words = re.split(r"(?<!\\)\|", found[5])[family.column].strip()
        yield Definition(family.code(int(found[3])), page.name, index, words)
    for family in FAMILIES.values():
        if page.name == family.page:
            yield from _inside(page, family)


def _inside(page: Page, family: Family) -> Iterator[Definition]:
    """Codes that are defined by the number of an item, or inside a row."""
    if family.letters == "C":
        for index in page.sections["17"].lines:
            if item := _ITEM.fullmatch(page.lines[index]):
                yield Definition(family.code(int(item[1])), page.name, index, item[2])
    if family.letters == "MU":
        for index in page.sections["2.2"].lines:
            if (row := _PLANTED.fullmatch(page.lines[index])) and not page.lines[index].startswith("| MU-"):
                yield Definition(family.code(int(row[3])), page.name, index, row[4])


def few_words(text: str, most: int = 90) -> str:
    """The beginning of a defining line, without its markup."""
    text = re.sub(r"\s+", " ", text.replace("**", "")).strip(" .:;")
    if bold := re.match(r"\*([^*]+)\* → ", text):
        text = f"{bold[1]}: {text[bold.end() :]}"
    text = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"\1", text)
    if len(text) > most:
        cut = text[:most]
        stops = [cut.rfind(stop) for stop in ("; ", ". ", ": ", " (", ", ")]
        text = cut[: max(stops)] if max(stops) > most // 3 else cut[: cut.rfind(" ")]
        text = text.rstrip(" ,;:.(") + " …"
    if text.count("`") % 2:
        text = text[: text.rindex("`")].rstrip(" (,") + " …"
    if text.count("(") > text.count(")"):
        text = text[: text.rindex("(")].rstrip(" ,") + " …"
    return text.replace("<", "&lt;")


# --- what shows that they hold ---

CHECKS = ("tests/", "src/bookkeeper/simulation/")
"""The simulated world has checks of its own, which every run of it makes."""
NOT_TESTS = {"__init__.py", "conftest.py", "__main__.py"}


@cache
def tests_by_code() -> dict[str, tuple[str, ...]]:
    """For each code the files with tests or checks that name it; of scenarios, what the register says."""
    found: dict[str, set[str]] = {}
    for path, text in sources().items():
        name = relative(path)
        if not name.startswith(CHECKS) or path.name in NOT_TESTS:
            continue
        if path.suffix == ".md":
            continue
        for _, code in codes_in(text):
            found.setdefault(code, set()).add(name)
    for entry in read_register():
        shown = (each.partition("::")[0] for each in entry.shown)
        files = {f"tests/{each}" if "/" in each else f"tests/scenarios/{each}" for each in shown}
        found.setdefault(entry.key, set()).update(files)
    return {code: tuple(sorted(files)) for code, files in found.items() if files}


@cache
def waiting() -> dict[str, str]:
    """Scenarios that the register keeps for later: what they wait for."""
    return {entry.key: f"waits for {'; '.join(entry.waits)}" for entry in read_register() if not entry.shown}


def reasons() -> Iterator[tuple[tuple[str, ...], str]]:
    """The hand-kept table of `docs/spec/README.md`: codes without a test, and why."""
    text = README.read_text()
    _, heading, rest = text.partition("## Codes without a test\n")
    if not heading:
        return
    for line in rest.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 2 and not cells[0].startswith(("codes", "--")):
            yield tuple(code for _, code in codes_in(cells[0])), cells[1]


def proposals() -> list[str]:
    """The proposals (BP-n) that `docs/spec/README.md` explains, each a row."""
    return re.findall(r"^\| (BP-\d+) \|", README.read_text(), re.M)


def codes_page() -> str:
    """`docs/spec/codes.md`."""
    why = {code: reason for codes, reason in reasons() for code in codes} | waiting()
    lines = [
        "# Codes",
        "",
        "Every code of the specification: what it says in a few words, where it is defined, and the tests that name it",
        "(written by `make docs`). Where there is none it says why; the reasons are kept in [README.md](README.md).",
        "",
        "| family | | defined in |",
        "|---|---|---|",
        *(
            f"| [{family.letters}](#{slug(_heading(family))}) | {family.about} | {_link(family)} |"
            for family in FAMILIES.values()
        ),
    ]
    found = definitions()
    for family in FAMILIES.values():
        lines += ["", f"## {_heading(family)}", "", "| code | | tests |", "|---|---|---|"]
        for each in (each for each in found if each.letters == family.letters):
            anchor = pages()[each.page].section_at(each.line).anchor
            shown = ", ".join(_test(path) for path in tests_by_code().get(each.code, ()))
            shown = shown or f"*none: {why.get(each.code, '?')}*"
            lines.append(f"| [{each.code}]({each.page}.md#{anchor}) | {few_words(each.words)} | {shown} |")
    return "\n".join(lines) + "\n"


def _heading(family: Family) -> str:
    return f"{family.letters}: {family.about}"


def _link(family: Family) -> str:
    return f"[{family.page} §{family.section}]({family.page}.md#{pages()[family.page].sections[family.section].anchor})"


def _test(path: str) -> str:
    return f"[{path.removeprefix('tests/').removeprefix('src/bookkeeper/')}](../../{path})"


def main() -> None:
    Path(sys.argv[1]).write_text(codes_page())


if __name__ == "__main__":
    main()
