// Line charts: uPlot with our colours, a legend in words, and what the chart says as a sentence for who can't see it.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { el, say } from "./dom.js";

const HEIGHT = 150;
const DASHES = [[], [6, 4], [2, 3]];
const WHOLE = [1, 2, 5, 10, 20, 50].flatMap((_, at, all) => all.map((n) => n * 100 ** at));

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * A chart. `lines` are {name, colour (a CSS variable)}; `words` turns a value into text; `whole` values are counts.
 * `update(seconds, columns)`.
 */
export function chart(name, lines, words, whole = false) {
  const place = el("div", { class: "plot", "aria-hidden": "true" });
  const legend = el("ul", { class: "legend" });
  const values = lines.map((line, at) => {
    const value = el("b", {}, "–");
    legend.append(el("li", {}, el("i", { class: `key ${line.colour.slice(2)} dash${at}`, "aria-hidden": "true" }), `${line.name} `, value));
    return value;
  });
  const summary = el("span", { class: "hidden" });
  const node = el("figure", { class: "chart" }, el("figcaption", {}, el("strong", {}, name), legend, summary), place);
  let plot = null;
  let data = null;

  function draw() {
    plot?.destroy();
    plot = null;
    const width = place.clientWidth;
    if (!data || !width) return;
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    plot = new uPlot(
      {
        width,
        height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 6 } },
        scales: { y: { range: (_, min, max) => [0, Math.max(max * 1.15, whole ? 4 : 1)] } },
        padding: [8, 12, 0, 0],
        axes: [
          { ...axis, size: 26, space: 70, values: (_, at) => at.map((s) => new Date(s * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(narrow() ? { second: "2-digit" } : {}) })) },
          { ...axis, size: 62, space: 28, ...(whole ? { incrs: WHOLE } : {}), values: (_, at) => at.map((v) => words(v)) },
        ],
        series: [
          {},
          ...lines.map((line, at) => ({ stroke: colour(line.colour), width: 2, dash: DASHES[at], points: { show: false }, spanGaps: false })),
        ],
        hooks: { setLegend: [(u) => tellValues(u.cursor.idx)] },
      },
      data,
      place,
    );
  }

  function narrow() {
    return data[0].length > 1 && data[0].at(-1) - data[0][0] < 300;
  }

  function tellValues(at) {
    lines.forEach((_, line) => {
      const column = data[line + 1];
      const value = at === null || at === undefined ? lastOf(column) : column[at];
      say(values[line], value === null || value === undefined ? "–" : words(value));
    });
  }

  new ResizeObserver(() => (plot && place.clientWidth ? plot.setSize({ width: place.clientWidth, height: HEIGHT }) : draw())).observe(place);
  addEventListener("theme", draw);

  return {
    node,
    update(seconds, columns) {
      data = [seconds, ...columns];
      if (plot) plot.setData(data);
      else draw();
      if (plot?.cursor.idx === null || plot?.cursor.idx === undefined) tellValues(null);
      say(summary, lines.map((line, at) => `${line.name}: now ${said(lastOf(columns[at]))}, highest ${said(highest(columns[at]))}.`).join(" "));
    },
  };

  function said(value) {
    return value === null ? "unknown" : words(value);
  }
}

function lastOf(column) {
  for (let at = column.length - 1; at >= 0; at -= 1) if (column[at] !== null) return column[at];
  return null;
}

function highest(column) {
  const known = column.filter((value) => value !== null);
  return known.length ? Math.max(...known) : null;
}
