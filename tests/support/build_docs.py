# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the generated docs: reason codes, variables, attacks, presets, log lines, performance.

Usage: python tests/support/build_docs.py [--check]
"""

from __future__ import annotations

import sys
from typing import Any

import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Coarse, Reason
from ansible_collections.attested.kubernetes.tests.support.bench import Record
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.log_schema import schema as log_schema
from ansible_collections.attested.kubernetes.tests.support.preset_table import table as presets
from ansible_collections.attested.kubernetes.tests.support.site_variables import Variable, sections, variable
from ansible_collections.attested.kubernetes.tests.support.threats import table as attacks

NOTICE = "<!-- made by tests/support/build_docs.py: change the source and run it again -->\n"
BEGIN, END = "<!-- attacks: made by tests/support/build_docs.py from tests/attacks -->", "<!-- end of attacks -->"
PRESETS_BEGIN = "<!-- presets: made by tests/support/build_docs.py from the recorded boots -->"
PRESETS_END = "<!-- end of presets -->"


def reason_codes() -> str:
    """Return the page of all reason codes, from `plugins/module_utils/reasons.py`."""
    rows = [
        "# Reason codes",
        "",
        NOTICE,
        "Every refusal and failure has one stable code. Faults that one action repairs share a code; the message names",
        "the field, the expected value and the value found. `attested explain CODE` says the same.",
        "A peer on the network hears only the coarse text of the third column; the full story is in our own log.",
        "",
        "| code | what happened, and what to do | a peer hears | next command |",
        "|---|---|---|---|",
    ]
    for reason in Reason:
        text = reason.value
        heard = "-" if text.coarse is Coarse.LOCAL else text.coarse.value
        rows.append(f"| `{reason.name}` | {text.summary} *{text.hint}* | {heard} | `{text.command}` |")
    return "\n".join(rows) + "\n"


def variables() -> str:
    """Return the page of all variables: `docs/variables.yml` and the playbooks, `roles/*/meta/argument_specs.yml`."""
    rows = [
        "# Variables",
        "",
        NOTICE,
        "Set `attested_*` in the site's `group_vars`; the playbooks hand them to the roles under the names of the",
        "second half. What is read by no playbook is read by modules on the admin's side.",
        "",
        "## Of a site",
    ]
    for section in sections():
        rows += [
            "",
            f"## {section['title']}",
            "",
            "| variable | type | default | read by | meaning |",
            "|---|---|---|---|---|",
        ]
        rows += [_site_row(name) for name in section["variables"]]
    rows += ["", "## Of the roles", "", "What the playbooks hand over; for who calls a role himself."]
    for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]
        for entry, spec in sorted(specs.items()):
            name = path.parts[-3] + ("" if entry == "main" else f" ({entry})")
            rows += ["", f"### {name}", "", _sentence(spec.get("short_description", "")), ""]
            rows += _table(spec.get("options") or {})
    return "\n".join(rows) + "\n"


def _site_row(name: str) -> str:
    """Return the row of a user's variable."""
    found = variable(name)
    words = found.words
    readers = " ".join(f"`{one}`" for one in found.readers) or "-"
    return f"| `{name}` | {words['type']} | {_site_default(found)} | {readers} | {_cell(words['text'])} |"


def _site_default(found: Variable) -> str:
    if "default" in found.words:
        return found.words["default"]
    if "written_by" in found.words:
        return f"written by `{found.words['written_by']}`"
    if found.required:
        return "required"
    default = "".join(found.defaults)
    return "-" if default in {"", "omit"} else f"`{default}`"


