"""What is written down is read again as it was, whatever kinds it holds; what cannot be one is refused."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plan.nouns import plans, words
from smoothcert import Question, SmoothedClassifier, Softmax
from smoothcert.plan import Classifier, Cluster, Plan, Selection, Setting
from smoothcert.records import flat, record, restore

PLAN = Plan(Classifier(0.5, 3), Question(), Setting(), Selection())


@given(plans)
def test_a_plan_is_read_as_it_was_written(plan):
    assert restore(Plan, json.loads(json.dumps(record(plan)))) == plan


@given(plans, plans)
def test_other_plans_have_other_records(one, other):
    assert (record(one) == record(other)) == (one == other)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.just("kind"), inner, max_size=3),
    max_leaves=5,
)
PLACES = [
    (part, name)
    for part, fields in record(PLAN).items()
    for name in (["", *fields] if isinstance(fields, dict) else [""])
]


@given(st.sampled_from(PLACES), json_values)
def test_a_forged_record_is_a_plan_or_a_value_error(place, value):
    part, name = place
    values = record(PLAN)
    if name:
        values[part][name] = value
    else:
        values[part] = value
    try:
        plan = restore(Plan, values)
    except ValueError:
        return
    assert isinstance(plan, Plan)
    assert json.loads(json.dumps(record(plan)))


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("classifier", {}),
        ("classifier", {"sigma": 0.5}),
        ("classifier", {"sigma": True, "num_classes": 3}),
        ("classifier", {"sigma": 0.5, "num_classes": 3.0}),
        ("classifier", {"sigma": 0.5, "num_classes": 3, "votes": {"kind": "fixed"}}),
        ("classifier", {"sigma": 0.5, "num_classes": 3, "votes": {"kind": ["labels"]}}),
        ("classifier", {"sigma": 0.5, "num_classes": 3, "votes": {"temperature": 1.0}}),
        ("question", {"draws": {"kind": "until-radii"}}),
        ("question", {"draws": {"kind": "until-radii", "radii": [0.2, 0.1]}}),
        ("question", {"draws": {"kind": "until-radii", "radii": 0.2}}),
        ("question", {"draws": None}),
        ("question", {"alpha": float("nan")}),
        ("setting", {"engine": {"engine": "torch"}}),
        ("selection", {"shard": [1, 2, 3]}),
        ("selection", {"shard": [2, 1]}),
        ("selection", []),
    ],
)
def test_what_cannot_be_one(part, values):
    with pytest.raises(ValueError):  # noqa: PT011 (whatever its words: the file that holds it is damaged)
        restore(Plan, {**record(PLAN), part: values})


def test_fields_of_later_versions_are_left_out():
    values = record(PLAN)
    values["remark"] = values["question"]["remark"] = values["question"]["draws"]["remark"] = "a later version's"
    assert restore(Plan, values) == PLAN


def test_fields_that_were_not_there_yet_have_their_defaults():
    values = record(PLAN)
    del values["constant"], values["question"]["lipschitz"], values["classifier"]["votes"]
    assert restore(Plan, values) == PLAN


def test_where_it_is_drawn_is_no_part_of_a_record():
    setting = Setting(cluster=Cluster(workers=2))
    assert "cluster" not in record(setting)
    assert "cluster" not in flat(setting)
    assert restore(Setting, {**record(setting), "cluster": record(Cluster(workers=9))}).cluster is None


def test_all_values_side_by_side():
    classifier = Classifier(sigma=0.5, num_classes=3, votes=Softmax(0.2))
    assert flat(classifier) == {
        "sigma": 0.5,
        "num_classes": 3,
        "noise": "gaussian",
        "levels": None,
        "votes": "softmax",
        "temperature": 0.2,
        "model": "",
    }
    assert flat(Question.of(radii=[0.1], alpha=0.01)) == {
        "n0": 100,
        "max_n": 100_000,
        "futility": 0.05,
        "radii": (0.1,),
        "alpha": 0.01,
        "lipschitz": None,
    }
    assert "temperature" not in flat(Classifier(sigma=0.5, num_classes=3))


def test_a_type_that_is_no_noun_of_ours():
    @dataclass(frozen=True)
    class Shelf:
        books: tuple[str, ...] = ()
        pages: dict[str, int] | None = None

    shelf = Shelf(("a", "b"), {"a": 3})
    assert restore(Shelf, json.loads(json.dumps(record(shelf)))) == shelf
    with pytest.raises(ValueError, match="pages of another type"):
        restore(Shelf, {"pages": {"a": "three"}})


def test_numbers_of_numpy_are_written_like_others(tmp_path):
    smoothing = {"sigma": np.float32(0.5), "num_classes": np.int64(3), "votes": Softmax(np.float32(0.1))}
    smoothed = SmoothedClassifier(lambda b: b.reshape(len(b), -1)[:, :3], **smoothing, seed=np.int32(1), batch=50)
    data = [(np.zeros((1, 2, 2), dtype=np.float32), 0)] * 3
    options = {"n0": np.int16(10), "n": np.int64(20), "alpha": np.float32(0.01), "limit": np.int8(2)}
    run = smoothed.certify_dataset(data, out=tmp_path / "run.smoothcert", **options)
    assert len(run) == 2
    assert json.dumps({**flat(run.plan.question), **flat(smoothed.classifier)})
