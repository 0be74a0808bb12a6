// How the page learns: replies of the API, asked again while somebody looks, and the stream of events. Every address
// is relative to the page's own, so that a proxy may put it under any path.
import { useEffect, useRef, useState } from "preact/hooks";
import type { PageFleet } from "./messages";

const TOKEN = "c4.token";

export interface Live {
  fleet: PageFleet | null;
  heardMs: number; // by this browser's clock, when the server was heard last
  offsetMs: number; // the server's clock minus this browser's
  trouble: string; // why nothing is heard; empty: it is
  needsToken: boolean;
}

let live: Live = { fleet: null, heardMs: 0, offsetMs: 0, trouble: "", needsToken: false };
const listeners = new Set<() => void>();

function change(what: Partial<Live>): void {
  live = { ...live, ...what };
  listeners.forEach((tell) => tell());
}

export function useLive(): Live {
  const [, again] = useState(0);
  useEffect(() => {
    const tell = () => again((n) => n + 1);
    listeners.add(tell);
    return () => void listeners.delete(tell);
  }, []);
  return live;
}

// The server's time, as far as it is known: ages are told by one clock.
export const nowMs = () => Date.now() + live.offsetMs;

export function useToken(token: string): void {
  if (token) sessionStorage.setItem(TOKEN, token.trim());
  else sessionStorage.removeItem(TOKEN);
  change({ needsToken: false, trouble: "" });
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

// A link that was made for one person carries his token: taken, and out of the address at once.
export function takeTokenFromAddress(): void {
  const found = /^#token=([\w.-]+)$/.exec(location.hash);
  if (!found) return;
  useToken(found[1]);
  history.replaceState(null, "", location.pathname + location.search);
}

export class ApiError extends Error {
  constructor(readonly status: number, text: string) {
    super(text);
  }
}

function headers(): HeadersInit {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function request(name: string, set: Record<string, string>, signal?: AbortSignal, file?: Blob): Promise<Response> {
  const query = new URLSearchParams(Object.entries(set).filter(([, value]) => value !== "")).toString();
  const response = await fetch(`api/v1/${name}${query ? `?${query}` : ""}`, {
    headers: headers(), signal, cache: "no-store", credentials: "same-origin",
    ...(file ? { method: "POST", body: file } : {}),
  });
  if (response.ok) return response;
  const text = (await response.text()).trim() || `the server answers ${response.status}`;
  if (response.status === 401) change({ needsToken: true, trouble: text });
  throw new ApiError(response.status, text);
}

export async function ask<T>(name: string, set: Record<string, string> = {}, signal?: AbortSignal): Promise<T> {
  return (await request(name, set, signal)).json() as Promise<T>;
}

// A recording to the page's server; gives the id of the job that shows it.
export async function bring(file: File): Promise<string> {
  return (await request("recordings", { name: file.name }, undefined, file)).text();
}

// What was recorded of a job's last minutes, as a recording; gives the id of the job that shows it.
export async function openPast(job: string): Promise<string> {
  return (await request("past", { job }, undefined, new Blob())).text();
}

export interface Asked<T> {
  data: T | null;
  error: string; // of the last attempt; `data` is then of before
  gone: boolean; // there is no such thing (any more)
}

const SETTLED_MS = 60;

// Asks now, when `key` changes, and every `everyMs` while the page can be seen (0: once).
export function useAsk<T>(name: string, set: Record<string, string>, everyMs: number, key = ""): Asked<T> {
  const [asked, setAsked] = useState<Asked<T>>({ data: null, error: "", gone: false });
  const what = name + JSON.stringify(set);
  const thing = name + JSON.stringify({ ...set, at: "" });
  const shown = useRef({ what: "", thing: "" });
  useEffect(() => {
    if (!name) return;
    // Of another moment what is shown stays until that is there, and is asked for once the slider rests.
    const moved = shown.current.thing === thing && shown.current.what !== what;
    if (shown.current.thing !== thing) setAsked({ data: null, error: "", gone: false });
    shown.current = { what, thing };
    const abort = new AbortController();
    let timer = 0;
    const round = async (again: boolean) => {
      if (again && live.needsToken) return; // every further question would be refused as well
      try {
        if (!document.hidden) {
          const data = await ask<T>(name, set, abort.signal);
          setAsked({ data, error: "", gone: false });
        }
      } catch (fault) {
        if (abort.signal.aborted) return;
        const gone = fault instanceof ApiError && fault.status === 404;
        const error = fault instanceof Error ? fault.message : String(fault);
        setAsked((before) => ({ data: before.data, error, gone }));
      }
      if (!abort.signal.aborted && everyMs > 0) timer = window.setTimeout(round, everyMs, true);
    };
    if (moved) timer = window.setTimeout(round, SETTLED_MS, false);
    else void round(false);
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [what, everyMs, key]);
  return asked;
}

function onEvent(kind: string, data: string): void {
  if (kind !== "fleet" && kind !== "beat") return;
  const message = JSON.parse(data) as PageFleet;
  const offsetMs = message.unixNs ? Number(message.unixNs) / 1e6 - Date.now() : live.offsetMs;
  // The network's delay is no difference of clocks.
  const offset = Math.abs(offsetMs) < 2000 ? 0 : offsetMs;
  change({
    fleet: kind === "fleet" ? message : live.fleet,
    heardMs: Date.now(), offsetMs: offset, trouble: "", needsToken: false,
  });
}

// Server-sent events, read by fetch: an EventSource cannot show a token.
async function listen(): Promise<void> {
  const response = await request("events", {});
  const reader = response.body?.getReader();
  if (!reader) throw new Error("this browser cannot read a stream");
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    change({ heardMs: Date.now() });
    text += decoder.decode(value, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      let kind = "";
      let data = "";
      for (const line of text.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        if (line.startsWith("data: ")) data += line.slice(6);
      }
      text = text.slice(end + 2);
      if (data) onEvent(kind, data);
    }
  }
}

export function beginLive(): void {
  // The first state by itself: it is there before a stream's first word is.
  ask<PageFleet>("fleet").then((fleet) => onEvent("fleet", JSON.stringify(fleet)), () => undefined);
  const round = async () => {
    let trouble = "";
    try {
      await listen();
    } catch (fault) {
      trouble = fault instanceof ApiError ? fault.message : "the server of this page does not answer";
    }
    if (trouble) change({ trouble });
    if (live.needsToken) return; // until somebody shows another one, which begins the page anew
    setTimeout(round, trouble ? 2000 : 200);
  };
  void round();
}
