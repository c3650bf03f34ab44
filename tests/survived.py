"""What the suite survived, counted where it happens; the counts of all its processes stand at the end of the report."""

from collections import Counter

SURVIVED: Counter[str] = Counter()
