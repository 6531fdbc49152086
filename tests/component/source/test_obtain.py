# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real repositories, good and hostile: what becomes a working copy, and what is refused before there is one."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.source.signature import parse_signer
from ansible_collections.attested.kubernetes.plugins.module_utils.source.staging import Limits
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from ansible_collections.attested.kubernetes.tests.support.site_repository import HOSTS, Key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.component.source.conftest import Booting


def refused(machine: Booting) -> str:
    """Return the code of a refusal that left no working copy, nothing half-made, and nothing kept that was not."""
    kept = machine.places.kept.read_bytes() if machine.places.kept.exists() else b""
    with pytest.raises(AttestedError) as caught:
        machine.boot()
    assert not machine.places.site.exists()
    assert machine.left == []
    assert (machine.places.kept.read_bytes() if machine.places.kept.exists() else b"") == kept
    return Coded(caught.value)


def test_a_signed_site_becomes_a_working_copy_of_root_alone(machine, site):
    commit = site.release(2, {"tools/run.sh": "#!/bin/sh\n"})
    (site.path / "tools/run.sh").chmod(0o755)
    (site.path / "group_vars/link.yml").symlink_to("../hosts.yml")
    site.git("add", "--all")
    commit = site.commit()
    machine = machine()
    found = machine.boot()
    assert (found.measured.commit, found.measured.version) == (commit, 2)
    assert (found.path / "hosts.yml").read_text() == HOSTS
    assert (found.path / "group_vars/link.yml").read_text() == HOSTS
    modes = {
        path.name: stat.S_IMODE(path.lstat().st_mode)
        for path in (found.path, *found.path.rglob("*.*"))
        if not path.is_symlink()
    }
    assert {modes["site"], modes["hosts.yml"], modes["run.sh"]} == {0o700, 0o600}
    assert machine.left == ["site"]
    assert machine.story.names == ["site_verified"]


def test_a_later_version_replaces_all_of_the_earlier_one(machine, site):
    machine = machine()
    site.release(2, {"old.yml": "a: 1\n"})
    machine.boot()
    site.git("rm", "--quiet", "old.yml")
    site.release(3, {"new.yml": "a: 1\n"})
    found = machine.boot()
    assert not (found.path / "old.yml").exists()
    assert (found.path / "new.yml").exists()


def test_a_second_boot_of_the_same_commit_changes_nothing_that_is_kept(machine):
    machine = machine()
    machine.boot()
    before = [(path.name, path.stat().st_ino) for path in sorted(machine.places.state.iterdir())]
    machine.boot()
    assert before == [(path.name, path.stat().st_ino) for path in sorted(machine.places.state.iterdir())]


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_keys_of_ssh_keygen_are_understood(machine, site, tmp_path, kind):
    other = Key(directory=tmp_path, name=kind, kind=kind).made()
    commit = site.commit(key=other)
    assert machine(signers=(parse_signer(other.line),)).boot().measured.commit == commit


def test_an_unsigned_commit_is_refused(machine, site):
    site.commit(signed=False)
    assert refused(machine()) == "SOURCE_UNSIGNED"


def test_a_commit_of_another_key_is_refused(machine, site, tmp_path):
    site.commit(key=Key(directory=tmp_path, name="stranger").made())
    assert refused(machine()) == "SOURCE_SIGNER_UNKNOWN"


def test_a_signature_of_another_commit_is_refused(machine, site):
    raw = site.git("cat-file", "commit", "HEAD").replace("Change the site", "Change the sity") + "\n"
    forged = site.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw.encode())
    site.git("update-ref", "refs/heads/main", forged)
    assert refused(machine()) == "SOURCE_SIGNATURE"


def test_a_signature_for_a_file_is_none_for_a_commit(machine, site, key, tmp_path):
    """ssh-keygen -Y sign -n file over the very bytes: only the namespace differs."""
    raw = site.git("cat-file", "commit", site.commit(signed=False)) + "\n"
    (tmp_path / "raw").write_text(raw)
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", key.private, tmp_path / "raw"], check=True)
    armour = (tmp_path / "raw.sig").read_text().strip().replace("\n", "\n ")
    head, _blank, message = raw.partition("\n\n")
    forged = f"{head}\ngpgsig {armour}\n\n{message}"
    name = site.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=forged.encode())
    site.git("update-ref", "refs/heads/main", name)
    assert refused(machine()) == "SOURCE_SIGNATURE"


