"""What no client should send: texts, values of JSON and bodies, for tests that no request is a defect."""

from typing import Any

TEXTS = (
    "", "0", "1", "2", "-1", "9" * 30, "-" + "9" * 30, "9" * 5000, "9" * 18, "1e400", "1e-400", "NaN", "Infinity",
    "-inf", "0x1F", "1_000", "٤٢", "²", "½", "yes", "\0", "a\0b", "\ud800", "\udfff.", "\ufeff", "\u202e", "é" * 300,
    "x" * 100_000, "%", "%00", "../../etc", "'; drop table rater; --", "<script>", "{{ 7 * 7 }}", "{0.__class__}",
    "https://a.test", "https://[::1", "http://\ud800", "a@b.test", "2026-13-45", "2026-01-01", "\r\n\r\n", "[" * 2000,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *TEXTS, None, True, False, 0, 1, 2, -1, 10**30, -(10**30), 2**63, 2**64, 2**31, 1.5, 1e308, float("nan"),
    float("inf"), [], {}, [[]], [None], [10**30], ["\ud800"], {"\0": "\0"}, {"a": {"b": [1] * 200}},
)  # fmt: skip
BODIES = (
    b"", b"null", b"[]", b"0", b'"x"', b"{", b"\xff\xfe", b"[" * 20_000, b'{"a":' * 20_000, b'{"a": 1e999}',
    b'{"a": NaN}', b"\0", b"a=%00&a=%ff&%zz", b"&" * 1000, b"PK\x03\x04", b"PAR1", b"\x1f\x8b\x08",
)  # fmt: skip
