"""Other programs' logs in, logs for other programs out."""

import csv
import json
import os

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest

from interruptible import certify
from smoothcert import InputError, SmoothedClassifier, open_run
from smoothcert.store.doctor import diagnose
from smoothcert.store.export import export_run
from smoothcert.store.logs import import_logs

COHEN = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t3\t3\t0.526\t1\t0:00:15.12\n20\t9\t-1\t0.0\t0\t1 day, 0:00:01\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return certify(tmp_path_factory.mktemp("run") / "run.smoothcert", n=500)


def test_tsv_has_the_columns_and_formats_of_cohen(run, tmp_path, shared_data):
    export_run(run, tmp_path / "ours.tsv", "tsv")
    ours = [line.split("\t") for line in (tmp_path / "ours.tsv").read_text().splitlines()]
    log = next((shared_data / "cohen2019").glob("*.tsv"))
    theirs = [line.split("\t") for line in log.read_text().splitlines()]
    assert ours[0] == theirs[0]
    for row, certificate in zip(ours[1:], run.certificates(), strict=True):
        idx, label, predict, radius, correct, time = row
        assert (int(idx) % 3, int(predict)) == (int(label), certificate.prediction)
        assert certificate.radius * (1 - 1e-2) <= float(radius) <= certificate.radius  # rounded down: proved, too
        assert correct == str(int(label == predict))
        assert time.startswith("0:00:")


def test_our_tsv_comes_back(run, tmp_path):
    export_run(run, tmp_path / "log.tsv", "tsv")
    back = import_logs([tmp_path / "log.tsv"], tmp_path / "back.smoothcert", sigma=0.3)
    np.testing.assert_allclose(
        [c.radius for c in back.certificates()], [c.radius for c in run.certificates()], rtol=1e-2
    )
    assert back.info.radii_only


QUOTES = ('"a', "ordinary", 'b"', '"', '""', '"c"', 'd"e', '"=1+1', "'f'", "last")


@pytest.mark.parametrize("kind", ["tsv", "csv"])
def test_no_quote_in_an_index_swallows_rows(tmp_path, kind):
    """Spreadsheets, pandas and the csv module take what begins with a quote to go on until the next."""
    quoted = ('"' + id.replace('"', '""') + '"' for id in QUOTES)
    rows = "".join(f"{id}\t1\t1\t0.5\t1\t0:00:01\n" for id in quoted)
    (tmp_path / "log.tsv").write_text(COHEN.splitlines()[0] + "\n" + rows)
    run = import_logs([tmp_path / "log.tsv"], tmp_path / "run", sigma=0.5)
    assert run.ids == list(QUOTES)
    path, separator = tmp_path / f"out.{kind}", "\t" if kind == "tsv" else ","
    export_run(run, path, kind)
    expected = ["'" + id if "=" in id else id for id in QUOTES]
    with path.open(newline="") as file:
        found = list(csv.reader(file, delimiter=separator))
    assert [row[0] for row in found[1:]] == expected
    assert pandas.read_csv(path, sep=separator).iloc[:, 0].tolist() == expected
    if kind == "tsv":
        assert import_logs([path], tmp_path / "back", sigma=0.5).ids == expected


def test_an_index_with_a_lone_quote_is_itself(tmp_path):
    (tmp_path / "log.tsv").write_text(COHEN.replace("\n0\t", '\n"a\t').replace("20\t", 'b"\t'))
    assert import_logs([tmp_path / "log.tsv"], tmp_path / "run", sigma=0.5).ids == ['"a', 'b"']


def test_every_format_has_every_certificate(run, tmp_path):
    for kind in ("csv", "parquet", "json"):
        assert export_run(run, tmp_path / f"out.{kind}", kind, method="mono", alpha=0.01) == 12
    certificates = run.certificates("mono", 0.01)
    radii = [c.radius for c in certificates]
    with (tmp_path / "out.csv").open() as file:
        assert [float(row["radius"]) for row in csv.DictReader(file)] == radii
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    record = json.loads((tmp_path / "out.json").read_text())["certificates"]
    assert [row["radius"] for row in table] == [row["radius"] for row in record] == radii
    assert [row["estimation"] for row in table] == run.tally.estimations.tolist()
    assert {row["method"] for row in record} == {"mono"}


def test_pandas(run):
    frame = run.to_pandas()
    assert frame["radius"].tolist() == [c.radius for c in run.certificates()]
    assert frame["label"].tolist() == run.labels.tolist()


