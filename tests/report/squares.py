"""Grey squares of four classes whose names try to break out of any page."""

import numpy as np

from smoothcert.data import Dataset

TEMPLATES = np.random.default_rng(0).random((4, 8, 8))
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "=1+1, \"quoted\" & 'more'",
    "nul\x00 turned \u202e split\u2028 $data ${x} {{y}}",
)


class Squares(Dataset):
    description = "<b>squares</b> & co"
    classes = HOSTILE
    fingerprint = "squares"

    def __len__(self):
        return 36

    def stored(self, row):
        noise = np.random.default_rng(row).normal(size=(8, 8))
        return np.round(255 * (TEMPLATES[row % 4] + 0.35 * noise).clip(0, 1)).astype(np.uint8), row % 4


def nearest(batch):
    """Scores of the nearest template."""
    return -((batch.reshape(len(batch), 1, 64) - TEMPLATES.reshape(4, 64)) ** 2).sum(axis=2)
