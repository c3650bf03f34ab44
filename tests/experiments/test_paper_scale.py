"""`reproduce --scale paper`: what it needs is found in its published layouts, listed where it is missing, and runs."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from smoothcert.cli import app
from smoothcert.errors import InputError
from smoothcert.experiments import CLAIMS
from smoothcert.experiments import sources as sources_module
from smoothcert.experiments.confidence import CIFAR_NETWORKS
from smoothcert.experiments.reproduction import Scale
from smoothcert.experiments.sources import find_weights, imagenet_validation
from smoothcert.models import build
from smoothcert.models.checkpoints import CONFIGURATION

SIGMAS = (0.0, 0.12, 0.25, 0.5, 1.0)
WNIDS = [f"n{k:08d}" for k in range(1_000)]


def _archived(folder: Path, dataset: str, arch: str, name: str, sigmas) -> None:
    """Checkpoints of random weights as Cohen's archive has them: saved behind DataParallel, in a folder for each σ."""
    torch.manual_seed(0)
    network = build(arch)
    state = {re.sub(r"^1\.", "1.module.", key): value for key, value in network.state_dict().items()}
    first = None
    for sigma in sigmas:
        path = folder / "models" / dataset / name / f"noise_{sigma:.2f}" / "checkpoint.pth.tar"
        path.parent.mkdir(parents=True)
        if first is None:
            torch.save({"epoch": 90, "arch": arch, "state_dict": state, "optimizer": {}}, path)
        else:
            path.hardlink_to(first)
        first = first or path


def _trained(folder: Path, sigmas) -> None:
    """Folders of trainings with the file that `smoothcert train liresnet` writes."""
    options = {"num_classes": 10, "width": 4, "depth": 1, "dense": 4, "input_shape": [3, 32, 32]}
    torch.manual_seed(0)
    network = build("liresnet", **options)
    for sigma in sigmas:
        (folder / f"at{sigma}").mkdir(parents=True)
        configuration = json.dumps({"arch": "liresnet", "options": options, "sigma": sigma})
        save_file(network.state_dict(), folder / f"at{sigma}" / "best.safetensors", {CONFIGURATION: configuration})


def _picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).save(path, quality=95)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Fake checkpoints in two folders, CIFAR-10 and ImageNet images, in the layouts they are handed out."""
    folder = tmp_path_factory.mktemp("sources")
    cohen, ours = folder / "cohen", folder / "ours"
    _archived(cohen, "cifar10", "cifar_resnet8", "resnet8", SIGMAS)
    _archived(cohen, "imagenet", "resnet50", "resnet50", SIGMAS[2:])
    _trained(ours, SIGMAS[:4])
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    records = [np.concatenate([[k], image.transpose(2, 0, 1).ravel()]) for k, image in enumerate(images)]
    cifar = folder / "cifar-10-batches-bin"
    cifar.mkdir()
    (cifar / "test_batch.bin").write_bytes(np.concatenate(records).astype(np.uint8).tobytes())
    for k, wnid in enumerate(WNIDS):
        (folder / "imagenet" / "val" / wnid).mkdir(parents=True)
        if k in (1, 7):
            _picture(folder / "imagenet" / "val" / wnid / "ILSVRC2012_val_00000001.JPEG", k)
    (folder / "imagenet" / "train").mkdir()
    return folder


def _arguments(sources, out, *more):
    given = ["--data", sources / "cifar-10-batches-bin", "--imagenet", sources / "imagenet", "--checkpoints"]
    given += [sources / "ours", "--checkpoints", sources / "cohen", "--device", "cpu", "--engine", "torch"]
    return [
        "reproduce",
        *map(str, [*more, "--scale", "paper", *given, "--batch", 2, "--limit", 2, "--n", 2, "--out", out]),
    ]


@pytest.fixture(scope="module")
def small():
    """Eight layers in the place of the 110, and images of 32×32 in that of 224×224."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CIFAR_NETWORKS, Scale.PAPER, "cifar_resnet8")
        patch.setattr(sources_module, "RESIZE", 36)
        patch.setattr(sources_module, "CROP", 32)
        yield


@pytest.fixture(scope="module")
def found(sources, small, tmp_path_factory):
    """What every claim wrote at paper scale, and the output."""
    out = tmp_path_factory.mktemp("paper")
    result = CliRunner().invoke(app, _arguments(sources, out, "--all", "--pub", "paper"))
    assert result.exit_code == 0, result.output
    return {claim: json.loads((out / f"{claim}.json").read_text()) for claim in CLAIMS} | {
        "out": out,
        "output": " ".join(result.output.split()),
    }


@pytest.mark.slow
def test_every_claim_runs_at_paper_scale(found):
    assert all(found[claim]["scale"] == "paper" for claim in CLAIMS)
    panels = {(p["model"], p["sigma"], p["n"], p["classes"]) for p in found["confidence"]["panels"]}
    cifar = {("cifar_resnet8", sigma, 2, 10) for sigma in SIGMAS[1:]}
    assert panels == cifar | {("resnet50", sigma, 2, 1_000) for sigma in SIGMAS[2:]}
    rows = [(row["model"], row["sigma"]) for row in found["lipschitz-table"]["networks"]]
    assert rows == [("liresnet", s) for s in SIGMAS[:4]] + [("cifar_resnet8", s) for s in SIGMAS]
    assert found["gap"]["model"] == "liresnet"