def test_export_to_where_nothing_can_be_written(run, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        export_run(run, tmp_path / "no" / "folder.csv", "csv")
    with pytest.raises(InputError, match="unknown format 'xml'"):
        export_run(run, tmp_path / "out.xml", "xml")
    assert not list(tmp_path.iterdir())


def test_the_export_of_an_unfinished_run_says_so(tmp_path, caplog):
    def stop(draws, done):
        if done > 0.6:
            raise KeyboardInterrupt

    data = [(np.full(2, k, np.float32), k % 2) for k in range(4)]
    smoothed = SmoothedClassifier(lambda x: x, sigma=0.5, num_classes=2, batch=100, seed=0)
    with pytest.raises(KeyboardInterrupt):
        smoothed.certify_dataset(data, out=tmp_path / "run", n=1000, on_progress=stop)
    count = export_run(open_run(tmp_path / "run"), tmp_path / "out.json", "json")
    assert 0 < count < 4
    assert f"the run is not finished: {tmp_path / 'out.json'} has {count} of 4 inputs" in caplog.text
    assert json.loads((tmp_path / "out.json").read_text())["finished"] is False


def test_a_published_log(shared_data, tmp_path):
    """Certified accuracy at 0.5 of the published table, 0.41, from the log itself."""
    log = shared_data / "cohen2019" / "cifar10__resnet110__noise_0.50__test__sigma_0.50.tsv"
    run = import_logs([log], tmp_path / "cohen.smoothcert", alpha=0.01)
    won = [c.certified_at(0.5) and c.prediction == k for c, k in zip(run.certificates(), run.labels, strict=True)]
    assert round(np.mean(won), 2) == 0.41
    assert (run.plan.classifier.sigma, run.plan.question.alpha, len(run)) == (0.5, 0.01, 500)
    with pytest.raises(InputError, match="holds radii and no votes"):
        run.certificates("cpm")


def vote_logs(folder, selection, estimation, config=None):
    paths = []
    for name, votes in (("N_1000", estimation), ("N0_100", selection)):
        path = folder / f"certify_{name}.txt"
        lines = [f"{5 * i}\t{i}\t{counts}" for i, counts in enumerate(votes)]
        path.write_text("\n".join(["idx\tlabel\tcounts", *lines]) + "\n")
        paths.append(path)
    if config is not None:
        (folder / "certify_args.json").write_text(json.dumps(config))
    return paths


def test_the_paper_s_vote_logs(tmp_path):
    selection, estimation = [[90, 10, 0], [20, 70, 10]], [[900, 80, 20], [100, 850, 50]]
    logs = vote_logs(tmp_path, selection, estimation, {"sigma": 0.5, "alpha": 0.001, "N": 1000, "N0": 100})
    run = import_logs(logs, tmp_path / "run.smoothcert")
    assert run.tally.selections.tolist() == selection
    assert run.tally.estimations.tolist() == estimation
    assert run.ids == ["0", "5"]
    question = run.plan.question
    assert (run.plan.classifier.sigma, question.alpha, question.n0, question.draws.most) == (0.5, 0.001, 100, 1000)
    assert [c.prediction for c in open_run(run.path).certificates("cpm")] == [0, 1]


@pytest.mark.parametrize(("radius", "n"), [("0.0", None), ("2.21", 1_000_000), ("2.21", None)])
def test_radii_of_a_log_that_does_not_say_its_draws(tmp_path, radius, n):
    """One of a class may be rounded down to 0; a larger one may be of more draws than are usual."""
    (tmp_path / "log.tsv").write_text(COHEN.replace("0.526", radius))
    run = import_logs([tmp_path / "log.tsv"], tmp_path / "run.smoothcert", sigma=0.5, n=n)
    assert run.certificates()[0].radius == float(radius)
    assert diagnose(run.path).healthy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a\tb\n1\t2\n", "give one log with the columns"),
        (COHEN + "7\t1\n", "line 4 of .* has 2 columns, not 6: the log is cut off"),
        (COHEN.replace("0.526", "wide"), "has 'wide' where a radius belongs"),
        (COHEN.replace("0.526", "1_0"), "has '1_0' where a radius belongs"),
        (COHEN.replace("0.526", "nan"), "has 'nan' where a radius belongs"),
        (COHEN.replace("0.526", "-1"), "where a radius belongs"),
        (COHEN.replace("0\t3\t3", "0\t__import__('os')\t3"), "where a class belongs"),
        (COHEN.replace("0\t3\t3", "0\t-1\t3"), "line 2 of .* has '-1' where a class belongs"),
        (COHEN.replace("0\t3\t3", "0\t3\t-7"), "line 2 of .* has '-7' where a class belongs"),
        (COHEN.replace("0\t3\t3", "0\t٣\t3"), "line 2 of .* has '٣' where a class belongs"),
        (COHEN.replace("0.526", "٣"), "line 2 of .* has '٣' where a radius belongs"),
        (COHEN.replace("-1\t0.0", "-1\t0.1"), "line 3 of .* has a radius and no class"),
        (COHEN.replace("0.526", "3.1"), "line 2 of .* has radius 3.1, which no number of draws proves at sigma = 0.5"),
        (COHEN.replace("20\t", "0\t"), "has the same index twice"),
        (COHEN.replace("1 day", "9" * 400 + " days"), "line 3 of .* has '9{20}' where a duration belongs"),
        (COHEN.replace("0:00:15", "9" * 5000 + ":00:15"), "line 2 of .* has '9{20}' where a duration belongs"),
    ],
)
def test_a_bad_log_leaves_nothing_behind(tmp_path, text, message):
    (tmp_path / "log.tsv").write_text(text)
    with pytest.raises(InputError, match=message):
        import_logs([tmp_path / "log.tsv"], tmp_path / "run.smoothcert", sigma=0.5)
    assert not (tmp_path / "run.smoothcert").exists()


