"""The four nouns: each refuses what it cannot be, and two plans tell in what they differ."""

import dataclasses
import math
from fractions import Fraction

import pytest
from hypothesis import given

from plan.nouns import may_be_asked, plans
from smoothcert import Cluster, FixedN, InputError, Labels, Question, Softmax, UntilRadii, UntilWidth
from smoothcert.plan import Classifier, Plan, Selection, Setting, differences
from smoothcert.records import flat

PLAN = Plan(Classifier(0.5, 3, votes=Labels()), Question(draws=FixedN(1000, "cpm")), Setting(), Selection(total=5))
NO_NUMBERS = (None, "1", True, [1], math.nan)
NOT_WHOLE = (*NO_NUMBERS, 0, -1, 1.0, 0.5)


def bad(noun, name, values, **others):
    return [pytest.param(noun, {**others, name: value}, id=f"{noun.__name__} {name} {value!r}") for value in values]


@pytest.mark.parametrize(
    ("noun", "values"),
    [
        *bad(Classifier, "sigma", (*NO_NUMBERS, 0, -0.5, math.inf), num_classes=3),
        *bad(Classifier, "num_classes", (*NOT_WHOLE, 1, 1 << 21), sigma=0.5),
        *bad(Classifier, "noise", (None, 1, "uniform", ["grid"]), sigma=0.5, num_classes=3),
        *bad(Classifier, "levels", NOT_WHOLE[1:], sigma=0.5, num_classes=3, noise="grid"),
        *bad(Classifier, "levels", (255,), sigma=0.5, num_classes=3, noise="gaussian"),
        *bad(Classifier, "votes", (None, "labels", Labels, 1), sigma=0.5, num_classes=3),
        *bad(Question, "n0", (*NOT_WHOLE, 1 << 50)),
        *bad(Question, "alpha", (*NO_NUMBERS[3:], "much", None, 0, 1, -0.1, 1.5)),
        *bad(Question, "draws", (None, 100, "fixed", FixedN)),
        *bad(Question, "lipschitz", ("", "steep", 0, -1.0, True, math.nan, math.inf, [1.0])),
        *bad(FixedN, "n", (*NOT_WHOLE, 1 << 50)),
        *bad(UntilRadii, "radii", (None, 0.1, "0.1", (), (0.0,), (-1.0,), (0.2, 0.1), (0.1, 0.1), (math.nan,))),
        *bad(UntilRadii, "radii", ((math.inf,), ("a",), ((0.1,), (0.1, 0.2)), (True,))),
        *bad(UntilRadii, "max_n", (*NOT_WHOLE, 150, 1 << 50), radii=(0.1,)),
        *bad(UntilRadii, "futility", (*NO_NUMBERS, -0.1, 0.5), radii=(0.1,)),
        *bad(UntilWidth, "width", (*NO_NUMBERS, 0.0, 1.0, 1.5)),
        *bad(Setting, "batch", (*NOT_WHOLE, "huge")),
        *bad(Setting, "seed", (*NO_NUMBERS[1:], 0.5)),
        *bad(Selection, "skip", NOT_WHOLE),
        *bad(Selection, "limit", NOT_WHOLE[1:]),
        *bad(Selection, "total", (*NO_NUMBERS, -1, 1 << 40)),
        *bad(Cluster, "workers", NOT_WHOLE),
        *bad(Cluster, "cpus", NOT_WHOLE, workers=1),
        *bad(Cluster, "gpus", (*NO_NUMBERS, -1, 1.5, math.inf), workers=1),
    ],
)
def test_a_noun_refuses_what_it_cannot_be_in_one_sentence(noun, values):
    with pytest.raises(InputError) as refusal:
        noun(**values)
    sentence = str(refusal.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert ". " not in sentence


@pytest.mark.parametrize("noun", [Classifier, Question, Setting, Selection, Softmax, UntilRadii])
def test_a_noun_does_not_change(noun):
    made = {Classifier: PLAN.classifier, UntilRadii: UntilRadii(radii=(0.1,))}.get(noun) or noun()
    name = dataclasses.fields(noun)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, name, 1)


