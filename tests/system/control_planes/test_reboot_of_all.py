# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A power cut of a whole rack: a control plane and nine workers reboot at once and are Ready again without a person.

A real node_exporter runs on each of them, and a real Prometheus in their network; its alerts wait for seconds instead
of minutes. Alerts that wait for hours are as they are.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.prometheus_bed import (
    ALERTS,
    PrometheusBed,
    impatient,
    wait_until,
    why_not,
)
from ansible_collections.attested.kubernetes.tests.support.road import Road, assert_one_lock_event, road_through

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_REBOOT_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

NODES = ("cp-1", *(f"w-{number}" for number in range(1, 10)))
WORDS = ("-e", '{"lab_workers": 9}')
SECONDS = 900
EXPORTER, PORT = "/usr/local/bin/node_exporter", 9100
UNIT = f"""[Service]
ExecStart={EXPORTER} --collector.disable-defaults --collector.textfile \\
  --collector.textfile.directory=/run/attested-figures --web.listen-address=:{PORT}
[Install]
WantedBy=multi-user.target
"""
INSTALL = f"""
set -e
cat > {EXPORTER}
chmod 0755 {EXPORTER}
printf %s "$1" > /etc/systemd/system/node-exporter.service
systemctl enable --quiet --now node-exporter.service attested-figures.timer
systemctl start attested-figures.service
"""


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    with road_through("lab", "init", "node", of="attested-reboot:127.75.0", instead=USED_LAB, words=WORDS) as road:
        yield road


@pytest.fixture(scope="module")
def prometheus(road: Road, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusBed]:
    """It has read all nodes once."""
    if missing := why_not():
        pytest.skip(missing)
    program = Path(which("prometheus-node-exporter") or "").read_bytes()
    for node in NODES:
        road.inside(node, "sh", "-c", INSTALL, "sh", UNIT, given=program)
    addresses = [road.inside(node, "hostname", "-I").split()[0] for node in NODES]
    scrape = {"job_name": "node", "static_configs": [{"targets": [f"{one}:{PORT}" for one in addresses]}]}
    bed = PrometheusBed(
        tmp_path_factory.mktemp("prometheus"), enter=("nsenter", f"--net=/run/netns/{road.lab.name}", "--")
    )
    with bed.scraping(scrape, text=impatient(ALERTS.read_text(encoding="utf-8"))):
        wait_until(bed.is_up, step=lambda: None)
        wait_until(lambda: bed.value("count(attested_node_joined == 1)") == len(NODES), step=lambda: None, seconds=180)
        yield bed


def test_ten_nodes_rebooted_at_once_come_back_alone(
    road: Road, prometheus: PrometheusBed, counted: Callable[[str], None]
) -> None:
    """`status` fails and alerts fire meanwhile, `status` succeeds afterwards; each machine has locked itself once."""
    before = set(prometheus.firing())
    boots = {node: road.boot_id(node) for node in NODES}
    began = time.monotonic()
    with ThreadPoolExecutor(len(NODES)) as pool:
        list(pool.map(lambda node: road.lab.ssh(node, "sudo systemctl reboot"), NODES))
    meanwhile = road.finish("status", road.start("status"))
    now = {node: road.lab.wait_for_boot(node, other_than=boots[node], seconds=SECONDS) for node in NODES}
    for node in NODES:
        road.wait_until_ready(node, boot_id=now[node], seconds=SECONDS)
    counted(f"ten nodes Ready {time.monotonic() - began:.0f} s after they were told to reboot")
    assert meanwhile.returncode != 0, meanwhile.output[-3000:]
    for node in NODES:
        assert_one_lock_event(road, node)
    road.play("status")
    fired = prometheus.fired(seconds=int(time.monotonic() - began)) - before
    assert "AttestedNoFigures" in fired
    wait_until(lambda: set(prometheus.firing()) <= before, step=lambda: None, seconds=SECONDS)
    counted(f"alerts fired and resolved within {time.monotonic() - began:.0f} s: {', '.join(sorted(fired))}")
