"""Crops and flips are crops and flips, each image its own."""

import torch
from torch.nn import functional

from smoothcert.training.augment import crops_and_flips


def test_every_image_is_a_window_of_its_padded_self_mirrored_or_not():
    images = torch.arange(1, 1 + 300 * 2 * 16 * 24).reshape(300, 2, 16, 24)
    out = crops_and_flips(images, torch.Generator().manual_seed(0))
    padded = functional.pad(images, (2, 2, 2, 2))
    found = []
    for image, window in zip(out, padded, strict=True):
        matches = [
            (top, left, mirrored)
            for top in range(5)
            for left in range(5)
            for mirrored in (False, True)
            if torch.equal(image.flip(2) if mirrored else image, window[:, top : top + 16, left : left + 24])
        ]
        assert len(matches) == 1
        found += matches
    assert len(set(found)) > 40  # of 50 kinds
    assert 110 < sum(mirrored for _, _, mirrored in found) < 190