def test_a_grid_is_that_of_8_bit_images_unless_told():
    assert Classifier(0.5, 3, noise="grid").levels == 255
    assert Classifier(0.5, 3, noise="grid", levels=16).levels == 16
    assert Classifier(0.5, 3).levels is None


@pytest.mark.parametrize(
    ("draws", "adaptive", "radii", "most"),
    [
        (FixedN(700), False, (), 700),
        (UntilRadii(radii=(0.1, 0.3), max_n=500), True, (0.1, 0.3), 500),
        (UntilWidth(width=0.1, max_n=500), True, (), 500),
    ],
)
def test_what_a_plan_says_of_its_draws(draws, adaptive, radii, most):
    plan = dataclasses.replace(PLAN, question=Question(draws=draws))
    assert (plan.adaptive, plan.radii, plan.question.draws.most) == (adaptive, radii, most)


def test_the_level_is_alpha_less_the_error_of_the_noise():
    plan = dataclasses.replace(PLAN, noise_error=0.0004)
    assert plan.level == pytest.approx(0.0006)
    assert Fraction(plan.level) < Fraction(plan.question.alpha) - Fraction(plan.noise_error)
    assert PLAN.level == PLAN.question.alpha
    with pytest.raises(InputError, match="is not above"):
        dataclasses.replace(PLAN, noise_error=0.001)


@pytest.mark.parametrize("change", [{"noise_error": -1e-9}, {"constant": 0.0}, {"constant": math.nan}])
def test_numbers_that_a_plan_cannot_have(change):
    with pytest.raises(ValueError, match="out of range"):
        dataclasses.replace(PLAN, **change)


@pytest.mark.parametrize(
    ("part", "change", "found"),
    [
        ("classifier", {"sigma": 0.25}, {("sigma", 0.5, 0.25)}),
        ("classifier", {"votes": Softmax(0.2)}, {("votes", "labels", "softmax"), ("temperature", None, 0.2)}),
        ("classifier", {"noise": "grid"}, {("noise", "gaussian", "grid"), ("levels", None, 255)}),
        ("question", {"alpha": 0.01}, {("alpha", 0.001, 0.01)}),
        ("question", {"draws": FixedN(1000, "mono")}, {("method", "cpm", "mono")}),
        ("question", {"draws": FixedN(2000, "cpm")}, {("n", 1000, 2000)}),
        (
            "question",
            {"draws": UntilWidth(width=0.1)},
            {("n", 1000, None), ("method", "cpm", None), *{("width", None, 0.1), ("max_n", None, 100_000)}}
            | {("futility", None, 0.05)},
        ),
        ("setting", {"seed": 7}, {("seed", None, 7)}),
        ("setting", {"cluster": Cluster(workers=3)}, set()),
        ("selection", {"shard": (1, 2), "total": 3}, {("shard", None, (1, 2)), ("total", 5, 3)}),
    ],
)
def test_plans_tell_in_what_they_differ(part, change, found):
    now = dataclasses.replace(PLAN, **{part: dataclasses.replace(getattr(PLAN, part), **change)})
    assert set(differences(PLAN, now)) == found
    assert {(name, b, a) for name, a, b in differences(now, PLAN)} == found


@given(plans, plans)
def test_plans_without_differences_have_equal_nouns(one, other):
    assert not list(differences(one, one))
    nouns = ("classifier", "question", "setting", "selection")
    one = dataclasses.replace(one, constant=None)  # a constant belongs to its question
    mixed = [dataclasses.replace(one, **{noun: getattr(other, noun)}) for noun in nouns]
    for noun, now in zip(nouns, mixed, strict=True):
        if may_be_asked(now):
            assert bool(list(differences(one, now))) == (getattr(one, noun) != getattr(other, noun))


@given(plans)
def test_no_two_nouns_have_a_value_of_one_name(plan):
    names = [name for noun in (plan.classifier, plan.question, plan.setting, plan.selection) for name in flat(noun)]
    assert len(names) == len(set(names))
