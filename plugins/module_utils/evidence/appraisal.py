# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Appraise evidence from a file by a policy from a file, offline, and report the outcome of each verification step.

The policy names the variant, the exchange, what is trusted and what is allowed; its fields are described in
docs/tasks/appraise-evidence-from-a-file.md. The caller reads the files that the policy names. An accepted document is
genuine and allowed. It is fresh only if the verifier chose the nonce.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import load_document, load_json
from ..errors import AttestedError, PolicyError
from ..policy.decision import decide
from ..policy.fields import Fields, listed
from ..policy.manifest import parse_documents
from ..reasons import Reason
from ..transport.binding import Purpose
from . import constellation, sev_snp, tdx, tpm2
from .challenge import BindingContext, Challenge, exchange_digest
from .eventlog.facts import boot_facts
from .eventlog.kinds import describe
from .eventlog.nodelock import DEFAULT_REGISTER
from .eventlog.replay import verify_replay
from .eventlog.tcg import parse_firmware_log, parse_records
from .evidence import BoundEvidence, EventLogs
from .sev_snp_report import TcbVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from ..policy.profile import MeasurementProfile
    from .evidence import Reached

    Read = Callable[[str], bytes]
    """Return the content of a file that the policy names."""

MAX_POLICY_BYTES = 64 << 10
PASSED, REFUSED, NOT_REACHED = "passed", "refused", "not reached"

