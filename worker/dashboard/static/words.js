// Numbers and times in words.

/** Milliseconds as a length of time that is read at a glance. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return ms > 0 ? "< 1 ms" : "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

/** How long ago, by Redis' clock: the reader's own clock may be wrong. */
export function ago(atMs, nowMs) {
  return atMs ? `${span(Math.max(0, nowMs - atMs))} ago` : "–";
}

/** A moment as the reader's own time, with the day if it is not today's. */
export function clock(atMs) {
  if (!atMs) return "–";
  const at = new Date(atMs);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${isoDay(at)} ${time}`;
}

function isoDay(at) {
  const two = (n) => String(n).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** For a form field of type datetime-local. */
export function localInput(atMs) {
  if (!atMs) return "";
  const at = new Date(Number(atMs));
  return `${isoDay(at)}T${at.toLocaleTimeString("en-GB")}`;
}

/** A whole number with separators. */
export function count(n) {
  return n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en");
}

/** A rate. */
export function perSecond(n) {
  if (n === null || n === undefined) return "–";
  return `${n >= 100 ? count(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2)}/s`;
}

/** A share. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = share * 100;
  return `${value === 0 || value >= 10 ? value.toFixed(0) : value.toFixed(1)} %`;
}

/** "1 call", "3 calls". */
export function many(n, one, several = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : several}`;
}