def test_digits_of_other_scripts_are_no_numbers(tmp_path):
    """Neither in the name of a log, nor where a duration belongs."""
    for name in ("log_sigma_٣.tsv", "log.tsv"):
        (tmp_path / name).write_text(COHEN.replace("0:00:15.12", "٣:٣٣:٣٣"))
    with pytest.raises(InputError, match="does not say its sigma"):
        import_logs([tmp_path / "log_sigma_٣.tsv"], tmp_path / "run.smoothcert")
    run = import_logs([tmp_path / "log.tsv"], tmp_path / "run.smoothcert", sigma=0.5)
    assert run.tally.seconds.tolist() == [0.0, 86401.0]


def nested(depth):
    return [nested(depth - 1)] if depth else 1


@pytest.mark.parametrize(
    ("selection", "estimation", "config", "message"),
    [
        (["[90, 10]"], ["[900, 10"], {"sigma": 1}, "no list of counts"),
        (["__import__('os').mkdir('x')"], ["[900, 100]"], {"sigma": 1}, "no list of counts"),
        (["[90, 10]", "[1, 99]"], ["[900, 100]"], {"sigma": 1}, "list different inputs"),
        (["[90, 10]"], ["[900, 50, 50]"], {"sigma": 1}, "different numbers of classes"),
        (["[90, 10]"], ["[90, 10]"], {"sigma": 1}, "number of draws"),
        (["[90, 10]"], ["[900, 100]"], None, "pass `sigma`"),
        (["[90, 10]"], ["[900, 100]"], [1, 2], "JSON object"),
        (["[90, 10]"], ["[900, 100]"], {"sigma": 10**400}, "sigma must be at most 1.8e"),
        (["[90, 10]"], ["[900, 100]"], {"sigma": 1, "alpha": 10**400}, "alpha must lie strictly between 0 and 1"),
        *(
            (["[90, 10]"], ["[900, 100]"], {"sigma": 1, "alpha": 0.1, name: value}, f"json says of {name} what is no")
            for name in ("sigma", "alpha")
            for value in ([[1], [1, 2]], nested(70), nested(500), "0.1", {})
        ),
        (["[٣, 97]"], ["[900, 100]"], {"sigma": 1}, "no list of counts"),
    ],
)
def test_bad_vote_logs(tmp_path, selection, estimation, config, message):
    logs = vote_logs(tmp_path, selection, estimation, config)
    with pytest.raises(InputError, match=message):
        import_logs(logs, tmp_path / "run.smoothcert")
    assert not (tmp_path / "run.smoothcert").exists()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "endless"])
def test_what_nobody_named_is_read_only_where_it_is_a_plain_file(tmp_path, make):
    logs = vote_logs(tmp_path, ["[90, 10]"], ["[900, 100]"], None)
    make(tmp_path / "certify_args.json")
    with pytest.raises(InputError, match="not a plain file of readable JSON"):
        import_logs(logs, tmp_path / "run.smoothcert", sigma=0.5)
    assert not (tmp_path / "run.smoothcert").exists()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "endless"])
def test_a_log_is_a_plain_file(tmp_path, make):
    """A pipe would be waited for, and zeros would have no end."""
    make(tmp_path / "log.tsv")
    with pytest.raises(InputError, match=r"log\.tsv cannot be read as text .*no plain file"):
        import_logs([tmp_path / "log.tsv"], tmp_path / "run.smoothcert", sigma=0.5)


def test_a_link_to_a_log_is_followed(tmp_path):
    (tmp_path / "cohen.tsv").write_text(COHEN)
    (tmp_path / "log.tsv").symlink_to("cohen.tsv")
    assert len(import_logs([tmp_path / "log.tsv"], tmp_path / "run.smoothcert", sigma=0.5)) == 2


def test_logs_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        import_logs([tmp_path / "none.tsv"], tmp_path / "run.smoothcert")
    (tmp_path / "log.tsv").write_text(COHEN)
    with pytest.raises(InputError, match="pass `sigma`"):
        import_logs([tmp_path / "log.tsv"], tmp_path / "run.smoothcert")
    (tmp_path / "here").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        import_logs([tmp_path / "log.tsv"], tmp_path / "here", sigma=1)
    assert (tmp_path / "here").read_text() == "mine"
