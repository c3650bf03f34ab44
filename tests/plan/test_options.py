"""Options written once: the keywords, the defaults and the refusals that come from the fields of small types."""

import inspect
from dataclasses import dataclass
from typing import ClassVar

import pytest

from smoothcert import InputError
from smoothcert.options import aside, choice, keep, keywords, make, named, option, options_of, split


@dataclass(frozen=True)
class Walk:
    """As far as one likes."""

    miles: float = option(3.0, help="How far.")
    name: ClassVar[str] = "walk"


@dataclass(frozen=True)
class Ride:
    """Needs a horse."""

    horse: str = option(help="Which horse.")
    miles: float = option(20.0, help="How far.")
    saddle: bool = option(True, help="With a saddle?")
    name: ClassVar[str] = "ride"


@dataclass(frozen=True)
class Tea:
    sugar: int = option(0, help="Lumps.")
    name: ClassVar[str] = "tea"


@dataclass(frozen=True)
class Water:
    name: ClassVar[str] = "water"


@dataclass(frozen=True)
class Day:
    """A day out."""

    town: str = option(help="Where to.")
    way: Walk | Ride = choice(Walk, Ride)
    drink: Water | Tea = named(Water, Tea, help="water or tea.", panel="Rest")
    umbrella: bool = option(False, help="Take it?", flag="with-umbrella")
    weather: str = "unknown"
    diary: str | None = aside()


@dataclass(frozen=True)
class Guests:
    people: int = option(2, help="How many.")
    sugar: int = option(1, help="Lumps for guests.")


def test_a_choice_follows_what_is_given():
    assert make(Day, {"town": "Ely"}) == Day("Ely", Walk(), Water())
    assert make(Day, {"town": "Ely", "miles": 5.0}).way == Walk(5.0)
    assert make(Day, {"town": "Ely", "horse": "Bess"}).way == Ride("Bess")
    assert make(Day, {"town": "Ely", "horse": "Bess", "miles": 5.0, "saddle": False}).way == Ride("Bess", 5.0, False)
    assert make(Day, {"town": "Ely", "way": Ride("Bess")}).way == Ride("Bess")


def test_a_name_chooses_a_kind():
    assert make(Day, {"town": "Ely", "drink": "tea"}).drink == Tea()
    assert make(Day, {"town": "Ely", "drink": "tea", "sugar": 2}).drink == Tea(2)
    assert make(Day, {"town": "Ely", "drink": "auto"}).drink == Water()
    assert make(Day, {"town": "Ely", "drink": Tea(3)}).drink == Tea(3)


def test_none_is_not_given():
    given = {"town": "Ely", "horse": None, "saddle": None, "sugar": None, "drink": None, "umbrella": None}
    assert make(Day, given) == make(Day, {"town": "Ely"})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "`town` is missing: pass it."),
        ({"saddle": False}, "`saddle` says nothing without `horse`: leave it out."),
        ({"way": Walk(), "miles": 3.0}, "`miles` is part of `way`, which is given whole: leave one of them out."),
        ({"way": Walk(), "horse": "Bess"}, "`horse` is part of `way`, which is given whole: leave one of them out."),
        ({"sugar": 1}, "`sugar` says nothing about water drink: leave it out."),
        ({"drink": "water", "sugar": 1}, "`sugar` says nothing about water drink: leave it out."),
        ({"drink": Tea(1), "sugar": 1}, "`sugar` is part of `drink`, which is given whole: leave one of them out."),
        ({"drink": "gin"}, "unknown drink 'gin': choose one of water, tea."),
        ({"drink": 7}, "unknown drink 7: choose one of water, tea."),
        ({"drink": Water}, "unknown drink <class"),
        ({"weather": "fair"}, "there is no option `weather`: choose from town, "),
        ({"diary": "dear"}, "there is no option `diary`: choose from town, "),
        ({"hat": 1}, "there is no option `hat`: choose from town, miles, horse, saddle, drink, sugar, umbrella."),
    ],
)
def test_what_says_nothing_is_refused_in_one_sentence(given, sentence):
    with pytest.raises(InputError) as refusal:
        make(Day, given if not given else {"town": "Ely", **given})
    assert str(refusal.value).startswith(sentence)


def test_options_are_those_of_the_noun_and_of_its_kinds():
    options = options_of(Day)
    assert list(options) == ["town", "miles", "horse", "saddle", "drink", "sugar", "umbrella"]
    assert [name for name, entry in options.items() if entry.required] == ["town"]
    assert [name for name, entry in options.items() if entry.part] == ["miles", "horse", "saddle", "sugar"]
    assert (options["umbrella"].flag, options["saddle"].flag) == ("with-umbrella", "saddle")
    assert (options["drink"].default, options["drink"].type, options["drink"].panel) == ("auto", str, "Rest")


def test_what_belongs_to_one_noun_and_the_rest():
    given = {"people": 3, "town": "Ely", "sugar": 2, "hat": 1}
    assert split(given, Guests, Day) == ({"people": 3}, {"town": "Ely", "sugar": 2, "hat": 1})


def test_a_function_shows_the_options_as_keywords_and_tells_them():
    @keywords(Day, Guests)
    def plan(where, *, sugar=5, **given):
        """Plans a day."""
        return where, sugar, given

    shown = inspect.signature(plan).parameters
    assert list(shown)[:2] == ["where", "sugar"]
    assert shown["sugar"].default == 5
    assert shown.keys() == {"where", "sugar", "town", "miles", "horse", "saddle", "drink", "umbrella", "people"}
    assert all(p.kind is p.KEYWORD_ONLY for name, p in shown.items() if name != "where")
    assert shown["town"].default is inspect.Parameter.empty
    assert [shown[name].default for name in ("miles", "horse", "drink", "people")] == [3.0, None, "auto", 2]
    assert plan.__doc__.startswith("Plans a day.")
    for line in ("town: Where to.", "horse: Which horse.", "people: How many."):
        assert line in plan.__doc__
    assert "Lumps" not in plan.__doc__
    assert plan("north", town="Ely") == ("north", 5, {"town": "Ely"})


def test_a_frozen_noun_keeps_what_its_checks_return():
    @dataclass(frozen=True)
    class Whole:
        n: int

        def __post_init__(self):
            keep(self, n=int(self.n))

    assert Whole("3") == Whole(3)
