"use strict";
(() => {
  const collator = new Intl.Collator("en", {numeric: true, sensitivity: "base"});
  const table = document.querySelector(".fleet");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const headers = Array.from(table.tHead.rows[0].cells);
  const keyOf = (cell) => cell.dataset.order ?? cell.textContent;

  function sortBy(header) {
    const next = {ascending: "descending", descending: null}[header.getAttribute("aria-sort")];
    const direction = next === undefined ? "ascending" : next;
    headers.forEach((one) => one.removeAttribute("aria-sort"));
    if (direction === null) {
      body.append(...rows);
      return;
    }
    header.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const at = headers.indexOf(header);
    const keyed = rows.map((row) => [keyOf(row.cells[at]), row]);
    keyed.sort(([one], [other]) => sign * collator.compare(one, other));
    body.append(...keyed.map(([, row]) => row));
  }

  for (const header of headers) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortBy(header));
    header.append(button);
  }
  document.documentElement.classList.add("sorted");

  const bar = document.querySelector(".filter");
  const field = bar.querySelector("input");
  const status = bar.querySelector("[role=status]");
  const textOf = (one) => one.textContent.toLowerCase();
  const items = Array.from(document.querySelectorAll("[data-item]"), (one) => [one, textOf(one)]);
  const groups = Array.from(document.querySelectorAll("[data-group]"));
  const titles = new Map(groups.map((one) => [one, textOf(one.querySelector("h3"))]));

  function filter() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const [one, text] of items) {
      const title = titles.get(one.closest("[data-group]")) ?? "";
      one.hidden = !words.every((word) => text.includes(word) || title.includes(word));
    }
    for (const group of groups) {
      group.hidden = !group.querySelector("[data-item]:not([hidden])");
      group.querySelectorAll("details").forEach((one) => { one.open = words.length > 0; });
    }
    status.textContent = words.length ? `${rows.filter((one) => !one.hidden).length} of ${rows.length} nodes` : "";
  }

  field.addEventListener("input", filter);
  bar.hidden = false;
  if (field.value) filter();
})();
