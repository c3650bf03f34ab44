"""Image folders: which images, in which order, with which pixels."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from smoothcert.data import open_data
from smoothcert.errors import InputError


def picture(path, size=(6, 5), seed=0, mode="RGB"):
    """A PNG with random pixels; returns them as (height, width[, channels])."""
    width, height = size
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "val"
    picture(root / "n02" / "b.png", seed=1)
    picture(root / "n02" / "a.png", seed=2)
    picture(root / "n01" / "z.PNG", seed=3)
    picture(root / "n10" / "c.bmp", seed=4)
    return root


def test_classes_are_the_sorted_subfolders_and_rows_follow_them(folder):
    (folder / "n01" / "notes.txt").write_text("not an image")
    (folder / "n01" / "._z.png").write_bytes(b"a shadow file")
    (folder / ".cache").mkdir()
    data = open_data(str(folder))
    assert data.classes == ("n01", "n02", "n10")
    assert [e.label for e in data] == [0, 1, 1, 2]
    assert data.eight_bit
    assert data.levels == 255
    assert data.preprocessing == "none"
    for example, seed in zip(data, [3, 2, 1, 4], strict=True):
        pixels = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
        np.testing.assert_array_equal(example.array, pixels.transpose(2, 0, 1).astype(np.float32) / 255)


def test_a_class_file_gives_the_order_also_of_classes_without_images(folder, tmp_path):
    order = tmp_path / "classes.txt"
    order.write_text("n10\nabsent\nn02\n\nn01\n")
    data = open_data(str(folder), classes=order)
    assert data.classes == ("n10", "absent", "n02", "n01")
    assert [e.label for e in data] == [0, 2, 2, 3]
    order.write_text("absent\nn01\nn02\nn10\n")
    shifted = open_data(str(folder), classes=order)
    assert [e.label for e in shifted] == [1, 2, 2, 3]
    assert len({data.fingerprint, shifted.fingerprint, open_data(str(folder)).fingerprint}) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [("n01\nn02\n", "does not name the class 'n10'"), ("n01\nn02\nn10\nn01\n", "names a class twice")],
)
def test_a_class_file_that_does_not_fit_is_refused(folder, tmp_path, content, message):
    order = tmp_path / "classes.txt"
    order.write_text(content)
    with pytest.raises(InputError, match=message):
        open_data(str(folder), classes=order)


def test_a_missing_class_file_is_named(folder, tmp_path):
    with pytest.raises(InputError, match=r"absent\.txt cannot be read"):
        open_data(str(folder), classes=tmp_path / "absent.txt")


def test_grey_palette_and_transparent_images_become_rgb(tmp_path):
    grey = picture(tmp_path / "d" / "a" / "1.png", mode="L")
    Image.fromarray(grey).convert("P").save(tmp_path / "d" / "a" / "2.png")
    Image.fromarray(grey).convert("RGBA").save(tmp_path / "d" / "a" / "3.png")
    for example in open_data(str(tmp_path / "d")):
        np.testing.assert_array_equal(example.array, np.stack([grey] * 3).astype(np.float32) / 255)


@pytest.mark.parametrize("size", [(40, 31), (31, 40), (64, 64), (97, 20)])
def test_resize_is_antialiased_bilinear_on_the_shorter_side(tmp_path, size):
    pixels = picture(tmp_path / "d" / "a" / "1.png", size=size)
    array = open_data(str(tmp_path / "d"), resize=16)[0].array
    width, height = size
    expected = (3, 16, int(16 * width / height)) if height <= width else (3, int(16 * height / width), 16)
    assert array.shape == expected
    planes = torch.from_numpy(pixels.transpose(2, 0, 1)[None].astype(np.float32))
    reference = torch.nn.functional.interpolate(planes, expected[1:], mode="bilinear", antialias=True)[0] / 255
    # Pillow rounds to whole numbers after each of its two passes.
    np.testing.assert_allclose(array, reference.numpy(), atol=1.5 / 255)


@pytest.mark.parametrize("size", [(9, 7), (8, 8), (10, 9), (5, 5)])
def test_crop_is_the_central_square(tmp_path, size):
    pixels = picture(tmp_path / "d" / "a" / "1.png", size=size)
    data = open_data(str(tmp_path / "d"), crop=5)
    width, height = size
    # torchvision's CenterCrop: the offset is half the excess, halves rounded to even.
    top, left = round((height - 5) / 2), round((width - 5) / 2)
    expected = pixels[top : top + 5, left : left + 5].transpose(2, 0, 1)
    np.testing.assert_array_equal(data[0].array, expected.astype(np.float32) / 255)
    assert data.preprocessing == "crop=5"


def test_resize_and_crop_make_one_shape_of_many_and_are_recorded(tmp_path):
    for number, size in enumerate([(40, 30), (30, 40), (50, 33)]):
        picture(tmp_path / "d" / "a" / f"{number}.png", size=size)
    data = open_data(str(tmp_path / "d"), resize=20, crop=16)
    assert {e.array.shape for e in data} == {(3, 16, 16)}
    assert data.preprocessing == "resize=20 crop=16"
    with pytest.raises(InputError, match=r"Row 1 .*\(3, 40, 30\) and row 0 has \(3, 30, 40\).*`resize`"):
        open_data(str(tmp_path / "d"))[1]


def test_a_crop_larger_than_the_image_is_refused(folder):
    with pytest.raises(InputError, match=r"z\.PNG is smaller than the crop of 7 pixels.*`resize`"):
        open_data(str(folder), crop=7)


@pytest.mark.parametrize("options", [{"resize": 0}, {"crop": -1}])
def test_sizes_below_one_pixel_are_refused(folder, options):
    with pytest.raises(InputError, match="at least 1"):
        open_data(str(folder), **options)


def test_corrupt_images_are_named(folder):
    whole = (folder / "n02" / "a.png").read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"hello", whole[:40] + bytes(40) + whole[80:]):
        (folder / "n02" / "a.png").write_bytes(broken)
        data = open_data(str(folder))
        assert data[0].label == 0
        with pytest.raises(InputError, match=r"a\.png cannot be decoded"):
            data[1]


def test_formats_beyond_the_usual_ones_are_not_opened(tmp_path):
    """Pillow knows formats for which it starts other programs; a name ending in .png does not let them in."""
    (tmp_path / "d" / "a").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(tmp_path / "d" / "a" / "1.png", format="PCX")
    with pytest.raises(InputError, match="cannot be decoded"):
        open_data(str(tmp_path / "d"))


@pytest.mark.parametrize("side", [9_000, 30_000])
def test_decompression_bombs_are_refused_by_their_header(tmp_path, side):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(1000)))
    (tmp_path / "d" / "a").mkdir(parents=True)
    (tmp_path / "d" / "a" / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + body + chunk(b"IEND", b""))
    with pytest.raises(InputError, match=r"1\.png is larger than"):
        open_data(str(tmp_path / "d"))


def test_images_of_16_bits_are_refused(tmp_path):
    (tmp_path / "d" / "a").mkdir(parents=True)
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(tmp_path / "d" / "a" / "1.png")
    with pytest.raises(InputError, match="more than 8 bits"):
        open_data(str(tmp_path / "d"))


def test_the_fingerprint_follows_the_content_and_not_the_place(folder, tmp_path):
    before = open_data(str(folder)).fingerprint
    folder.rename(tmp_path / "moved")
    assert open_data(str(tmp_path / "moved")).fingerprint == before
    picture(tmp_path / "moved" / "n10" / "d.png")
    assert open_data(str(tmp_path / "moved")).fingerprint != before


def test_a_folder_without_class_subfolders_is_refused(tmp_path):
    picture(tmp_path / "d" / "1.png")
    with pytest.raises(InputError, match="no images in subfolders"):
        open_data(str(tmp_path / "d"))


def test_a_link_out_of_the_folder_is_followed_only_where_that_is_meant(folder, tmp_path):
    picture(tmp_path / "elsewhere" / "secret.png", seed=5)
    inside, outside = folder / "n01" / "again.png", folder / "n02" / "c.png"
    inside.symlink_to(folder / "n01" / "z.PNG")
    assert len(open_data(folder)) == 5
    for link, target in ((outside, tmp_path / "elsewhere" / "secret.png"), (folder / "n11", tmp_path / "elsewhere")):
        link.symlink_to(target)
        with pytest.raises(InputError, match="pass `follow_links` if that is meant"):
            open_data(folder)
        assert len(open_data(folder, follow_links=True)) == 6
        link.unlink()


def test_a_link_that_comes_while_the_folder_is_read(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    secret = tmp_path / "elsewhere" / "secret.png"
    image = folder / "n01" / "z.PNG"
    secret.write_bytes(image.read_bytes())
    followed, refused = (open_data(folder, follow_links=follow) for follow in (True, False))
    image.unlink()
    image.symlink_to(secret)
    assert [row.label for row in map(followed.__getitem__, range(4))]
    with pytest.raises(InputError, match="pass `follow_links` if that is meant"):
        list(map(refused.__getitem__, range(4)))


def test_a_folder_may_itself_be_a_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert len(open_data(tmp_path / "link")) == 4


def test_class_folders_one_level_down_are_found(folder, tmp_path):
    (tmp_path / "unpacked").mkdir()
    folder.rename(tmp_path / "unpacked" / "pictures")
    data = open_data(tmp_path / "unpacked")
    assert data.classes == ("n01", "n02", "n10")
    assert data.fingerprint == open_data(tmp_path / "unpacked" / "pictures").fingerprint


def test_images_one_level_below_their_class_folder_are_of_that_class(tmp_path):
    """The layout of Tiny ImageNet's training images."""
    for name in ("n01", "n02"):
        picture(tmp_path / "train" / name / "images" / "1.png")
    data = open_data(tmp_path / "train")
    assert data.classes == ("n01", "n02")
    assert len(data) == 2


def test_training_and_test_images_are_not_mixed_nor_taken_for_classes(tmp_path):
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            picture(tmp_path / "pets" / split / name / "1.png")
    with pytest.raises(InputError, match=r"holds train and val: give one, as .*pets/train"):
        open_data(tmp_path / "pets")
    assert open_data(tmp_path / "pets" / "val").classes == ("cat", "dog")
