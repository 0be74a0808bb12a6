// How numbers and times are written. Times are milliseconds unless the name says otherwise.
import type { CulpritKind, Verdict } from "./messages";

export const ms = (ns: string | undefined): number => (ns ? Number(ns) / 1e6 : 0);

export function duration(length: number): string {
  const s = Math.max(length, 0) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

export function seconds(s: number): string {
  if (!Number.isFinite(s)) return "";
  if (s >= 100) return `${s.toFixed(0)} s`;
  if (s >= 1) return `${s.toFixed(2)} s`;
  if (s >= 1e-3) return `${(s * 1e3).toFixed(s >= 0.1 ? 0 : 1)} ms`;
  return `${(s * 1e6).toFixed(0)} µs`;
}

const two = (n: number) => String(n).padStart(2, "0");

export function clock(at: number, utc: boolean, withDate = false): string {
  const date = new Date(at);
  const time = utc
    ? `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())}`
    : `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  if (!withDate) return time;
  const day = utc
    ? `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`
    : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${time}`;
}

export function zone(at: number): string {
  const minutes = -new Date(at).getTimezoneOffset();
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

export const inBoth = (at: number) =>
  `${clock(at, false, true)} ${zone(at)}, ${clock(at, true, true)} UTC`;

const SYNDROMES: Record<string, string> = { SYNDROME_UNSPECIFIED: "unknown" };
export const word = (name: string | undefined, prefix: string): string =>
  name ? (SYNDROMES[name] ?? name.replace(`${prefix}_`, "").toLowerCase().replaceAll("_", " ")) : "";

export const syndrome = (verdict: Verdict) =>
  word(verdict.syndrome, "SYNDROME").replace("non communication", "non-communication");
export const stateOf = (verdict: Verdict) => word(verdict.state, "VERDICT_STATE");
export const kindWord = (kind: CulpritKind | undefined) => word(kind, "CULPRIT_KIND");

export function communicator(id: string | undefined): string {
  return id && id !== "0" ? `0x${BigInt(id).toString(16).padStart(16, "0")}` : "";
}

// "ranks 0-3, 7"
export function ranksText(ranks: number[]): string {
  const parts: string[] = [];
  for (let at = 0; at < ranks.length; ) {
    let end = at;
    while (end + 1 < ranks.length && ranks[end + 1] === ranks[end] + 1) ++end;
    parts.push(end > at ? `${ranks[at]}-${ranks[end]}` : `${ranks[at]}`);
    at = end + 1;
  }
  return `${ranks.length === 1 ? "rank" : "ranks"} ${parts.join(", ")}`;
}