@pytest.mark.slow
def test_it_says_beforehand_how_long_it_takes(found):
    said = found["output"]
    assert re.search(r"takes about \d+:\d\d:\d\d h", said)
    assert said.index("takes about") < said.index("Written")


@pytest.mark.slow
def test_the_papers_own_constants_and_its_product_stand_beside_ours(found):
    first, *_, last = found["lipschitz-table"]["networks"]
    assert (first["paper"], last["paper"]) == ([22, 37], [3.8, 1.32e11])
    assert first["product_of_the_paper_estimated"] <= 1.001 * first["product_proved"]
    assert last["product_of_the_paper_estimated"] > last["product_proved"]  # batch norm apart, the average pool 1


@pytest.mark.slow
def test_a_figure_a_sigma_is_one_column_wide(found):
    pictures = sorted(path.name for path in found["out"].glob("*.pdf"))
    assert "confidence-resnet50-sigma0.5.pdf" in pictures
    assert len(pictures) == 4 + 3 + 2  # CIFAR-10, ImageNet, and one each of gap and radii
    for name in pictures:
        box = re.search(rb"/MediaBox\s*\[\s*0 0 ([\d.]+)", (found["out"] / name).read_bytes())
        assert float(box[1]) / 72 == pytest.approx(3.3, abs=0.01)


def test_what_is_missing_is_listed_before_the_first_draw(sources, tmp_path):
    given = ["--scale", "paper", "--checkpoints", str(sources / "cohen" / "none"), "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["reproduce", "confidence", *given])
    assert isinstance(result.exception, InputError)
    message = str(result.exception)
    assert "for σ = 0.12, 0.25, 0.50, 1.00 in" in message
    assert "no weights of resnet50 for σ = 0.25, 0.50, 1.00" in message
    assert "needs CIFAR-10" in message
    assert "needs ImageNet" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_all_goes_on_without_the_claims_that_cannot_run_and_says_so_at_the_end(sources, tmp_path):
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["reproduce", "--all", "--scale", "paper", "--out", str(out)])
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    for claim in ("confidence", "gap", "lipschitz-table"):
        assert f"{claim} cannot run: " in said
        assert said.index(f"Not done: {claim}.") > said.rindex("Written")
    written = {path.stem for path in out.glob("*.json")}
    assert written == {"radii", "linear-product", "counter-example"}


@pytest.mark.slow
def test_imagenet_may_be_left_out_but_not_silently(sources, small, tmp_path):
    arguments = _arguments(sources, tmp_path, "confidence")
    arguments[arguments.index("--imagenet") + 1] = "none"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "ImageNet was left out, as asked." in result.output


def test_a_class_count_that_does_not_fit_is_refused(sources, small, tmp_path):
    for wnid in ("n00000001", "n00000002"):
        _picture(tmp_path / "few" / wnid / "a.JPEG", 0)
    arguments = _arguments(sources, tmp_path / "out", "confidence")
    arguments[arguments.index("--imagenet") + 1] = str(tmp_path / "few")
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    assert "the network scores 1,000 classes" in str(result.exception)
    assert not list((tmp_path / "out").glob("*.smoothcert"))


def test_networks_are_found_by_name_in_the_archive_and_by_what_training_wrote(sources, tmp_path):
    folders = [tmp_path, sources / "ours", sources / "cohen"]
    assert find_weights("liresnet", 0.12, folders) == ("liresnet", sources / "ours" / "at0.12" / "best.safetensors")
    archived = sources / "cohen" / "models" / "imagenet" / "resnet50" / "noise_0.50" / "checkpoint.pth.tar"
    assert find_weights("resnet50", 0.5, folders) == ("resnet50", archived)
    assert find_weights("resnet50", 0.5, [sources / "cohen" / "models"]) == ("resnet50", archived)
    assert find_weights("resnet50", 0.12, folders) is None
    configuration = json.dumps({"arch": "liresnet_l12w512", "options": {}, "sigma": 0.12})
    save_file({"none": torch.zeros(1)}, tmp_path / "large.safetensors", {CONFIGURATION: configuration})
    assert find_weights("liresnet", 0.12, folders) == ("liresnet_l12w512", tmp_path / "large.safetensors")


def test_imagenet_in_one_folder_with_a_label_file(tmp_path):
    for number in (1, 2):
        _picture(tmp_path / "val" / f"ILSVRC2012_val_{number:08d}.JPEG", number)
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"ILSVRC2012_val_{k + 1:08d}.JPEG {wnid}\n" for k, wnid in enumerate(reversed(WNIDS))))
    data = imagenet_validation(tmp_path, labels)
    assert [e.label for e in data] == [999, 998]
    assert len(data.classes) == 1_000
    assert data.shape == (3, sources_module.CROP, sources_module.CROP)


def test_imagenet_in_parquet_shards_beside_those_of_training(tmp_path):
    _picture(tmp_path / "one.JPEG", 0)
    encoded = (tmp_path / "one.JPEG").read_bytes()
    names = {"info": {"features": {"label": {"_type": "ClassLabel", "names": WNIDS}}}}
    for name in ("train-00000-of-00001", "validation-00000-of-00002", "validation-00001-of-00002"):
        table = pa.table({"image": [{"bytes": encoded, "path": None}], "label": [3]})
        table = table.replace_schema_metadata({"huggingface": json.dumps(names)})
        (tmp_path / "data").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "data" / f"{name}.parquet")
    data = imagenet_validation(tmp_path, None)
    assert (len(data), len(data.classes), data.shape) == (2, 1_000, (3, sources_module.CROP, sources_module.CROP))
