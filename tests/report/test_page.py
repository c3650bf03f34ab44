"""The page as a file."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.squares import Squares, nearest
from smoothcert import SmoothedClassifier
from smoothcert.errors import InputError
from smoothcert.report.contents import Contents
from smoothcert.report.curves import gather, table_radii
from smoothcert.report.page import build_page, embed, headline, headline_radius, page_data, printable, top_probability
from smoothcert.report.write import write_report


@given(
    st.recursive(
        st.text() | st.floats(allow_nan=False, allow_infinity=False),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_embedded_data_is_inert_and_comes_back(value):
    text = embed(value)
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == value


@given(st.text())
def test_what_is_shown_has_no_controls_and_no_change_of_direction(text):
    shown = printable(text)
    assert len(shown) == len(text)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    assert printable(shown) == shown


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_hostile_names_add_no_element_and_nothing_is_loaded(squares):
    curves = gather([squares])
    elements = Elements(build_page(Contents(curves, table_radii(curves)))).found
    assert [tag for tag, _ in elements].count("script") == 2
    assert not {"b", "img", "link", "iframe"} & {tag for tag, _ in elements}
    assert not any({"src", "onerror", "onload"} & set(attributes) for _, attributes in elements)
    policy = next(a["content"] for _, a in elements if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_headline_counts_what_was_certified(squares):
    curves = gather([squares])
    title, facts = headline(Contents(curves, table_radii(curves)), None)
    told, at = re.fullmatch(r"(\d+) of 36 inputs .* smaller than ([\d.]+) can alter it\.", title).groups()
    count = int((curves[0].won >= float(at)).sum())
    assert int(told) == count
    assert f"{count} of 36 inputs" in facts[0]
    assert "at most 1 in 1,000" in facts[0]


def test_many_inputs_are_told_in_percent_and_few_with_what_they_may_hide(log_run):
    for inputs, title_starts, few in ((120, "75\u00a0% of the inputs", False), (12, "9 of 12 inputs", True)):
        run = log_run(inputs / 100, [(1, 1, 0.3)] * (3 * inputs // 4) + [(0, 1, 0.3)] * (inputs // 4))
        title, facts = headline(Contents(gather([run]), np.array([0.25])), None)
        assert title.startswith(title_starts)
        assert any("12 inputs are few" in fact for fact in facts) is few
    # R: binom.test(9, 12)$conf.int
    assert any("from 43 to 95\u00a0%" in fact for fact in facts)


@pytest.mark.parametrize(
    ("largest", "at"), [(0.09, 0.05), (0.31, 0.25), (0.63, 0.5), (0.99, 0.5), (1.2, 1.0), (1.8, 1.0), (2.3, 2.0)]
)
def test_the_headline_has_a_radius_that_a_person_would_choose(log_run, largest, at):
    curves = gather([log_run(0.5, [(1, 1, largest)] * 3)])
    contents = Contents(curves, table_radii(curves))
    assert headline_radius(curves, contents) == at
    asked = Contents(curves, np.array([largest / 2]))
    assert headline_radius(curves, asked) == largest / 2


def test_an_imported_log_shows_its_draws_and_classes(log_run):
    run = log_run(0.5, [(1, 1, 0.3), (4, 4, 0.1)])
    assert run.draws == 2 * 100_100
    (curve,) = gather([run])
    made = dict(page_data(Contents([curve], np.array([0.25])), [None])["runs"][0]["made"])
    assert made["classes"] == "5"
    assert made["draws"].startswith("100 to select the class, 100,000 to prove")


def test_an_adaptive_run_is_shown_by_its_own_rule_at_the_radii_it_was_asked_for(tmp_path):
    smoothed = SmoothedClassifier(nearest, sigma=0.6, num_classes=4, batch=100, seed=0)
    run = smoothed.certify_dataset(Squares(), out=tmp_path / "r", radii=[0.2, 0.4], max_n=500)
    (curve,) = gather([run])
    assert table_radii([curve]).tolist() == [0.2, 0.4]
    assert set(curve.won.tolist()) <= {-1.0, 0.2, 0.4}
    assert curve.draws == run.draws


def test_a_run_that_certifies_nothing_says_so(log_run):
    curves = gather([log_run(0.25, [(0, -1, 0.0), (1, 0, 0.3)])])
    assert headline(Contents(curves, np.array([0.25])), None)[0].startswith("No input")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "docx"}, "unknown format"),
        ({"rho": 0.0}, "rho"),
        ({"radii": ["0.25", "x"]}, "positive numbers"),
        ({"names": ["a", "b"]}, "each run one name"),
        ({"methods": ["magic"]}, "unknown method"),
        ({"estimated": True}, "certify with `lipschitz` local"),
    ],
)
def test_a_wrong_call_says_what_to_do_and_writes_nothing(squares, tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        write_report([squares], tmp_path / "report.html", **change)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_was_given_up_before_any_estimation_is_in_no_distribution(tmp_path):
    smoothed = SmoothedClassifier(nearest, sigma=0.25, num_classes=4, batch=100, seed=0)
    run = smoothed.certify_dataset(Squares(), out=tmp_path / "run", radii=[0.9])
    drawn = run.tally.estimations.sum(axis=1) > 0
    assert 0 < drawn.sum() < len(run)
    assert len(top_probability(run)) == drawn.sum()
    assert top_probability(run).min() >= 0.25
