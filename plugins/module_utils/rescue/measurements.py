# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the measurements of Constellation's configuration, and compare the values of a node with them. Pure.

The input is ``constellation-conf.yaml`` of the command line program, ``attestationConfig`` of the ConfigMap
join-config, or only the map of measurements: index to ``{expected: HEX, warnOnly: BOOL}``, or to the value itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import load_documents
from ..errors import Refusal, SiteError
from ..reasons import Reason
from .values import lock_value

if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTER_REGISTER = 15
_REGISTERS = 24
_BYTES = 32
_HEX = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Expected values of the SHA-256 bank by register; a difference in a register of ``warn_only`` only warns."""

    expected: Mapping[int, bytes]
    warn_only: frozenset[int]

    def of_member(self, cluster: bytes) -> Measurements:
        """Return the measurements of a node in the cluster with this id, which was measured into register 15 once."""
        before = self.expected.get(CLUSTER_REGISTER, bytes(_BYTES))
        value = lock_value(cluster, "sha256", before=before)
        return Measurements(
            expected={**self.expected, CLUSTER_REGISTER: value}, warn_only=self.warn_only - {CLUSTER_REGISTER}
        )


def parse_measurements(data: bytes) -> Measurements:
    """Return the measurements in ``data``, YAML or JSON; raises RESCUE_FILE_MALFORMED.

    Stricter than Constellation, which accepts any node if no value is enforced: at least one value must be enforced.
    """
    try:
        documents = load_documents(data.decode("utf-8"))
    except ValueError as error:
        raise _malformed(f"they cannot be read: {error}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise _malformed("expected one mapping")
    entries = {_index(index): _entry(index, entry) for index, entry in _map_in(documents[0]).items()}
    warn_only = frozenset(index for index, (_value, warns) in entries.items() if warns)
    if not set(entries) - warn_only:
        raise _malformed("expected at least one value that is enforced")
    return Measurements(expected={index: value for index, (value, _warns) in entries.items()}, warn_only=warn_only)


def verify_measurements(pcrs: Mapping[int, bytes], wanted: Measurements) -> tuple[str, ...]:
    """Return the differences that only warn; raises RESCUE_MEASUREMENT_MISMATCH with all other differences."""
    differing = {index: value for index, value in sorted(wanted.expected.items()) if pcrs.get(index) != value}
    sentences = {
        index: f"PCR {index}: expected {value.hex()}, got {pcrs.get(index, b'').hex() or 'none'}"
        for index, value in differing.items()
    }
    wrong = [sentence for index, sentence in sentences.items() if index not in wanted.warn_only]
    if wrong:
        raise Refusal("; ".join(wrong), reason=Reason.RESCUE_MEASUREMENT_MISMATCH)
    return tuple(sentences.values())


def _map_in(document: dict[Any, Any]) -> dict[Any, Any]:
    inner: Any = document
    if "attestation" in inner:
        variants = inner["attestation"]
        if not isinstance(variants, dict) or len(variants) != 1:
            raise _malformed("expected one variant below attestation")
        inner = next(iter(variants.values()))
    if isinstance(inner, dict) and "measurements" in inner:
        inner = inner["measurements"]
    if not isinstance(inner, dict):
        raise _malformed("expected a mapping of measurements")
    return inner


def _index(given: object) -> int:
    text = str(given)
    if isinstance(given, bool) or not text.isascii() or not text.isdecimal() or int(text) >= _REGISTERS:
        raise _malformed(f"expected the number of a register, got {text[:20]!r}")
    return int(text)


def _entry(index: object, entry: object) -> tuple[bytes, bool]:
    fields = entry if isinstance(entry, dict) else {"expected": entry}
    value, warns = fields.get("expected"), fields.get("warnOnly", False)
    if not isinstance(value, str) or not _HEX.fullmatch(value) or not isinstance(warns, bool):
        raise _malformed(f"expected {2 * _BYTES} hex digits and a truth value for register {str(index)[:20]}")
    return bytes.fromhex(value), warns


def _malformed(problem: str) -> SiteError:
    return SiteError(f"the measurements: {problem}", reason=Reason.RESCUE_FILE_MALFORMED)
