"""What is said of people, towns, companies and rivers, and in which words. Pure data.

A relation leads from an entity {x} to another entity or to a plain value {y}. `phrases` name its
value without saying it, so that a question about it can be asked about the phrase: "Who is the
mayor of" "the town where Alda Merrin was born"?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KINDS = ("person", "town", "company", "river")


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """name: as a query would say it. of, to: kinds; to is "" where the value is one of `values`.

    note: as in a list of notes. sentences, questions: wordings that mean the same. phrases: none
    where the value is no entity. before, since: of a value that changed, with {year}. whose: asks
    for any entity that has the value {y}; there may be several.
    """

    name: str
    of: str
    to: str = ""
    note: str
    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    phrases: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    before: str = ""
    since: str = ""
    whose: str = ""


_ALL = (
    Relation(
        name="birthplace",
        of="person",
        to="town",
        note="born in {y}",
        sentences=(
            "{x} was born in {y}.",
            "The birthplace of {x} is {y}.",
            "It was in {y} that {x} came into the world.",
        ),
        questions=(
            "Where was {x} born?",
            "Which town does {x} come from?",
            "In which town did {x} come into the world?",
        ),
        phrases=("the town where {x} was born", "the birthplace of {x}"),
        whose="Name somebody who was born in {y}.",
    ),
    Relation(
        name="employer",
        of="person",
        to="company",
        note="works for {y}",
        sentences=(
            "{x} works for {y}.",
            "The employer of {x} is {y}.",
            "{x} earns a living at {y}.",
        ),
        questions=(
            "Which company does {x} work for?",
            "Where does {x} earn a living?",
            "Who employs {x}?",
        ),
        phrases=("the company where {x} works", "the employer of {x}"),
        before="In {year} {x} worked for {y}.",
        since="Since {year} {x} has worked for {y}.",
        whose="Name somebody who works for {y}.",
    ),
    Relation(
        name="profession",
        of="person",
        note="a {y}",
        sentences=(
            "{x} is a {y} by profession.",
            "By trade {x} is a {y}.",
            "{x} was trained as a {y}.",
        ),
        questions=(
            "What is the profession of {x}?",
            "What is {x} by trade?",
            "As what was {x} trained?",
        ),
        values=(
            "baker", "surveyor", "weaver", "printer", "botanist", "joiner", "lawyer", "nurse",
            "potter", "sculptor", "teacher", "violinist",
        ),
    ),
    Relation(
        name="mayor",
        of="town",
        to="person",
        note="mayor {y}",
        sentences=(
            "The mayor of {x} is {y}.",
            "{y} governs {x}.",
            "The town hall of {x} is run by {y}.",
        ),
        questions=(
            "Who is the mayor of {x}?",
            "Who governs {x}?",
            "Who runs the town hall of {x}?",
        ),
        phrases=("the mayor of {x}", "the person who governs {x}"),
        before="In {year} the mayor of {x} was {y}.",
        since="Since {year} the mayor of {x} has been {y}.",
    ),
    Relation(
        name="river",
        of="town",
        to="river",
        note="on the {y}",
        sentences=(
            "The river {y} flows through {x}.",
            "{x} lies on the {y}.",
            "The bridges of {x} cross the {y}.",
        ),
        questions=(
            "Which river flows through {x}?",
            "On what water does {x} lie?",
            "Which river do the bridges of {x} cross?",
        ),
        phrases=("the river that flows through {x}", "the river on which {x} lies"),
        whose="Name a town on the {y}.",
    ),
    Relation(
        name="craft",
        of="town",
        note="known for {y}",
        sentences=(
            "{x} is known for its {y}.",
            "Visitors of {x} buy {y}.",
            "Most workshops of {x} make {y}.",
        ),
        questions=(
            "What is {x} known for?",
            "What do visitors of {x} buy?",
            "What do most workshops of {x} make?",
        ),
        values=(
            "baskets", "bells", "candles", "carpets", "cheese", "clocks", "honey", "knives", "lace",
            "ropes", "tiles", "whistles",
        ),
    ),
    Relation(
        name="founder",
        of="company",
        to="person",
        note="founded by {y}",
        sentences=(
            "{x} was founded by {y}.",
            "The founder of {x} is {y}.",
            "{y} brought {x} into being.",
        ),
        questions=(
            "Who founded {x}?",
            "Who brought {x} into being?",
            "To whom does {x} owe its beginnings?",
        ),
        phrases=("the founder of {x}", "the person who founded {x}"),
        whose="Name a company that {y} founded.",
    ),
    Relation(
        name="seat",
        of="company",
        to="town",
        note="seat in {y}",
        sentences=(
            "{x} has its seat in {y}.",
            "The head office of {x} is in {y}.",
            "{x} is run from {y}.",
        ),
        questions=(
            "Where does {x} have its seat?",
            "In which town is the head office of {x}?",
            "From which town is {x} run?",
        ),
        phrases=("the town where {x} has its seat", "the seat of {x}"),
        before="In {year} the head office of {x} was in {y}.",
        since="Since {year} the head office of {x} has been in {y}.",
        whose="Name a company that has its seat in {y}.",
    ),
    Relation(
        name="opening year",
        of="company",
        note="opened in {y}",
        sentences=(
            "{x} opened in {y}.",
            "The first workshop of {x} dates from {y}.",
            "{x} has been in business since {y}.",
        ),
        questions=(
            "When did {x} open?",
            "From what year does the first workshop of {x} date?",
            "Since what year has {x} been in business?",
        ),
        values=tuple(str(year) for year in range(1861, 1960, 7)),
    ),
    Relation(
        name="mouth",
        of="river",
        to="town",
        note="ends at {y}",
        sentences=(
            "The {x} ends at {y}.",
            "The mouth of the {x} is at {y}.",
            "The {x} meets the sea at {y}.",
        ),
        questions=(
            "Where does {x} end?",
            "At which town is the mouth of {x}?",
            "Where does {x} meet the sea?",
        ),
        phrases=("the town where {x} meets the sea", "the town at the mouth of {x}"),
    ),
    Relation(
        name="length",
        of="river",
        note="{y} km long",
        sentences=(
            "The {x} is {y} km long.",
            "The {x} runs for {y} km.",
            "From spring to mouth the {x} measures {y} km.",
        ),
        questions=(
            "How many km long is {x}?",
            "For how many km does {x} run?",
            "How many km does {x} measure from spring to mouth?",
        ),
        values=tuple(str(length) for length in range(37, 400, 29)),
    ),
)  # fmt: skip
RELATIONS: Mapping[str, Relation] = {one.name: one for one in _ALL}
WORDINGS = 3
"""Sentences and questions of each relation."""
