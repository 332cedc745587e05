import json
from dataclasses import replace

import pytest

from walreplay.decode.masking import masked_type
from walreplay.types import resolve
from walreplay.types.base import type_from_dict, type_to_dict
from walreplay.types.builtin import BUILTIN_TYPES

KNOWN = [
    *(resolve(oid, -1, {}) for oid in BUILTIN_TYPES),
    resolve(1700, (38 << 16 | 10) + 4, {}),
    resolve(1231, (5 << 16 | 2) + 4, {}),
    resolve(1042, 9, {}),
    resolve(70000, -1, {70000: ("public", "mood")}),
    resolve(70001, 7, {70001: ("public", "vector")}),
    masked_type(resolve(23, -1, {})),
    replace(resolve(23, -1, {}), overridden=True),
]


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.postgres_name)
def test_every_type_is_read_as_it_was_written(kind):
    assert type_from_dict(json.loads(json.dumps(type_to_dict(kind)))) == kind


def test_defaults_are_not_written():
    assert set(type_to_dict(resolve(25, -1, {}))) == {"arrow", "family", "postgres_name", "oid"}
