# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's configuration: strict, every problem named at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import load_node_config, parse_node_config
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.fixture
def body() -> dict[str, Any]:
    return {
        "version": 1,
        "name": "w-1",
        "cluster_name": "prod",
        "cluster_id": "ab" * 32,
        "endpoints": ["10.0.0.11:9090", "[fd00::1]:9090", "api.prod.example:9090"],
        "join_ca": PEM,
        "tcti": "device:/dev/tpmrm0",
        "logs": {"firmware": "/sys/kernel/security/tpm0/binary_bios_measurements", "userspace": "/run/log/x"},
    }


def test_a_good_file_is_read(body, tmp_path: Path):
    (tmp_path / "node.yml").write_text(yaml.safe_dump(body))

    config = load_node_config(tmp_path / "node.yml")

    assert config.name == "w-1"
    assert config.cluster_id == b"\xab" * 32
    assert config.endpoints == (("10.0.0.11", 9090), ("fd00::1", 9090), ("api.prod.example", 9090))
    assert config.join_ca == PEM.encode()
    assert config.logs.userspace == Path("/run/log/x")


def test_the_command_line_is_the_kernels_unless_it_lies_elsewhere(body):
    assert parse_node_config(yaml.safe_dump(body).encode()).logs.command_line == Path("/proc/cmdline")

    body["logs"]["command_line"] = "/srv/boot/cmdline.txt"

    assert parse_node_config(yaml.safe_dump(body).encode()).logs.command_line == Path("/srv/boot/cmdline.txt")


CASES: list[Any] = [
    pytest.param(lambda b: b.update(version=2), "version: expected 1, got 2", id="another version"),
    pytest.param(lambda b: b.update(extra=1), "unknown field extra", id="unknown field"),
    pytest.param(lambda b: b.pop("tcti"), "missing field tcti", id="missing field"),
    pytest.param(lambda b: b.update(name="W_1"), "name: expected a lower-case DNS name", id="name is no DNS name"),
    pytest.param(lambda b: b.update(cluster_id="ab"), "cluster_id: expected 64", id="short cluster id"),
    pytest.param(lambda b: b.update(cluster_id=12), "cluster_id: expected 64", id="cluster id is a number"),
    pytest.param(lambda b: b.update(endpoints=[]), "endpoints: expected 1 to 64", id="no endpoint"),
    pytest.param(lambda b: b.update(endpoints=["host"]), "expected host:port, got 'host'", id="endpoint without port"),
    pytest.param(lambda b: b.update(endpoints=["h:70000"]), "expected host:port", id="port out of range"),
    pytest.param(lambda b: b.update(join_ca="/etc/ca.pem"), "one or two certificates", id="a path instead of a pin"),
    pytest.param(lambda b: b.update(join_ca=PEM * 3), "one or two certificates", id="three pins"),
    pytest.param(lambda b: b.update(join_ca=""), "one or two certificates", id="no pin"),
    pytest.param(lambda b: b.update(join_ca=[PEM]), "one or two certificates", id="pins as a list"),
    pytest.param(lambda b: b.update(tcti="tabrmd:"), "tcti: expected device:PATH", id="unknown TPM interface"),
    pytest.param(lambda b: b.update(logs={"firmware": "/x"}), "logs: expected firmware and userspace", id="one log"),
    pytest.param(
        lambda b: b["logs"].update(command_line="x"), "logs.command_line: expected an absolute", id="relative"
    ),
    pytest.param(lambda b: b["logs"].update(ima="/x"), "logs: expected firmware and userspace", id="a third log"),
    pytest.param(lambda b: b["logs"].update(firmware="x"), "logs.firmware: expected an absolute", id="relative log"),
]


@pytest.mark.parametrize(("change", "said"), CASES)
def test_one_wrong_point_is_refused_and_named(body, change: Callable[[dict[str, Any]], object], said: str):
    change(body)

    with pytest.raises(SystemFault) as caught:
        parse_node_config(yaml.safe_dump(body).encode())

    assert caught.value.reason is Reason.NODE_CONFIG_MALFORMED
    assert said in caught.value.message


def test_all_problems_are_named_together(body):
    body.update(name="", tcti="", endpoints=["x"])

    with pytest.raises(SystemFault) as caught:
        parse_node_config(yaml.safe_dump(body).encode())

    assert all(word in caught.value.message for word in ("name:", "tcti:", "endpoints:"))


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff\xfe", b"!!python/object:os.system {}"])
def test_what_is_no_configuration_at_all_is_malformed(data: bytes):
    with pytest.raises(SystemFault) as caught:
        parse_node_config(data)
    assert caught.value.reason is Reason.NODE_CONFIG_MALFORMED


def test_a_missing_file_is_told_as_such(tmp_path):
    with pytest.raises(SystemFault) as caught:
        load_node_config(tmp_path / "none.yml")
    assert caught.value.reason is Reason.FILE_UNUSABLE
