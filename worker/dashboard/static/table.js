// Tables whose rows stay the same elements from update to update, so that focus and selection stay where they are.

import { el, fill, say } from "./dom.js";

/**
 * A table. A column is {name, text(row), link?(row), node?(row), mark?(row), number?, wide?}: `text` is what stands in
 * the cell, `link` makes it a link, `node` takes its place where words are not enough (and is made anew only when
 * `text` changes). `keyOf` tells rows apart.
 */
export function table(caption, columns, keyOf, empty) {
  const body = el("tbody", { role: "rowgroup" });
  const head = el("tr", { role: "row" });
  for (const column of columns) head.append(el("th", { scope: "col", role: "columnheader", class: column.number && "number" }, column.name));
  const whole = el(
    "table",
    { role: "table" },
    el("caption", { class: "hidden" }, caption),
    el("thead", { role: "rowgroup" }, head),
    body,
  );
  const nothing = el("p", { class: "empty" }, empty);
  const rows = new Map();

  function update(items) {
    nothing.hidden = items.length > 0;
    whole.hidden = items.length === 0;
    const seen = new Set();
    let place = body.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      if (seen.has(key)) continue;
      seen.add(key);
      let row = rows.get(key);
      if (!row) rows.set(key, (row = makeRow(columns)));
      if (row.node === place) place = place.nextElementSibling;
      else body.insertBefore(row.node, place);
      for (const cell of row.cells) cell(item);
    }
    for (const [key, row] of rows) {
      if (!seen.has(key)) {
        row.node.remove();
        rows.delete(key);
      }
    }
  }
  return { node: el("div", { class: "table" }, whole, nothing), update };
}

function makeRow(columns) {
  const node = el("tr", { role: "row", "data-row": true });
  const cells = columns.map((column) => {
    const kind = [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ");
    const td = el("td", { role: "cell", "data-label": column.name, class: kind || null });
    node.append(td);
    return filler(td, column);
  });
  return { node, cells };
}

function filler(td, column) {
  let last;
  if (column.link) {
    const link = el("a", {});
    td.append(link);
    return (item) => {
      const href = column.link(item);
      if (link.getAttribute("href") !== href) link.setAttribute("href", href);
      say(link, column.text(item));
    };
  }
  return (item) => {
    const text = column.text(item);
    if (column.mark) td.classList.toggle("marked", column.mark(item));
    if (text === last) return;
    last = text;
    if (column.node) fill(td, column.node(item));
    else say(td, text);
  };
}
