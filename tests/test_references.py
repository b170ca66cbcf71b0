"""References into docs/spec lead somewhere, codes are defined once, and each has a test or a reason why not."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from .support import references as refs
from .support.references import CODES, README, pages, relative


@cache
def defined() -> frozenset[str]:
    return frozenset(each.code for each in refs.definitions())


def test_every_reference_of_the_code_leads_to_a_section_of_a_page() -> None:
    found = refs.references_of_sources()
    assert len(found) > 300
    assert [f"{each.place} {each.text}" for each in found if not each.resolves()] == []


def test_every_reference_of_a_page_leads_to_a_section() -> None:
    found = refs.references_of_pages()
    assert len(found) > 300
    assert [f"{each.place} {each.text}" for each in found if not each.resolves()] == []


def test_every_code_is_defined_once_and_where_its_family_says() -> None:
    found = refs.definitions()
    assert [code for code, count in Counter(each.code for each in found).items() if count > 1] == []
    for each in found:
        family = refs.FAMILIES[each.letters]
        page = pages()[each.page]
        assert each.page == family.page, f"{each.code} is defined on {each.page}"
        number = page.section_at(each.line).number
        expected = ("2.2", "2.4") if family.letters == "MU" else (family.section,)
        assert number.startswith(expected), f"{each.code} is defined in {each.page} §{number}"
    assert {each.letters for each in found} == set(refs.FAMILIES)


def test_every_code_in_use_is_defined() -> None:
    undefined = []
    for path, text in refs.sources().items():
        undefined += [(relative(path), code) for _, code in refs.codes_in(text) if code not in defined()]
    for page in pages().values():
        codes = refs.codes_in("\n".join(page.lines), page.name)
        undefined += [(page.name, code) for _, code in codes if code not in defined()]
    assert undefined == []


def test_every_proposal_in_use_is_explained() -> None:
    explained = refs.proposals()
    assert len(explained) == len(set(explained))
    texts = [*refs.sources().values(), *("\n".join(page.lines) for page in pages().values())]
    used = {code for text in texts for code in re.findall(r"\bBP-\d+\b", text)}
    assert used == set(explained)


def test_every_code_has_a_test_or_a_reason_and_no_reason_is_superfluous() -> None:
    excused = [code for codes, _ in refs.reasons() for code in codes]
    tested = set(refs.tests_by_code())
    assert len(excused) == len(set(excused))
    assert set(excused) <= defined(), "a reason for what is not a code"
    assert [code for code in excused if code in tested or code in refs.waiting()] == [], "has a test: no reason needed"
    missing = [each.code for each in refs.definitions() if each.code not in {*tested, *excused, *refs.waiting()}]
    assert missing == [], "name these codes in their tests, or say in docs/spec/README.md why there is none"


def test_the_table_of_codes_is_up_to_date() -> None:
    assert CODES.read_text() == refs.codes_page(), "make docs"


def test_the_front_page_names_every_page_and_family() -> None:
    text = README.read_text()
    assert [name for name in pages() if f"]({name}.md)" not in text] == []
    assert [letters for letters in refs.FAMILIES if f"| {letters} |" not in text] == []


def test_what_counts_as_a_reference() -> None:
    text = "spec client §9.5,\n# §9.6; scenarios 33, 37 to 39. V2 (§1) spec bookie-server §2.4 and wire-protocol §13: 2"
    assert [(each.page, each.number, each.rows) for each in refs.references("tests/x.py", text)] == [
        ("client", "9.5", ()),
        ("client", "9.6", ()),
        ("client", "1", ()),
        ("bookie-server", "2.4", ()),
        ("wire-protocol", "13", (2,)),
        ("client", "17", (33, 37, 38, 39)),
    ]
    on_a_page = refs.references("docs/spec/safety.md", "client §1, §2 and (§3), section 4.1", "safety")
    assert [(each.page, each.number) for each in on_a_page] == [
        ("client", "1"),
        ("client", "2"),
        ("safety", "3"),
        ("safety", "4.1"),
    ]


def test_what_counts_as_a_code() -> None:
    text = "PI-1,2, BI-3 to BI-5 (A1, A2), MU-7..8, test_A1, V2, UTC-5, G4: FX-9/10"
    found = " ".join(sorted(code for _, code in refs.codes_in(text)))
    assert found == "A1 A2 BI-3 BI-4 BI-5 FX-10 FX-9 G4 MU-7 MU-8 PI-1 PI-2"
    assert [code for _, code in refs.codes_in("A1 of G2", "bookie-server")] == ["G2"]
