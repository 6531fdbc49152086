# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a long event log costs: verify an answer with 100 events, learn a profile from it, compute one from an image.

No TPM: a test attester made the evidence. The log is a recorded one (Secure Boot on) with more events of its own kinds.
Usage: python tests/bench/boots.py [--rounds N]
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from typing import TYPE_CHECKING, cast

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.facts import boot_facts
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import describe
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.replay import replay
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.prediction import predict
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset, learn_preset
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Signature
from ansible_collections.attested.kubernetes.tests.support import boots, pe
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, interleaved, report
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange, identity_of
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import FirmwareEvent
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile

EVENTS = 100
IMAGE_BYTES = 64 << 20
BARE, WHOLE = "one ECDSA P-256 verification", f"verify an answer with {EVENTS} events"
LEARN, COMPUTE = f"learn a profile from {EVENTS} events", "compute a profile from an image of 64 MiB"


def encoded(event: FirmwareEvent) -> bytes:
    """Return an event as it stands in a log with the SHA-256 bank alone."""
    head = (event.pcr, event.kind, 1)
    digest = ALG_SHA256.to_bytes(2, "little") + event.digests[ALG_SHA256]
    return b"".join(n.to_bytes(4, "little") for n in head) + digest + len(event.data).to_bytes(4, "little") + event.data


def long_boot() -> boots.Boot:
    """Return a recorded boot whose log has `EVENTS` events, all of them in registers that a profile may hold."""
    boot = boots.load("deb13-secureboot")
    firmware, userspace = parse_firmware_log(boot.firmware), parse_records(boot.userspace, "log")
    kept = [one for one in parse_firmware_log(boots.load("deb13-grub-secureboot").firmware).events if one.pcr in {0, 4}]
    missing = EVENTS - len(firmware.events)
    more = (kept * missing)[:missing]
    raw = boot.firmware + b"".join(encoded(one) for one in more)
    return dataclasses.replace(boot, firmware=raw, pcrs={**boot.pcrs, **replay(parse_firmware_log(raw), userspace)})


def learned(boot: boots.Boot) -> MeasurementProfile:
    """Return the profile that the logs of ``boot`` give, from bytes on."""
    firmware, userspace = parse_firmware_log(boot.firmware), parse_records(boot.userspace, "log")
    return learn_preset(
        "bench",
        Preset.IMAGE,
        pcrs=boot.pcrs,
        events=describe(firmware, userspace, command_line=boot.command_line),
        facts=boot_facts(firmware, quoted=boot.pcrs, command_line=boot.command_line),
    )


def operations() -> dict[str, Callable[[], object]]:
    """Return what is measured, by name."""
    boot = long_boot()
    exchange = Exchange(boot=boot)
    exchange.policy = SitePolicy(profiles=[learned(boot)], identities=[identity_of(exchange.tpm.ek)])
    challenge, record = exchange.challenged()
    answer = exchange.answered(challenge)
    evidence = answer.bound.evidence
    key = cast("ec.EllipticCurvePublicKey", exchange.tpm.ak.public.key())
    signature, algorithm = Signature.parse(evidence.signature).raw(), ec.ECDSA(hashes.SHA256())
    return {
        BARE: lambda: key.verify(signature, evidence.quote, algorithm),
        WHOLE: lambda: exchange.verified(answer, record),
        LEARN: lambda: learned(boot),
    }


def processor_milliseconds(operation: Callable[[], object], *, rounds: int) -> float:
    """Return the median of what one run takes of the processor: on a shared machine the clock counts others too."""
    taken = []
    for _unused in range(rounds):
        begun = time.process_time()
        operation()
        taken.append((time.process_time() - begun) * 1000)
    return statistics.median(taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="default: %(default)s")
    rounds, measured = parser.parse_args().rounds, operations()
    took = interleaved(measured, rounds=rounds)
    alone = {name: processor_milliseconds(operation, rounds=rounds) for name, operation in measured.items()}
    image = pe.image(initrd=bytes(IMAGE_BYTES))
    computed = interleaved({COMPUTE: lambda: predict(read_image(image), secure_boot=True)}, rounds=3)
    bare, name = took[BARE], f"ms, {BARE}"
    report(
        Figure(
            name=f"{WHOLE}, processor",
            value=alone[WHOLE],
            unit="ms",
            budget=3,
            baseline=alone[BARE],
            baseline_name=f"{name}, processor",
        ),
        Figure(name=WHOLE, value=took[WHOLE], unit="ms", budget=3, baseline=bare, baseline_name=name),
        Figure(name=LEARN, value=took[LEARN], unit="ms", budget=1000, baseline=bare, baseline_name=name),
        Figure(name=COMPUTE, value=computed[COMPUTE], unit="ms", baseline=bare, baseline_name=name),
    )


if __name__ == "__main__":
    main()
