# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a quote over all registers costs on swtpm with our client, beside tpm2_quote of tpm2-tools on the same TPM.

`tpm2_quote` starts a process each time, so the bare command that both send is shown too: one PCR_Read of our client.
Usage: python tests/bench/quote.py [--rounds N]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import issue
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import open_tpm
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import PCR_COUNT
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import load_attestation_key, persist_keys
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, interleaved, report
from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm, SwtpmFactory, missing_tools

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import LoadedKey

QUALIFYING_DATA = b"q" * 32
ALL = range(PCR_COUNT)
READ, TOOLS = "PCR_Read of one register", "tpm2_quote of tpm2-tools"
QUOTE, EVIDENCE = "quote, all registers", "evidence: registers read and quoted"


def tools_quote(swtpm: Swtpm, key: LoadedKey, folder: Path) -> None:
    """Do the same with tpm2-tools."""
    wanted = "sha256:" + ",".join(map(str, ALL))
    command = ["tpm2_quote", "-T", swtpm.tcti, "-c", f"{key.handle:#x}", "-l", wanted, "-q", QUALIFYING_DATA.hex()]
    files = [f"-{letter}{folder / name}" for letter, name in (("m", "quote"), ("s", "signature"), ("o", "pcrs"))]
    subprocess.run([*command, *files], check=True, capture_output=True)


def processor_milliseconds(operation: Callable[[], object], *, rounds: int) -> float:
    """Return what one operation uses of the CPU in this process, the TPM's own work left out."""
    begun = time.process_time()
    for _unused in range(rounds):
        operation()
    return (time.process_time() - begun) * 1000 / rounds


def operations(tpm: Tpm, key: LoadedKey) -> dict[str, Callable[[], object]]:
    """Return what our client does, by name."""
    return {
        READ: lambda: tpm.pcr_read([0]),
        QUOTE: lambda: tpm.quote(key, QUALIFYING_DATA, ALL),
        EVIDENCE: lambda: issue(tpm, key, qualifying_data=QUALIFYING_DATA, pcrs=ALL),
    }


def measure(swtpm: Swtpm, folder: Path, *, rounds: int) -> None:
    """Print the table."""
    with open_tpm(swtpm.tcti) as tpm:
        persist_keys(tpm)
        key = load_attestation_key(tpm)
        named = operations(tpm, key)
        took = interleaved(named, rounds=rounds)
        used = {name: processor_milliseconds(operation, rounds=rounds) for name, operation in named.items()}
    tools = interleaved({TOOLS: lambda: tools_quote(swtpm, key, folder)}, rounds=max(rounds // 10, 3))[TOOLS]
    report(
        figure(QUOTE, took[QUOTE], READ, took[READ], budget=5),
        figure(QUOTE, took[QUOTE], TOOLS, tools, budget=5),
        figure(f"{QUOTE}: CPU of the client", used[QUOTE], READ, used[READ]),
        figure(EVIDENCE, took[EVIDENCE], READ, took[READ]),
    )


def figure(name: str, value: float, beside: str, baseline: float, *, budget: float = 0) -> Figure:
    """Return one figure in milliseconds."""
    return Figure(name=name, value=value, unit="ms", budget=budget, baseline=baseline, baseline_name=f"ms, {beside}")


def main() -> None:
    """Make a TPM, measure, end it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="default: %(default)s")
    rounds = parser.parse_args().rounds
    missing = missing_tools() + ([] if shutil.which("tpm2_quote") else ["tpm2_quote"])
    if missing:
        print(f"quote: not measured, no {', '.join(missing)}")
        return
    with tempfile.TemporaryDirectory(prefix="quote-") as directory:
        factory = SwtpmFactory(Path(directory))
        try:
            measure(factory.start("bench"), Path(directory), rounds=rounds)
        finally:
            factory.close()


if __name__ == "__main__":
    main()