def test_an_older_commit_is_refused(machine, site):
    first, machine = site.head, machine()
    site.release(2)
    machine.boot()
    site.git("update-ref", "refs/heads/main", first)
    assert refused(machine) == "SOURCE_ROLLED_BACK"


def test_a_machine_that_took_nothing_yet_has_a_least_version(machine):
    assert refused(machine(minimum=2)) == "SOURCE_ROLLED_BACK"


def test_a_history_that_was_rewritten_is_refused(machine, site):
    machine = machine()
    site.release(2)
    machine.boot()
    site.git("reset", "--quiet", "--hard", "HEAD^")
    site.release(3)
    assert refused(machine) == "SOURCE_HISTORY_REWRITTEN"


def test_another_branch_is_not_taken_for_the_one_that_is_named(machine, site):
    assert refused(machine(branch="next")) == "SOURCE_BRANCH_ABSENT"
    site.git("checkout", "--quiet", "-b", "next")
    site.release(2)
    assert machine(branch="main").boot().measured.version == 1


def test_a_submodule_is_refused(machine, site):
    site.git("update-index", "--add", "--cacheinfo", f"160000,{site.head},roles/theirs")
    site.commit()
    assert refused(machine()) == "SOURCE_TREE_REFUSED: submodule"


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("/etc/shadow", id="absolute"),
        pytest.param("../../etc", id="up and out"),
        pytest.param("x/../../..", id="down and out"),
        pytest.param("../group_vars/../../etc", id="by a way around"),
    ],
)
def test_a_link_out_of_the_site_is_refused(machine, site, target):
    (site.path / "group_vars/link").symlink_to(target)
    site.git("add", "--all")
    site.commit()
    assert refused(machine()) == "SOURCE_TREE_REFUSED: the link"


@pytest.mark.parametrize("name", [".git", ".GIT", "..", "."])
def test_a_tree_with_a_name_of_git_is_refused(machine, site, name):
    """git's own check refuses it while it comes; that our reader does too is in tests/unit."""
    blob = bytes.fromhex(site.git("rev-parse", "HEAD:hosts.yml"))
    tree = b"100644 " + name.encode() + b"\0" + blob
    site.commit_tree(site.git("hash-object", "-t", "tree", "--literally", "-w", "--stdin", stdin=tree))
    assert refused(machine()) == "SOURCE_OBJECT_BROKEN"


def test_filters_hooks_and_settings_of_a_repository_do_not_run(machine, site, tmp_path):
    """Everything that git would run by a checkout, by a merge, or by a setting on either side."""
    touch = f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n"
    site.release(
        2,
        {
            ".gitattributes": "* filter=evil diff=evil export-subst\nhosts.yml export-ignore\n",
            "config": f'[filter "evil"]\n\tsmudge = {tmp_path}/evil\n\tprocess = {tmp_path}/evil\n',
            "hooks/post-checkout": touch,
            "text": "$Format:%H$\n",
        },
    )
    (tmp_path / "evil").write_text(touch)
    (tmp_path / "evil").chmod(0o755)
    for name in ("post-checkout", "reference-transaction", "post-index-change", "fsmonitor"):
        hook = site.path / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(touch)
        hook.chmod(0o755)
    with (site.path / ".git/config").open("a") as config:
        config.write(f'[filter "evil"]\n\tsmudge = {tmp_path}/evil\n[core]\n\tfsmonitor = {tmp_path}/evil\n')
    found = machine().boot()
    assert not (tmp_path / "ran").exists()
    assert (found.path / "text").read_text() == "$Format:%H$\n"
    assert (found.path / "hosts.yml").read_text() == HOSTS


def test_a_site_that_is_too_large_is_refused_while_it_comes(machine, site):
    (site.path / "image").write_bytes(os.urandom(3 << 20))
    site.git("add", "--all")
    site.commit()
    assert refused(machine(limits=Limits(seconds=30, bytes=1 << 20))) == "SOURCE_TREE_REFUSED: a site of at most"


def test_a_site_that_unfolds_is_refused_before_it_is_read(machine, site):
    """2 MB in the pack, 64 MB as files."""
    for number in range(8):
        (site.path / f"zeroes{number}").write_bytes(bytes([number]) * (8 << 20))
    site.git("add", "--all")
    site.commit()
    assert refused(machine()) == "SOURCE_TREE_REFUSED: a site of at most"


def test_a_site_for_another_bundle_is_refused(machine, site):
    site.release(2, bundle="00" * 32)
    assert refused(machine()) == "SOURCE_COLLECTION_DIFFERS"