def logs() -> str:
    """Return the page of the log lines of services, from their schema."""
    schema = log_schema()
    rows = [
        "# Log lines",
        "",
        NOTICE,
        "Each service writes one JSON object a line to the journal.",
        "[log.schema.json](monitoring/log.schema.json) is the JSON Schema of a line. Names of events and fields stay;",
        "`detail`, `message` and `text` are for people, and their words change. A later release may write events and",
        "fields that are new. Nothing secret is in a line: bytes show their size only.",
        "",
        "```console",
        "$ journalctl -o cat -u attested-key-service \\",
        "  | jq -c 'select(.outcome == \"refused\") | [.time, .node, .reason, .detail]'",
        "```",
        "",
        "What a key service *decided* is in the [audit log](audit.md), which is signed; the journal may lose lines.",
        "Commands that a timer runs (`attested-agent reattest`, `renew`, `backup` …) write a sentence, no JSON.",
        "",
        "## Events",
        "",
        "A field with a question mark may be absent. Every line has `time` and `event`.",
        "",
        "| event | written by `attested-…` | meaning | fields |",
        "|---|---|---|---|",
    ]
    for name, event in schema["$defs"].items():
        required, every = event["required"], event["propertyNames"]["enum"][2:]
        fields = ", ".join(f"`{one}`" if one in required else f"`{one}`?" for one in every)
        rows.append(f"| `{name}` | {', '.join(event['x-programs'])} | {event['description']} | {fields} |")
    rows += ["", "## Fields", "", "| field | type | meaning |", "|---|---|---|"]
    rows += [f"| `{name}` | {_type(field)} | {field['description']} |" for name, field in schema["properties"].items()]
    return "\n".join(rows) + "\n"


def _type(field: dict[str, Any]) -> str:
    if "type" not in field:
        return ", ".join(f"`{word}`" for word in field["enum"])
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return " or ".join(kinds)


def threat_model() -> str:
    """Return the page with the table of attacks in its place, from `tests/attacks/`; the prose stays."""
    return _with_table("threat-model.md", attacks(), BEGIN, END)


def profiles() -> str:
    """Return the page with the table of presets in its place, from the recorded boots; the prose stays."""
    return _with_table("profiles.md", presets(), PRESETS_BEGIN, PRESETS_END)


def performance() -> str:
    """Return the page of the benchmarks, each from the last record that has it (`docs/records`)."""
    records = [Record.read(path) for path in sorted((ROOT / "docs" / "records").glob("*-benchmarks.json"))]
    last = {name: record for record in records for name in record.benchmarks}
    rows = [
        "# Performance",
        "",
        NOTICE,
        "What each benchmark of `tests/bench` measured in its last record. Read the ratio: it compares with a baseline",
        "of the same run, and the absolute values depend on the machine. `make bench` runs all. To record a run,",
        "use `python tests/bench/run.py --record docs/records`, then `python tests/support/build_docs.py`.",
    ]
    for name, record in sorted(last.items()):
        speed = "; ".join(
            f"{one.name.removeprefix('calibration: ')} {one.value:.3g} {one.unit}" for one in record.speed
        )
        taken = f"{record.date.partition('T')[0]}, commit `{record.commit[:12]}`, {record.processors} processors"
        rows += [
            "",
            f"## {name}",
            "",
            f"{taken}, load {record.load[0]:g} before the run. Machine: {speed}.",
            "",
            "| figure | measured | budget | ratio | baseline of the same run |",
            "|---|---|---|---|---|",
            *(f"| {' | '.join(_cell(cell) for cell in figure.row())} |" for figure in record.benchmarks[name]),
        ]
    return "\n".join(rows) + "\n"


def _with_table(page: str, table: str, begin: str, end: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    before, _old, rest = text.partition(begin)
    after = rest.partition(end)[2]
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def _table(options: dict[str, Any]) -> list[str]:
    if not options:
        return ["No variables."]
    rows = ["| variable | type | default | meaning |", "|---|---|---|---|"]
    for name, option in sorted(options.items()):
        default = "required" if option.get("required") else f"`{option['default']}`" if "default" in option else "-"
        meaning = option.get("description", "")
        text = " ".join(meaning) if isinstance(meaning, list) else meaning
        rows.append(f"| `{name}` | {option.get('type', 'str')} | {default} | {_cell(text)} |")
    return rows


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES = {
    "docs/logs.md": logs,
    "docs/performance.md": performance,
    "docs/profiles.md": profiles,
    "docs/reason-codes.md": reason_codes,
    "docs/threat-model.md": threat_model,
    "docs/variables.md": variables,
}


def stale() -> list[str]:
    """Return the pages that are out of date."""
    return [
        name
        for name, render in PAGES.items()
        if not (ROOT / name).is_file() or (ROOT / name).read_text(encoding="utf-8") != render()
    ]


def main() -> None:
    """Write the pages, or compare them with --check."""
    if "--check" in sys.argv[1:]:
        if wrong := stale():
            raise SystemExit(f"not fresh: {', '.join(wrong)}; run tests/support/build_docs.py")
        return
    for name, render in PAGES.items():
        (ROOT / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
