"""`reproduce --all --scale smoke`: the paper's figures and tables, in small, by one command."""

import contextlib
import json
import sqlite3
from importlib import import_module

import pytest
from typer.testing import CliRunner

from smoothcert.cli import app
from smoothcert.errors import InputError
from smoothcert.experiments import CLAIMS

# The package has the claims themselves under these names.
gap, lipschitz_table = (import_module(f"smoothcert.experiments.{name}") for name in ("gap", "lipschitz_table"))


QUICK = ("radii", "confidence", "lipschitz-table", "counter-example")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the command wrote, by claim, and its output folder."""
    out = tmp_path_factory.mktemp("reproduction")
    return written(out, *([claim] for claim in QUICK))


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return written(tmp_path_factory.mktemp("reproduction"), ["--all"])


def written(out, *calls):
    for call in calls:
        result = CliRunner().invoke(app, ["reproduce", *call, "--scale", "smoke", "--out", str(out)])
        assert result.exit_code == 0, result.output
    return {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")} | {"out": out}


@pytest.mark.slow
def test_every_claim_is_written_with_its_setting(everything):
    for claim in CLAIMS:
        assert everything[claim]["claim"] == claim
        assert everything[claim]["scale"] == "smoke"
        assert {"seed", "date", "machine"} <= everything[claim].keys()
    for claim in ("radii", "confidence", "gap"):
        assert (everything["out"] / f"{claim}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (everything["out"] / f"{claim}.svg").read_text()


@pytest.mark.slow
def test_the_linear_network_of_the_appendix(everything):
    assert everything["linear-product"]["true"] == pytest.approx(8.5e-27, rel=2e-3)
    assert everything["linear-product"]["product"]["fourier"] == pytest.approx(2.681e5, rel=3e-4)


def test_the_radii_of_figure_two(found):
    radii = found["radii"]
    at = [min(range(len(radii["p1"])), key=lambda i: abs(radii["p1"][i] - p)) for p in (0.3, 0.6, 0.9, 0.99)]
    assert [round(radii["radii"]["R_multiLip"][i], 4) for i in at] == [0.0517, 0.1067, 0.1774, 0.2443]
    assert [round(radii["radii"]["exact mult"][i], 4) for i in at] == [0.0530, 0.1081, 0.1803, 0.2514]
    assert [round(radii["radii"]["exact mono"][i], 4) for i in at] == [0, 0.0360, 0.1803, 0.3225]


def test_the_whole_level_on_one_pair_proves_more_than_bonferroni(found):
    (panel,) = found["confidence"]["panels"]
    average = panel["average_radius"]
    assert average["pairwise"] > average["cpm"] > average["bonferroni"]
    assert sum(panel["buckets"].values()) == panel["inputs"]


@pytest.mark.slow
def test_a_proved_constant_closes_part_of_the_gap(everything):
    gap = everything["gap"]
    average = gap["average_radius"]
    assert average["no noise"] == average[gap["best_proved_lipschitz"]] > 1.3 * average["duels"]
    assert gap["best_over_duels"] == pytest.approx(average["no noise"] / average["duels"])
    for row in gap["temperatures"]:
        assert row["exact"] > row["R_mult"]
        assert row["share_constant_local_mean"] <= row["share_constant_proved"]
    assert 4.0 in [pytest.approx(row["share_constant_proved"]) for row in gap["temperatures"]]


@pytest.mark.slow
def test_no_attack_on_the_network_finds_what_was_proved_not_to_be_there(everything):
    """Also at ε = 0, where it is accuracy."""
    gap = everything["gap"]
    assert gap["eps"][0] == 0.0
    proved, left = gap["certified_accuracy"]["no noise"], gap["accuracy_under_attack"]["PGD, network"]
    assert all(p <= share for p, share in zip(proved, left, strict=True))
    assert proved[0] == left[0] == 1.0


def test_local_estimates_lie_below_the_proved_product(found):
    for row in found["lipschitz-table"]["networks"]:
        assert row["local_mean"] <= row["local_largest"] <= row["product_proved"]


def test_a_second_time_draws_nothing_and_finds_the_same(found):
    run = next(found["out"].glob("confidence-*.smoothcert"))
    before = _content(run)
    result = CliRunner().invoke(app, ["reproduce", "confidence", "--out", str(found["out"])])
    assert result.exit_code == 0
    assert json.loads((found["out"] / "confidence.json").read_text()) == found["confidence"]
    assert _content(run) == before


def _refuse(*_, **__):
    raise AssertionError("it was computed before")


def test_a_table_that_was_done_is_kept(found, monkeypatch):
    assert_nothing_is_done_again(found, "lipschitz-table", lipschitz_table, ("local", "product"), monkeypatch)


@pytest.mark.slow
def test_a_gap_that_was_measured_is_kept(everything, monkeypatch):
    names = ("pgd", "smoothed_pgd", "draw_scores", "local_constants")
    assert_nothing_is_done_again(everything, "gap", gap, names, monkeypatch)


def assert_nothing_is_done_again(found, claim, module, names, monkeypatch):
    for name in names:
        monkeypatch.setattr(module, name, _refuse)
    result = CliRunner().invoke(app, ["reproduce", claim, "--out", str(found["out"])])
    assert result.exit_code == 0, result.output
    assert json.loads((found["out"] / f"{claim}.json").read_text()) == found[claim]


def test_a_table_that_is_stopped_keeps_the_networks_that_were_done(tmp_path, monkeypatch):
    done, local = [], lipschitz_table.local

    def stopping(model, *arguments, **options):
        if done:
            raise KeyboardInterrupt
        done.append(model)
        return local(model, *arguments, **options)

    monkeypatch.setattr(lipschitz_table, "local", stopping)
    result = CliRunner().invoke(app, ["reproduce", "lipschitz-table", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "keeps what was done: run the same command to go on" in " ".join(result.output.split())
    searched = []
    monkeypatch.setattr(lipschitz_table, "local", lambda *a, **o: searched.append(a[0]) or local(*a, **o))
    result = CliRunner().invoke(app, ["reproduce", "lipschitz-table", "--out", str(tmp_path)])
    assert result.exit_code == 0
    assert len(searched) == 1  # the second of two networks


def test_stopped_before_anything_was_done_it_does_not_say_that_it_keeps_something(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(lipschitz_table, "local", stop)
    result = CliRunner().invoke(app, ["reproduce", "lipschitz-table", "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "Stopped before anything was done" in result.output


def _content(path):
    with contextlib.closing(sqlite3.connect(path)) as file:
        return list(file.iterdump())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name one claim or pass --all"),
        (["radii", "--all"], "name one claim or pass --all"),
        (["theorem"], "unknown claim"),
        (["radii", "--pub", "paper"], "leave it out"),
        (["radii", "--limit", "0"], "limit"),
        (["confidence", "--scale", "paper", "--checkpoints", "nowhere"], "no weights of cifar_resnet110"),
        (["gap", "--scale", "cpu", "--checkpoints", "nowhere"], "no weights of liresnet"),
    ],
)
def test_what_cannot_be_reproduced_is_refused_in_one_sentence(arguments, message, tmp_path):
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