def test_a_site_without_its_pin_is_refused(machine, site):
    site.git("rm", "--quiet", "attested-node.yml")
    site.commit()
    assert refused(machine()) == "SOURCE_PIN_MALFORMED"


def test_a_state_that_somebody_changed_is_refused(machine):
    machine = machine()
    machine.boot()
    machine.places.kept.write_text("{}")
    assert refused(machine) == "SOURCE_STATE_MALFORMED"


def test_a_repository_that_is_not_there_is_refused(machine, tmp_path):
    assert refused(machine(url=f"file://{tmp_path}/none")) == "SOURCE_NOT_A_REPOSITORY"


def test_nobody_at_the_port_is_not_reachable(machine):
    assert refused(machine(url="http://127.0.0.1:1/site.git", transports=("http",))) == "SOURCE_UNREACHABLE"


def test_a_transport_that_is_not_listed_is_not_used(machine):
    assert refused(machine(transports=("https",))) == "SOURCE_UNREACHABLE"


@contextmanager
def answering(body: bytes, *, seconds: float = 0) -> Iterator[str]:
    """A server that says the same to everybody, after ``seconds``."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(seconds)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_unused: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/site.git"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("body", [b"<html>Log in</html>", b"<html>\n<body>Log in\n</body>\n</html>\n", b""])
def test_a_proxy_that_answers_with_a_page_is_no_repository(machine, body):
    with answering(body) as url:
        assert refused(machine(url=url, transports=("http",))) == "SOURCE_NOT_A_REPOSITORY"


def test_a_server_that_never_ends_is_left(machine):
    with answering(b"", seconds=3) as url:
        assert refused(machine(url=url, transports=("http",), limits=Limits(seconds=1))) == "SOURCE_UNREACHABLE"


def test_without_a_network_the_last_good_site_is_verified_again_and_used(machine, site, tmp_path):
    machine = machine()
    commit = machine.boot().measured.commit
    site.path.rename(tmp_path / "gone")
    assert machine.boot().measured.commit == commit
    assert machine.story.names == ["site_verified", "site_away_last_one_used", "site_verified"]


def test_a_last_site_that_was_changed_on_the_disk_is_not_used(machine, site, tmp_path):
    machine = machine()
    machine.boot()
    site.path.rename(tmp_path / "gone")
    content = bytearray(machine.places.bundle.read_bytes())
    content[-40] ^= 1
    machine.places.bundle.write_bytes(content)
    assert refused(machine) == "SOURCE_OBJECT_BROKEN"


def test_a_last_site_of_somebody_else_is_not_used(machine, site, tmp_path):
    """A bundle that is whole, and unsigned."""
    machine = machine()
    machine.boot()
    site.commit(signed=False)
    site.git("update-ref", "refs/attested/candidate", "HEAD")
    site.git("bundle", "create", machine.places.bundle, "refs/attested/candidate")
    site.path.rename(tmp_path / "gone")
    assert refused(machine) == "SOURCE_UNSIGNED"


def test_a_boot_that_has_measured_a_commit_runs_no_other(machine, site):
    machine = machine()
    measured = machine.boot().measured
    site.release(2)
    assert machine.boot(measured).measured == measured
    assert "site_of_this_boot" in machine.story.names
    machine.places.bundle.unlink()
    with pytest.raises(AttestedError) as caught:
        machine.boot(measured)
    assert Coded(caught.value) == "SOURCE_TOO_LATE: which this boot has measured"
    assert not machine.places.site.exists()


def test_a_fetch_that_was_killed_leaves_nothing_that_the_next_one_uses(machine, site, tmp_path):
    """A process is killed while git waits for an answer that does not come; the next boot finds a repository."""
    machine, program = machine(), tmp_path / "fetch.py"
    with answering(b"", seconds=20) as url:
        program.write_text(
            textwrap.dedent(f"""
                from pathlib import Path
                from ansible_collections.attested.kubernetes.plugins.module_utils.source.staging import Staging
                from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
                with Staging.opened(Path({str(machine.places.memory)!r}), runner=SystemRunner()) as staging:
                    staging.fetch({url!r}, branch="main", transports=("http",))
            """)
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        running = subprocess.Popen([sys.executable, program], env=environment, start_new_session=True)
        while not any(machine.places.memory.glob("staging-*/HEAD")):
            time.sleep(0.02)
            assert running.poll() is None
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert [name for name in machine.left if name.startswith("staging-")]
    assert machine.boot().measured.commit == site.head
    assert machine.left == ["site"]