_STATUSES = 8
_LISTED = 256
_HEX = re.compile(r"(?:[0-9a-f]{2}){1,1024}")
_REGISTERS = tuple(str(number) for number in range(5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a verifier: what it checks, and whether it passed, refused or was not reached."""

    text: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Appraisal:
    """The outcome for one document. ``findings``: what an accepted document states; ``error``: the refusal, or None."""

    variant: str
    steps: tuple[Step, ...]
    findings: Mapping[str, str]
    error: AttestedError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Method:
    """How documents of one variant are appraised: ``run`` returns the findings or raises."""

    steps: tuple[str, ...]
    run: Callable[[bytes, Fields, Read, datetime, Reached], Mapping[str, str]]


def appraise(document: bytes, policy: bytes, *, read: Read, now: datetime) -> Appraisal:
    """Return the appraisal of ``document`` by ``policy`` (YAML) at the time ``now``.

    An error of the verifier is part of the appraisal. Raises `PolicyError` MANIFEST_INVALID if the policy cannot be
    read, and what ``read`` raises.
    """
    fields = Fields(_loaded(policy), place="policy", problems=[])
    variant = fields.take("variant")
    method = METHODS.get(variant) if isinstance(variant, str) else None
    if method is None:
        raise _invalid([f"policy: variant: expected one of {', '.join(METHODS)}, got {variant!r:.40}"])
    last = 0

    def reached(step: int, /) -> None:
        nonlocal last
        last = step

    error = None
    findings: Mapping[str, str] = {}
    try:
        findings = method.run(document, fields, read, now, reached)
    except AttestedError as raised:
        if not last:  # the error concerns the policy or its files: no step has begun
            raise
        error = raised
    states = [PASSED] * (last - 1) + [REFUSED if error else PASSED] + [NOT_REACHED] * (len(method.steps) - last)
    steps = tuple(Step(text=text, state=state) for text, state in zip(method.steps, states, strict=True))
    return Appraisal(variant=str(variant), steps=steps, findings=findings, error=error)


def _loaded(policy: bytes) -> object:
    try:
        return load_document(policy, limit=MAX_POLICY_BYTES)
    except ValueError as error:
        raise _invalid([f"policy: {error}"]) from None


def _complete(fields: Fields, *others: Fields) -> None:
    """Raise MANIFEST_INVALID with all problems that were noted, unknown fields included."""
    for one in (*others, fields):
        one.finish()
    if fields.problems:
        raise _invalid(fields.problems)


def _invalid(problems: list[str]) -> PolicyError:
    return PolicyError(f"expected a policy for an appraisal, got {listed(problems)}", reason=Reason.MANIFEST_INVALID)


def _digest(fields: Fields, name: str, *, size: int) -> bytes:
    described = f"{2 * size} lower-case hex digits in quotes"
    return bytes.fromhex(fields.matching(name, re.compile(f"[0-9a-f]{{{2 * size}}}"), described))


def _digests(fields: Fields, name: str, *, size: int) -> frozenset[bytes]:
    """Return a list of hexadecimal values of ``size`` bytes; an empty set if the field is missing."""
    found = fields.texts(name, limit=_LISTED, each=2 * size) or ()
    wrong = [one for one in found if len(one) != 2 * size or not _HEX.fullmatch(one)]
    if wrong:
        fields.note(f"{name}: expected {2 * size} lower-case hex digits in quotes, got {wrong[0]!r}")
        return frozenset()
    return frozenset(map(bytes.fromhex, found))


def _flag(fields: Fields, name: str, *, default: bool) -> bool:
    return fields.flag(name) if fields.has(name) else default


def _number(fields: Fields, name: str) -> int:
    return fields.number(name, below=1 << 16) if fields.has(name) else 0


def _file(fields: Fields, name: str) -> str:
    return fields.text(name, limit=4096)


def _profiles(name: str, read: Read) -> tuple[MeasurementProfile, ...]:
    return parse_documents([(name, read(name).decode("utf-8", "replace"))]).profiles


def _snp(document: bytes, fields: Fields, read: Read, now: datetime, reached: Reached) -> Mapping[str, str]:
    minimum = fields.mapping("minimumTcb")
    parts = {name: _number(minimum, name) for name in ("bootloader", "tee", "snp", "microcode", "fmc")}
    allowed = sev_snp.SnpPolicy(
        measurements=_digests(fields, "measurements", size=48),
        keys=_names(fields),
        minimum_tcb=TcbVersion(**parts),
        minimum_guest_svn=_number(fields, "minimumGuestSvn"),
        chip_ids=_digests(fields, "chipIds", size=64),
        smt=_flag(fields, "smt", default=True),
        vlek=_flag(fields, "vlek", default=False),
    )
    exchange, key = _digest(fields, "exchange", size=32), _digest(fields, "key", size=32)
    files = [_file(fields, name) for name in ("certificate", "chain", "revocations")]
    _complete(fields, minimum)
    certificate, chain, revocations = map(read, files)
    collateral = sev_snp.load_snp_collateral(chain=chain, crl=revocations)
    evidence = sev_snp.SnpEvidence(report=document, certificate=certificate, key=key)
    found = sev_snp.verify_snp_report(
        evidence, qualifying_data=exchange, policy=allowed, collateral=collateral, now=now, reached=reached
    )
    return {
        "product": found.product,
        "chip": found.report.chip_id.hex(),
        "measurement": found.report.measurement.hex(),
        "key": found.identity.key_sha256,
    }


def _names(fields: Fields) -> frozenset[str]:
    return frozenset(one.hex() for one in _digests(fields, "enrolledKeys", size=32))


def _tdx(document: bytes, fields: Fields, read: Read, now: datetime, reached: Reached) -> Mapping[str, str]:
    registers = fields.mapping("measurements")
    allowed = tdx.TdxPolicy(
        measurements={int(one): _digests(registers, one, size=48) for one in _REGISTERS if registers.has(one)},
        keys=_names(fields),
        minimum_tee_tcb_svn=_digest(fields, "minimumTeeTcbSvn", size=16)
        if fields.has("minimumTeeTcbSvn")
        else bytes(16),
        minimum_evaluation_number=_number(fields, "minimumEvaluationNumber"),
        statuses=frozenset(fields.texts("statuses", limit=_STATUSES, each=40) or {"UpToDate"}),
        rejected_advisories=frozenset(fields.texts("rejectedAdvisories", limit=_LISTED, each=40) or ()),
        xfam=_digests(fields, "xfam", size=8),
        mr_seam=_digests(fields, "mrSeam", size=48),
        smt=_flag(fields, "smt", default=True),
        dynamic_platform=_flag(fields, "dynamicPlatform", default=False),
        cached_keys=_flag(fields, "cachedKeys", default=False),
    )
    exchange, key = _digest(fields, "exchange", size=32), _digest(fields, "key", size=32)
    files = [_file(fields, name) for name in ("collateral", "root")]
    _complete(fields, registers)
    text, root = map(read, files)
    found = tdx.verify_tdx_quote(
        tdx.TdxEvidence(quote=document, key=key),
        qualifying_data=exchange,
        policy=allowed,
        collateral=tdx.load_tdx_collateral(collateral=text, root=root),
        now=now,
        reached=reached,
    )
    registers_found = {f"register {number}": value.hex() for number, value in found.report.registers.items()}
    return {"mr_seam": found.report.mr_seam.hex(), **registers_found, "key": found.identity.key_sha256}


def _constellation(document: bytes, fields: Fields, read: Read, now: datetime, reached: Reached) -> Mapping[str, str]:
    allowed = constellation.ConstellationPolicy(
        insecure_constellation_peer=fields.flag("insecureConstellationPeer"),
        attestation_keys=_digests(fields, "attestationKeys", size=34),
    )
    user_data, nonce = (bytes.fromhex(fields.matching(name, _HEX, "hex digits")) for name in ("userData", "nonce"))
    profile = _file(fields, "profile")
    _complete(fields)
    profiles = _profiles(profile, read)
    found = constellation.verify_constellation_document(
        document, user_data=user_data, nonce=nonce, policy=allowed, reached=reached
    )
    reached(len(constellation.STEPS) + 1)
    log = found.firmware_log
    facts = boot_facts(log, quoted=found.pcrs.keys()) if log else None
    verdict = decide(profiles, found.pcrs, describe(log, ()) if log else (), facts=facts, now=now)
    return {
        "attestation key": found.ak_name.hex(),
        "profile": verdict.profile,
        "posture": verdict.posture.value,
        "warning": constellation.WARNING,
    }


def _tpm(document: bytes, fields: Fields, read: Read, now: datetime, reached: Reached) -> Mapping[str, str]:
    purpose, cluster = fields.choice("purpose", Purpose), _digest(fields, "clusterId", size=32)
    encoded = _decoded(fields.take("challenge"), fields.problems, "policy: challenge")
    profile = _file(fields, "profile")
    _complete(fields)
    profiles = _profiles(profile, read)
    reached(1)
    bound, logs = _answer(document)
    challenge = Challenge.parse(encoded)
    context = BindingContext(purpose=purpose, cluster_id=cluster, request=logs.to_bytes())
    exchange = exchange_digest(challenge, context, proof=bound.proof, hpke_public=bound.hpke_public)
    quote = tpm2.verify_quote(bound.evidence, qualifying_data=exchange, reached=lambda step: reached(step + 1))
    reached(len(tpm2.STEPS) + 2)
    firmware = parse_firmware_log(logs.firmware)
    userspace = parse_records(logs.userspace, "userspace log")
    verify_replay(quote.pcrs, firmware, userspace, except_for=(DEFAULT_REGISTER,))
    reached(len(tpm2.STEPS) + 3)
    line = logs.command_line
    facts = boot_facts(firmware, quoted=quote.pcrs.keys(), command_line=line)
    verdict = decide(profiles, quote.pcrs, describe(firmware, userspace, command_line=line), facts=facts, now=now)
    return {"attestation key": quote.ak_name.hex(), "profile": verdict.profile, "posture": verdict.posture.value}


def _answer(document: bytes) -> tuple[BoundEvidence, EventLogs]:
    """Return evidence and event logs from the JSON result of `attestation_info`; raises `Refusal`."""
    try:
        values: Any = load_json(document)
    except ValueError as error:
        raise constellation.malformed("the answer of attestation_info as JSON", f"{error}"[:200]) from None
    problems: list[str] = []
    found = values if isinstance(values, dict) else {}
    binding, logs = (_decoded(found.get(name), problems, name) for name in ("binding", "event_logs"))
    if problems:
        raise constellation.malformed("the answer of attestation_info as JSON", listed(problems))
    return BoundEvidence.parse(binding), EventLogs.parse(logs)


def _decoded(value: object, problems: list[str], place: str) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        problems.append(f"{place}: expected base64 text, got {type(value).__name__}")
        return b""


METHODS: Mapping[str, _Method] = {
    constellation.VARIANT: _Method(steps=(*constellation.STEPS, "A profile allows the values"), run=_constellation),
    sev_snp.VARIANT: _Method(steps=sev_snp.STEPS, run=_snp),
    tdx.VARIANT: _Method(steps=tdx.STEPS, run=_tdx),
    tpm2.VARIANT: _Method(
        steps=(
            "The answer, its event logs and the challenge parse",
            *tpm2.STEPS,
            "The event logs lead to the quoted values",
            "A profile allows the values",
        ),
        run=_tpm,
    ),
}
"""The method of each variant."""
